"""Metrics, scores and evaluators: the score table of a batch, the overall score and the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from wtb.domain.cases import Case
from wtb.domain.errors import InvalidInput
from wtb.domain.model_endpoint import NO_ENDPOINT, ModelEndpoint


class Direction(StrEnum):
    """Whether higher or lower scores are better."""

    HIGHER = "higher"
    LOWER = "lower"

    @property
    def sign(self) -> int:
        """The factor that turns any score into one where higher is better."""
        return 1 if self is Direction.HIGHER else -1


class Absent(StrEnum):
    """Why a run has no score: it or its evaluator failed, or it has not run."""

    ERROR = "error"
    MISSING = "missing"


class Errors(StrEnum):
    """How an error counts.

    `worst`: as the worst score that the metric declares. If it declares none, the case counts as lost, and means cover
    only runs with a score. `drop` leaves the whole case out, on both sides of a comparison, which flatters whoever
    fails on hard cases. A run that has not been made is left out and counted.
    """

    WORST = "worst"
    DROP = "drop"


Score = float | Absent
Scores = Mapping[str, Sequence[Score]]
"""The scores of one combination by case id, one per repeat."""


PRICES = ("latency_s", "cost_usd", "tokens")
"""The metrics that are usually the price of quality."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What an evaluator measures, and the ends of its scale if it has any."""

    name: str
    direction: Direction = Direction.HIGHER
    worst: float | None = None
    best: float | None = None

    def __post_init__(self) -> None:
        """Refuse ends that are not numbers, and a scale that contradicts the direction."""
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
        """Return the metric with the scale for true and false, unless it declares its own."""
        if self.worst is not None or self.best is not None:
            return self
        worst, best = (0.0, 1.0) if self.direction is Direction.HIGHER else (1.0, 0.0)
        return replace(self, worst=worst, best=best)

    def on_scale_of(self, other: Metric) -> Metric:
        """Return the metric with the other one's scale, unless it has its own."""
        has_ends = self.worst is not None or self.best is not None
        return self if has_ends else replace(self, worst=other.worst, best=other.best)

    def better(self, score: float, other: float) -> bool:
        """Whether the first score is better."""
        return score * self.direction.sign > other * self.direction.sign


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTable:
    """The scores of all combinations of a batch on one metric; refuses scores that are not finite numbers.

    `cases` are the cases of all combinations, in the order they first appeared.
    """

    metric: Metric
    combinations: Mapping[str, Scores]
    clusters: Mapping[str, str] = field(default_factory=dict)
    """The cluster of each case that has one; the cases of a cluster are averaged and count as one."""
    cases: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _seen: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse the first score that is NaN or infinite; remember the lowest and the highest score."""
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
        """Return the worst score, declared or seen; None if there is none."""
        return self._end(self.metric.worst, -self.metric.direction.sign)

    def best(self) -> float | None:
        """Return the best score, declared or seen; None if there is none."""
        return self._end(self.metric.best, self.metric.direction.sign)

    def ends(self) -> tuple[float, float] | None:
        """Return both ends of the scale if they are declared, else the lowest and the highest score."""
        if self.metric.worst is None or self.metric.best is None:
            return (self._seen[0], self._seen[-1]) if self._seen else None
        return self.limits()

    def limits(self) -> tuple[float, float]:
        """Return the limits of any mean; infinite where the metric declares no end."""
        away = math.inf * self.metric.direction.sign
        worst = -away if self.metric.worst is None else self.worst()
        best = away if self.metric.best is None else self.best()
        assert worst is not None
        assert best is not None
        return min(worst, best), max(worst, best)

    def runs(self, combination: str, errors: Errors = Errors.WORST) -> dict[str, list[float]]:
        """Return the scores that count for each case, one per run; a case without any is left out.

        An error counts as the worst score if the metric declares one. Otherwise the run is left out, or with
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
        """Return the mean of the scores that count for each case."""
        return {case: mean_of(scores) for case, scores in self.runs(combination, errors).items()}

    def failed(self, combination: str) -> dict[str, float]:
        """Return the share of failed runs of each case that has runs."""
        found = {}
        for case, repeats in self.combinations[combination].items():
            made = [score for score in repeats if score is not Absent.MISSING]
            if made:
                found[case] = made.count(Absent.ERROR) / len(made)
        return found

    def count(self, combination: str, reason: Absent) -> int:
        """Return how many runs have no score for this reason; a case that never began is one missing run."""
        scores = self.combinations[combination]
        found = sum(list(repeats).count(reason) for repeats in scores.values())
        if reason is Absent.MISSING:
            found += len(self.cases) - sum(map(bool, scores.values()))
        return found

    def _end(self, declared: float | None, sign: int) -> float | None:
        """Return one end of the scale; a score beyond the declared end moves it, so that an error is never better."""
        ends = self._seen if declared is None else (declared, *self._seen)
        return max(ends, key=lambda score: sign * score, default=None)


