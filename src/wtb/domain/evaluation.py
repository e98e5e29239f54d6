"""ScoreTable: what the runs of a batch scored on one metric; and what follows from several metrics at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from wtb.domain.cases import Case
from wtb.domain.errors import InvalidInput


class Direction(StrEnum):
    """Which end of a metric is the good one."""

    HIGHER = "higher"
    LOWER = "lower"

    @property
    def sign(self) -> int:
        """The factor that makes more always better."""
        return 1 if self is Direction.HIGHER else -1


class Absent(StrEnum):
    """Why a run has no score: it, or its evaluator, failed; or it has not been run."""

    ERROR = "error"
    MISSING = "missing"


class Errors(StrEnum):
    """What an error counts as.

    `worst`: the worst score that the metric declares. Where it declares none, the case counts as lost, and means cover
    the runs that have a score. `drop` leaves the whole case out, on both sides of a comparison: that flatters whoever
    fails on hard cases. A run that has not been made is left out and counted.
    """

    WORST = "worst"
    DROP = "drop"


Score = float | Absent
Scores = Mapping[str, Sequence[Score]]
"""The scores of one combination by case id, one a repeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What an evaluator measures, and the ends of its scale where it has any."""

    name: str
    direction: Direction = Direction.HIGHER
    worst: float | None = None
    best: float | None = None

    def __post_init__(self) -> None:
        """Refuse ends that are no numbers, and a scale that runs against the direction."""
        ends: dict[str, Any] = {"worst": self.worst, "best": self.best}
        for name, end in ends.items():
            if end is not None and not (isinstance(end, int | float) and math.isfinite(end)):
                raise InvalidInput(f"metric {self.name!r}: its {name} score must be a finite number, not {end!r}")
        if self.worst is not None and self.best is not None and not self.better(self.best, self.worst):
            raise InvalidInput(
                f"metric {self.name!r}: {self.direction} is better, so its best score cannot be {self.best} "
                f"and its worst {self.worst}"
            )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Metric:
        """Read a metric from plain data."""
        return cls(**{**data, "direction": Direction(data["direction"])})

    def to_dict(self) -> dict[str, Any]:
        """Return the metric as plain data."""
        return {"name": self.name, "direction": self.direction.value, "worst": self.worst, "best": self.best}

    def of_bools(self) -> Metric:
        """Return the metric on the scale of scores that are all true or false, unless it declares one."""
        if self.worst is not None or self.best is not None:
            return self
        worst, best = (0.0, 1.0) if self.direction is Direction.HIGHER else (1.0, 0.0)
        return replace(self, worst=worst, best=best)

    def on_scale_of(self, other: Metric) -> Metric:
        """Return the metric with the ends that the other one has, unless it has any itself."""
        has_ends = self.worst is not None or self.best is not None
        return self if has_ends else replace(self, worst=other.worst, best=other.best)

    def better(self, score: float, other: float) -> bool:
        """Whether the first score is the better one."""
        return score * self.direction.sign > other * self.direction.sign


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTable:
    """The scores of all combinations of a batch on one metric; refuses what is not a finite number.

    `cases` are those that any combination has, in the order in which they came first.
    """

    metric: Metric
    combinations: Mapping[str, Scores]
    clusters: Mapping[str, str] = field(default_factory=dict)
    """The cluster of each case that belongs to one: its cases are averaged and count as one."""
    cases: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _seen: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Name the first score that is NaN or infinite; keep the lowest and the highest one."""
        low, high = math.inf, -math.inf
        for combination, scores in self.combinations.items():
            for case, repeats in scores.items():
                for score in repeats:
                    if isinstance(score, Absent):
                        continue
                    if not math.isfinite(score):
                        raise InvalidInput(
                            f"{self.metric.name} of combination {combination!r} on case {case!r} is {score}; "
                            "an evaluator has to return a finite number"
                        )
                    low, high = min(low, score), max(high, score)
        cases = dict.fromkeys(case for scores in self.combinations.values() for case in scores)
        object.__setattr__(self, "cases", tuple(cases))
        object.__setattr__(self, "_seen", (float(low), float(high)) if low <= high else ())

    def worst(self) -> float | None:
        """The worst score that is declared or was seen; None when nothing is known."""
        return self._end(self.metric.worst, -self.metric.direction.sign)

    def best(self) -> float | None:
        """The best score that is declared or was seen; None when nothing is known."""
        return self._end(self.metric.best, self.metric.direction.sign)

    def ends(self) -> tuple[float, float] | None:
        """The lower and the upper end of the scale where both are declared, else the lowest and the highest score."""
        if self.metric.worst is None or self.metric.best is None:
            return (self._seen[0], self._seen[-1]) if self._seen else None
        return self.limits()

    def limits(self) -> tuple[float, float]:
        """The scores that no mean can lie beyond; infinite where the metric declares no end."""
        away = math.inf * self.metric.direction.sign
        worst = -away if self.metric.worst is None else self.worst()
        best = away if self.metric.best is None else self.best()
        assert worst is not None
        assert best is not None
        return min(worst, best), max(worst, best)

    def runs(self, combination: str, errors: Errors = Errors.WORST) -> dict[str, list[float]]:
        """The scores that count for each case, one a run; a case without any is left out.

        An error counts as the worst score where the metric declares one. Otherwise the run is left out, or with
        `Errors.DROP` its whole case.
        """
        worst = None if self.metric.worst is None or errors is Errors.DROP else self.worst()
        found = {}
        for case, repeats in self.combinations[combination].items():
            scores = [float(score) for score in repeats if not isinstance(score, Absent)]
            failed = 0 if len(scores) == len(repeats) else list(repeats).count(Absent.ERROR)
            if failed and errors is Errors.DROP:
                continue
            if failed and worst is not None:
                scores += [worst] * failed
            if scores:
                found[case] = scores
        return found

    def case_means(self, combination: str, errors: Errors = Errors.WORST) -> dict[str, float]:
        """The mean over the scores that count for each case."""
        return {case: mean_of(scores) for case, scores in self.runs(combination, errors).items()}

    def failed(self, combination: str) -> dict[str, float]:
        """The share of failed runs of each case that has any run."""
        found = {}
        for case, repeats in self.combinations[combination].items():
            made = [score for score in repeats if score is not Absent.MISSING]
            if made:
                found[case] = made.count(Absent.ERROR) / len(made)
        return found

    def count(self, combination: str, reason: Absent) -> int:
        """How many runs have no score for this reason; a case that was never begun is one missing run."""
        scores = self.combinations[combination]
        found = sum(list(repeats).count(reason) for repeats in scores.values())
        if reason is Absent.MISSING:
            found += len(self.cases) - sum(map(bool, scores.values()))
        return found

    def _end(self, declared: float | None, sign: int) -> float | None:
        """Return one end; a score beyond the declared end moves it, so that an error is never the better result."""
        ends = self._seen if declared is None else (declared, *self._seen)
        return max(ends, key=lambda score: sign * score, default=None)


