"""Pairing: the scores and failures of two combinations on the cases that both have, for comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import FAILED, Absent, Errors, ScoreTable, mean_of
from wtb.domain.statistics.differences import Differences, differences, unit_means
from wtb.domain.statistics.resampling import Array, Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """How many cases have a failed run: only with the candidate, only with the baseline, or with both."""

    candidate_only: int = 0
    baseline_only: int = 0
    both: int = 0


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """A candidate and the baseline on one metric."""

    table: ScoreTable
    candidate: str
    baseline: str
    errors: Errors

    @cached_property
    def _runs(self) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        return self.table.runs(self.candidate, self.errors), self.table.runs(self.baseline, self.errors)

    @cached_property
    def lost(self) -> dict[str, int]:
        """The cases that failed runs decide, on a metric without a worst score, with the sign of the difference.

        The side that failed more often lost the case, by as much as the largest difference among the other cases. If
        both failed equally often, the other runs decide; without other runs it is a tie.
        """
        if self.errors is Errors.DROP or self.table.metric.worst is not None:
            return {}
        ours, theirs = self.table.failed(self.candidate), self.table.failed(self.baseline)
        sign = self.table.metric.direction.sign
        return {
            case: sign * ((ours[case] < theirs[case]) - (ours[case] > theirs[case]))
            for case in sorted(ours.keys() & theirs.keys())
            if ours[case] != theirs[case] or ours[case] == 1.0
        }

    @cached_property
    def scored(self) -> list[str]:
        """The cases that both sides have scored and that no failed run decides, sorted."""
        ours, theirs = self._runs
        return sorted(case for case in ours if case in theirs and case not in self.lost)

    @cached_property
    def tested(self) -> Differences:
        """The differences that are tested: those of the scores, and the cases that failed runs decide."""
        return differences(*self._runs, self.table.clusters, self.lost)

    @cached_property
    def measured(self) -> Differences:
        """The differences of the scores alone."""
        if not self.lost:
            return self.tested
        chosen = [{case: side[case] for case in self.scored} for side in self._runs]
        return differences(chosen[0], chosen[1], self.table.clusters, {})

    @property
    def dropped(self) -> int:
        """How many cases could not be compared."""
        cases = self.table.combinations[self.candidate].keys() | self.table.combinations[self.baseline].keys()
        return len(cases) - len(self.scored) - len(self.lost)

    @cached_property
    def unit_scores(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The scores of the candidate and of the baseline on each unit that both scored."""
        ours, theirs = (
            unit_means({case: mean_of(side[case]) for case in self.scored}, self.table.clusters) for side in self._runs
        )
        return tuple(ours.values()), tuple(theirs.values())

    def failures(self) -> Failures:
        """Count the cases with a failed run."""
        ours, theirs = (_failed_cases(self.table, name) for name in (self.candidate, self.baseline))
        return Failures(candidate_only=len(ours - theirs), baseline_only=len(theirs - ours), both=len(ours & theirs))


def pairings(table: ScoreTable, baseline: str, errors: Errors) -> Iterator[Pairing]:
    """Pair every other combination of a table with the baseline."""
    if baseline not in table.combinations:
        raise InvalidInput(
            f"there is no combination {baseline!r} to compare with; there are {', '.join(table.combinations) or 'none'}"
        )
    for candidate in table.combinations:
        if candidate != baseline:
            yield Pairing(table=table, candidate=candidate, baseline=baseline, errors=errors)


def columns_of(samples: Sequence[Differences]) -> Columns:
    """Return differences side by side, with a row per unit, sorted by name; 0 where a comparison lacks a unit."""
    units = {unit: row for row, unit in enumerate(sorted({unit for each in samples for unit in each.units}))}
    values: Array = np.zeros((len(units), len(samples)))
    for column, each in enumerate(samples):
        values[[units[unit] for unit in each.units], column] = each.values
    return Columns(values=values, slack=np.array([each.slack for each in samples]))


def _failed_cases(table: ScoreTable, combination: str) -> set[str]:
    scores = table.combinations[combination].items()
    if table.metric == FAILED:
        return {case for case, repeats in scores if any(score not in (0.0, Absent.MISSING) for score in repeats)}
    return {case for case, repeats in scores if Absent.ERROR in repeats}
