"""RunScores: the scores that evaluators gave a single run, and when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from wtb.domain.errors import InvalidInput
from wtb.domain.ids import CheckpointId, ExecutionId


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScore:
    """The result of one evaluator for a run: a score, or the error if it failed."""

    id: str
    execution_id: ExecutionId
    checkpoint_id: CheckpointId | None
    """The checkpoint that was scored: the head of the run at that time. None for jobs of earlier versions."""
    metric: str
    """The name of the evaluator, which is the name of its metric."""
    fingerprint: str
    """A digest of the evaluator's code and settings: scores with the same digest can be compared.

    If a batch gave the score, the digest also covers what the case expects.
    """
    score: float | bool | None = None
    """None if the evaluator failed."""
    error: str | None = None
    """Why there is no score; None if there is one."""
    created_by: str | None = None
    created_at: datetime
    batch_id: str | None = None
    """The batch that gave the score; None if the run was scored by itself."""

    def __post_init__(self) -> None:
        if (self.score is None) == (self.error is None):
            raise InvalidInput(f"evaluator {self.metric!r}: give a score or an error, and not both")


@dataclass(frozen=True, slots=True)
class RunScores(Mapping[str, RunScore]):
    """The scores of a run. By metric it gives the newest score; `all` holds the earlier ones too, oldest first.

    Scores of the batch that made the run come before those that the run got by itself.
    """

    all: tuple[RunScore, ...] = ()

    def __getitem__(self, metric: str) -> RunScore:
        for score in reversed(self.all):
            if score.metric == metric:
                return score
        raise KeyError(metric)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(score.metric for score in self.all))

    def __repr__(self) -> str:
        newest = (f"{name} {'failed' if each.score is None else each.score}" for name, each in self.items())
        return f"<RunScores: {', '.join(newest) or 'none'}>"

    def __len__(self) -> int:
        return len({score.metric for score in self.all})
