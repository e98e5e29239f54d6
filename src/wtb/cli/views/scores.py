"""The scores of a single run: facts for people, data for programs."""

from __future__ import annotations

from typing import Any

from wtb.application.queries.views import RunView
from wtb.cli.views.batch_tables import number
from wtb.domain.run_scores import RunScore


def score_facts(view: RunView) -> dict[str, str]:
    """Return the newest score of each metric in one line, and the errors of evaluators that failed in another."""
    newest = list(view.scores.values())
    facts = {}
    if newest:
        facts["scores"] = ", ".join(_score(score, view) for score in newest)
    errors = [score.error for score in newest if score.error is not None]
    if errors:
        facts["no score"] = "; ".join(errors)
    return facts


def score_data(score: RunScore) -> dict[str, Any]:
    """Return a score for programs."""
    return {
        "metric": score.metric,
        "score": score.score,
        "error": score.error,
        "checkpoint": score.checkpoint_id,
        "fingerprint": score.fingerprint,
        "by": score.created_by,
        "at": score.created_at,
    }


def _score(score: RunScore, view: RunView) -> str:
    if score.score is None:
        text = f"{score.metric} failed"
    elif isinstance(score.score, bool):
        text = f"{score.metric} {str(score.score).lower()}"
    else:
        text = f"{score.metric} {number(score.score)}"
    is_at_head = view.head is not None and score.checkpoint_id == view.head.id
    return text if is_at_head else f"{text} (at another checkpoint)"