def mean_of(numbers: Sequence[float]) -> float:
    """Return the mean, even if the sum is too large for a float."""
    try:
        return math.fsum(numbers) / len(numbers)
    except OverflowError:
        return math.fsum(number / len(numbers) for number in numbers)


OVERALL = Metric(name="overall", worst=0.0, best=1.0)
"""The metric of the weighted overall score."""

FAILED = Metric(name="failed", direction=Direction.LOWER, worst=1.0, best=0.0)
"""The share of runs that failed or that an evaluator could not score; every batch has this metric."""


def overall(tables: Sequence[ScoreTable], weights: Mapping[str, float]) -> ScoreTable:
    """Return the weighted overall score of every run, as a table like any other.

    Each metric is first scaled to 0 for its worst and 1 for its best score. The ends are the declared ones, or else the
    worst and best of all runs; then a new combination can move the scores of the others, so declare the ends if there
    are any. A metric on which all runs are equal counts 1. The overall score is the weighted mean. A run with an error
    on any of the metrics is an error, one with a missing score is missing.
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
    """Scales the scores of one metric to 0 … 1."""

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
    """Raise InvalidInput if these weights make no overall score for these metrics."""
    if set(metrics) != weights.keys():
        raise InvalidInput(
            f"an overall score needs one weight per metric: weights are for {', '.join(sorted(weights)) or 'none'}, "
            f"and the metrics are {', '.join(sorted(metrics)) or 'none'}"
        )
    for name, weight in weights.items():
        if not (math.isfinite(weight) and weight > 0):
            raise InvalidInput(f"the weight of {name!r} must be a positive number, not {weight}")


def _runs(tables: Sequence[ScoreTable], name: str) -> Iterator[tuple[str, list[list[Score]]]]:
    """Yield each case with its runs; a run is a list of its scores in all the tables."""
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
    """Return the combinations that no other beats, that is, is at least as good on each metric and better on one.

    Equal ones are all kept. A beaten one is dropped only if `is_shown(other, one)` says that this is more than chance.
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


class RunUsage(dict[str, float]):
    """What a run used, by name. Call it to report what the evaluator itself used, as `ctx.usage` of a node."""

    def __init__(self, totals: Mapping[str, float], report: Callable[..., None] = lambda **used: None) -> None:
        super().__init__(totals)
        self._report = report

    def __call__(
        self,
        *,
        model: str | None = None,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cost_usd: float | None = None,
    ) -> None:
        """Report the tokens and the cost of a model call that the evaluator made; they count in the budget."""
        self._report(model=model, input_tokens=input_tokens, output_tokens=output_tokens, cost_usd=cost_usd)


def _no_limit(name: str) -> Any:
    """Return a block without a limit."""
    return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationContext:
    """What an evaluator sees: the case, and the run that it produced.

    Figures are sums over the node runs that led to the head, whether this job executed or shared them: they say what
    the combination costs, not what was spent.
    """

    case: Case
    state: Mapping[str, Any]
    latency_s: float
    steps: int
    usage: RunUsage
    """What the run used; call it to report what the evaluator itself used."""
    tool_errors: int
    unpriced: tuple[str, ...] = ()
    """Models without a known price: their calls are not in `usage["cost_usd"]`."""
    endpoint: ModelEndpoint = NO_ENDPOINT
    """Where judges ask a model."""
    limit: Callable[[str], Any] = _no_limit
    """Holds a slot of a limit in a block: `with context.limit("openai"):`, or `async with` in async evaluators."""

    @property
    def expected(self) -> Any:
        """The result that the case expects."""
        return self.case.expected


class Evaluator(Protocol):
    """Scores a run. `name` is the name of the metric; `direction`, `worst` and `best` are optional.

    An optional `check_case(case)` is called before anything runs, and raises InvalidInput for a case that the evaluator
    could not score. An optional `asked(context)` returns a text with everything in the run that the score depends on:
    the score is then stored, and given again for an equal question about the same case. `evaluate` may be async; it
    returns a number or a bool. If all scores are bools, the scale is 0 to 1. An exception is recorded as the failure of
    that score.
    """

    @property
    def name(self) -> str:
        """The name of the metric."""
        ...

    def evaluate(self, context: EvaluationContext) -> Any:
        """Return the score."""
        ...


def metric_of(evaluator: Evaluator) -> Metric:
    """Return the metric of an evaluator; raise InvalidInput if its direction or scale makes no sense."""
    direction = getattr(evaluator, "direction", Direction.HIGHER)
    if direction not in list(Direction):
        raise InvalidInput(f"evaluator {evaluator.name!r}: direction must be 'higher' or 'lower', not {direction!r}")
    return Metric(
        name=evaluator.name,
        direction=Direction(direction),
        worst=getattr(evaluator, "worst", None),
        best=getattr(evaluator, "best", None),
    )