def mean_of(numbers: Sequence[float]) -> float:
    """Return the mean, also of numbers whose sum is too large for a float."""
    try:
        return math.fsum(numbers) / len(numbers)
    except OverflowError:
        return math.fsum(number / len(numbers) for number in numbers)


OVERALL = Metric(name="overall", worst=0.0, best=1.0)
"""What the weighted overall score is called."""

FAILED = Metric(name="failed", direction=Direction.LOWER, worst=1.0, best=0.0)
"""The share of runs that failed, or that an evaluator could not score; every batch has it."""


def overall(tables: Sequence[ScoreTable], weights: Mapping[str, float]) -> ScoreTable:
    """The weighted overall score of every run, as a table that can be summarised and compared like any other.

    Each metric is first brought to 0 for its worst and 1 for its best score: the declared ends of its scale, or else
    the worst and best that any run of any combination had; then a new combination can move the scores of the others,
    so declare the ends where there are some. A metric on which all runs are equal counts 1. The overall score is the
    mean with the given weights. A run with an error in any of the metrics is an error, one with a score missing is
    missing.
    """
    check_weights([table.metric.name for table in tables], weights)
    total = math.fsum(weights[table.metric.name] for table in tables)
    shares = [weights[table.metric.name] / total for table in tables]
    units = [_Unit.of(table) for table in tables]

    def score(scores: Sequence[Score]) -> Score:
        for reason in (Absent.ERROR, Absent.MISSING):
            if reason in scores:
                return reason
        return math.fsum(share * unit(score) for share, unit, score in zip(shares, units, scores, strict=True))

    names = dict.fromkeys(name for table in tables for name in table.combinations)
    return ScoreTable(
        metric=OVERALL,
        combinations={
            name: {case: [score(run) for run in runs] for case, runs in _runs(tables, name)} for name in names
        },
        clusters=tables[0].clusters,
    )


