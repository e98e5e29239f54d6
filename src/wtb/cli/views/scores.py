"""The scores of a single run: facts for people, data for programs."""

from __future__ import annotations

from typing import Any

from wtb.application.queries.views import RunView
from wtb.domain.display import figure_or_dash
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
        "batch": score.batch_id,
        "by": score.created_by,
        "at": score.created_at,
    }


def score_text(score: RunScore) -> str:
    """Return a score for people; `failed` if the evaluator failed."""
    if score.score is None:
        return "failed"
    return str(score.score).lower() if isinstance(score.score, bool) else figure_or_dash(score.score)


def _score(score: RunScore, view: RunView) -> str:
    text = f"{score.metric} {score_text(score)}"
    is_at_head = score.checkpoint_id is None or (view.head is not None and score.checkpoint_id == view.head.id)
    return text if is_at_head else f"{text} (at another checkpoint)"
