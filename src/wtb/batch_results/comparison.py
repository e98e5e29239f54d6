"""Compare the results of two batches, and check what a batch is to be judged by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import (
    FAILED,
    OVERALL,
    Errors,
    ScoreTable,
    check_weights,
)

if TYPE_CHECKING:
    from wtb.batch_results.result import BatchResult
    from wtb.domain.statistics.verdicts import Verdict


def compare_results(
    before: BatchResult,
    after: BatchResult,
    metrics: Sequence[str] = (),
    *,
    pairs: Sequence[tuple[str, str]] = (),
    errors: str = "worst",
    max_errors: int = 0,
) -> tuple[Verdict, ...]:
    """Compare combinations of one result with those of another, case by case; return the verdicts on these metrics.

    `pairs` holds combinations before and after; without any, each one that both have is compared with itself. All
    common metrics are judged, in the same two families as within one result. Without metrics, return the verdicts on
    all.
    """
    from wtb.domain.statistics.comparisons import compare_pairs
    from wtb.domain.statistics.verdicts import verdicts

    pairs = pairs or [(name, name) for name in before.combinations if name in after.combinations]
    common = [name for name in before.metrics if name in after.metrics]
    if not pairs or not (common or metrics):
        what = "metric" if pairs else "combination"
        raise InvalidInput(f"batches {before.batch.name!r} and {after.batch.name!r} have no {what} in common")
    comparable = [name for name in common if before.metrics[name].direction is after.metrics[name].direction]
    asked = [*dict.fromkeys([*(comparable if metrics else common), *metrics, FAILED.name])]
    tables = [(before.table(metric), after.table(metric)) for metric in asked]
    joined = [_joined(before, after, old, new, pair) for old, new in tables for pair in pairs]
    primary = next((name for name in (after.primary, before.primary) if name in asked), asked[0])
    found = verdicts(compare_pairs(joined, errors=Errors(errors)), primary=primary, max_errors=max_errors)
    return shown(each for each in found if not metrics or each.comparison.metric.name in metrics)


def shown(found: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Return verdicts that display as a table."""
    from wtb.domain.statistics.verdicts import Verdicts

    return Verdicts(found)


def _joined(
    before: BatchResult, after: BatchResult, old: ScoreTable, new: ScoreTable, pair: tuple[str, str]
) -> tuple[ScoreTable, str]:
    """Return the scores of two combinations in one table, and the name of the first one there."""
    metric = new.metric.on_scale_of(old.metric)
    if metric.direction is not old.metric.direction:
        directions = f"{old.metric.direction} was better in {before.batch.name}, {metric.direction} in"
        raise InvalidInput(f"{metric.name} cannot be compared: {directions} {after.batch.name}")
    first, second = f"{before.batch.name}:{pair[0]}", f"{after.batch.name}:{pair[1]}"
    if first == second and before.batch.id == after.batch.id:
        raise InvalidInput(f"{first} is the same on both sides; name two batches, or BATCH:COMBINATION")
    if first == second:  # the labels must differ: it is another batch of the same name, or a saved baseline
        first = f"{before.batch.name} ({before.batch.id}):{pair[0]}"
    scores = {first: old.combinations[pair[0]], second: new.combinations[pair[1]]}
    return ScoreTable(metric=metric, combinations=scores, clusters={**old.clusters, **new.clusters}), first


def known_or_worst(table: ScoreTable, combination: str) -> dict[str, float]:
    """Return the mean of each case, to sort and colour cases by.

    A case that failed and has no score gets the worst score of the table, or less if all scores are the same.
    """
    worst, means = table.worst(), table.case_means(combination)
    if worst is None:
        return means
    beyond = worst - table.metric.direction.sign if worst == table.best() else worst
    failed = [case for case, share in table.failed(combination).items() if share and case not in means]
    return {**means, **dict.fromkeys(failed, beyond)}


def check_weighted(metrics: Sequence[str], weights: Mapping[str, float]) -> None:
    """Raise InvalidInput if these weights make no overall score for a batch with these metrics."""
    if FAILED.name in metrics:
        raise InvalidInput(f"every batch has a metric {FAILED.name!r}; give the evaluator of that name another")
    unknown = [name for name in weights if name not in metrics]
    if unknown:
        raise InvalidInput(f"weights: there is no metric {unknown[0]!r}; there are {', '.join(metrics)}")
    if weights and OVERALL.name in metrics:
        raise InvalidInput(f"weights make a metric {OVERALL.name!r}; give the evaluator of that name another")
    check_weights([*weights], weights)


def check_primary(metrics: Sequence[str], weights: Mapping[str, float], primary: str | None) -> None:
    """Raise InvalidInput if the batch does not have this primary metric."""
    known = [*metrics, *([OVERALL.name] if weights else [])]
    if primary is not None and primary not in known:
        raise InvalidInput(f"primary={primary!r}: there is no such metric; there are {', '.join(known)}")