@dataclass(frozen=True, slots=True)
class _Unit:
    """Brings the scores of one metric to 0 … 1."""

    worst: float
    best: float

    @classmethod
    def of(cls, table: ScoreTable) -> _Unit:
        worst, best = table.worst(), table.best()
        return cls(0.0 if worst is None else worst, 0.0 if best is None else best)

    def __call__(self, score: Score) -> float:
        if self.best == self.worst:
            return 1.0
        return (float(score) - self.worst) / (self.best - self.worst)


def check_weights(metrics: Sequence[str], weights: Mapping[str, float]) -> None:
    """Raise InvalidInput for weights that make no overall score of these metrics."""
    if set(metrics) != weights.keys():
        raise InvalidInput(
            f"an overall score takes one weight a metric: weights are for {', '.join(sorted(weights)) or 'none'}, "
            f"and metrics {', '.join(sorted(metrics)) or 'none'}"
        )
    for name, weight in weights.items():
        if not (math.isfinite(weight) and weight > 0):
            raise InvalidInput(f"the weight of {name!r} must be a positive number, not {weight}")


def _runs(tables: Sequence[ScoreTable], name: str) -> Iterator[tuple[str, list[list[Score]]]]:
    """Yield each case with its runs, a run being its scores on all the tables."""
    columns = [table.combinations.get(name, {}) for table in tables]
    for case in dict.fromkeys(case for column in columns for case in column):
        repeats = max(len(column.get(case, ())) for column in columns)
        filled = [[*column.get(case, ()), *[Absent.MISSING] * repeats][:repeats] for column in columns]
        yield case, [list(run) for run in zip(*filled, strict=True)]


def pareto(
    points: Mapping[str, Mapping[str, float]],
    directions: Mapping[str, Direction],
    is_shown: Callable[[str, str], bool] = lambda better, worse: True,
) -> tuple[str, ...]:
    """The combinations that no other one beats: at least as good on every metric and better on one.

    Of equal ones all are kept. One that another beats is dropped only if `is_shown(other, one)` says that this is more
    than chance.
    """
    for name, point in points.items():
        absent = [metric for metric in directions if metric not in point]
        if absent:
            raise InvalidInput(f"combination {name!r} has no {', '.join(absent)}; leave it out of the Pareto front")
    beaten = {
        name: [other for other in points if beats(points[other], own, directions)] for name, own in points.items()
    }
    return tuple(name for name, others in beaten.items() if not any(is_shown(other, name) for other in others))


def beats(other: Mapping[str, float], own: Mapping[str, float], directions: Mapping[str, Direction]) -> bool:
    """Whether the first point is at least as good on every metric and better on one."""
    gains = [(other[metric] - own[metric]) * direction.sign for metric, direction in directions.items()]
    return all(gain >= 0 for gain in gains) and any(gain > 0 for gain in gains)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationContext:
    """What an evaluator may look at: the case, and what the run made of it.

    Figures are sums over the node runs that led to the head of the run, whether they were run for this job or shared
    with others: what the combination costs, not what was spent.
    """

    case: Case
    state: Mapping[str, Any]
    latency_s: float
    steps: int
    usage: Mapping[str, float]
    tool_errors: int
    unpriced: tuple[str, ...] = ()
    """Models whose price nobody knew: their calls are not in `usage["cost_usd"]`."""

    @property
    def expected(self) -> Any:
        """What the case says should come out."""
        return self.case.expected


class Evaluator(Protocol):
    """Scores a run. `name` is that of the metric; one may also have `direction`, `worst` and `best`.

    It may have `check_case(case)` too, which is asked before anything runs and raises InvalidInput for a case that it
    could not score. `evaluate` may be async; it returns a number or a truth value. Where all scores are truth values,
    the scale is from 0 to 1. What it raises is a recorded failure of that score.
    """

    @property
    def name(self) -> str:
        """The name of the metric."""
        ...

    def evaluate(self, context: EvaluationContext) -> Any:
        """Return the score."""
        ...


def metric_of(evaluator: Evaluator) -> Metric:
    """Return what an evaluator measures."""
    direction = getattr(evaluator, "direction", Direction.HIGHER)
    if direction not in list(Direction):
        raise InvalidInput(f"evaluator {evaluator.name!r}: direction {direction!r} is unknown; say 'higher' or 'lower'")
    return Metric(
        name=evaluator.name,
        direction=Direction(direction),
        worst=getattr(evaluator, "worst", None),
        best=getattr(evaluator, "best", None),
    )
