"""GridCase: all scores of a case on one metric in one row, for tables of thousands of results."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from wtb.batch_results.result import BatchResult
from wtb.domain.batch import JobStatus
from wtb.domain.evaluation import Absent, Score

_DIGITS = 6
"""Nobody sees more, and they would make an answer twice as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCase:
    """The scores of a case: all repeats of the first combination, then of the next."""

    case_id: str
    tags: tuple[str, ...]
    scores: tuple[float | None, ...]
    failed: tuple[int, ...]
    """The places in `scores` whose run failed."""
    unscored: tuple[int, ...]
    """The places whose evaluator failed."""
    flaky: tuple[int, ...]
    """The combinations whose repeats disagree, on any metric."""
    spread: float | None
    """How far the best combination is from the worst one; None if fewer than two have a score."""


def grid_of(result: BatchResult, metric: str) -> tuple[GridCase, ...]:
    """Return one row for each case, in the order of the batch."""
    combinations, texts = result.table(metric).combinations, result.case_texts
    failed, flaky, spreads = _failed(result), _flaky(result), result.spreads(metric)

    def row(case: str) -> GridCase:
        scores = [score for name in result.combinations for score in combinations[name][case]]
        errors = [at for at, score in enumerate(scores) if score is Absent.ERROR]
        return GridCase(
            case_id=case,
            tags=texts[case].tags if case in texts else (),
            scores=tuple(map(_number, scores)),
            failed=tuple(sorted(failed[case])),
            unscored=tuple(at for at in errors if at not in failed[case]),
            flaky=tuple(flaky[case]),
            spread=spreads.get(case),
        )

    return tuple(map(row, result.cases))


def _failed(result: BatchResult) -> dict[str, set[int]]:
    """Return the places of failed runs in the row of each case."""
    numbers, repeats = {name: at for at, name in enumerate(result.combinations)}, result.batch.record.repeats
    found: dict[str, set[int]] = defaultdict(set)
    for job in result.results:
        if job.status == JobStatus.FAILED:
            found[job.case_id].add(numbers[job.combination] * repeats + job.repeat)
    return found


def _flaky(result: BatchResult) -> dict[str, list[int]]:
    """Return the numbers of the combinations whose repeats disagree on each case."""
    numbers = {name: at for at, name in enumerate(result.combinations)}
    found: dict[str, list[int]] = defaultdict(list)
    for each in result.flaky():
        found[each.case_id].append(numbers[each.combination])
    return found


def _number(score: Score) -> float | None:
    return None if isinstance(score, Absent) else float(f"{score:.{_DIGITS}g}")
