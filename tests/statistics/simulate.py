"""Simulated batches whose truth is known: how often verdicts, intervals and gates are right.

`python -m tests.statistics.simulate [BATCHES]` prints the tables; the tests hold their rows to bounds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wtb.domain.evaluation import Direction, Metric, ScoreTable
from wtb.domain.statistics.comparisons import ALPHA, Comparison, compare, summarise
from wtb.domain.statistics.gate import GateOutcome, non_inferior, regression
from wtb.domain.statistics.resampling import Columns, step_down
from wtb.domain.statistics.verdicts import Finding, verdicts

Array = NDArray[np.float64]
Generator = np.random.Generator

BASELINE = "baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of score: cases differ in difficulty, which combinations share, and each run adds its own noise.

    `draw` makes an array of cases × combinations × repeats, all with the same distribution and the given mean; `worsen`
    makes scores worse by a share of that mean. So many cases as `cluster` says belong together.
    """

    name: str
    metric: Metric
    mean: float
    repeats: int
    draw: Callable[[Generator, tuple[int, int, int]], Array]
    worsen: Callable[[Generator, Array, float], Array]
    cluster: int = 1


def _normal(generator: Generator, shape: tuple[int, int, int]) -> Array:
    """Cases differ three times as much as runs of one case do."""
    return 1 + generator.normal(scale=3, size=(shape[0], 1, 1)) + generator.normal(size=shape)


def _lognormal(generator: Generator, shape: tuple[int, int, int]) -> Array:
    """Latencies: a few cases and a few runs take many times as long as the others."""
    return np.exp(0.7 * generator.normal(size=(shape[0], 1, 1)) + 0.7 * generator.normal(size=shape))


def _binary(generator: Generator, shape: tuple[int, int, int]) -> Array:
    """Right or wrong: some cases are easy, some hard; four of five are solved."""
    easy = generator.beta(2, 0.5, size=(shape[0], 1, 1))
    return (generator.random(shape) < easy).astype(float)


def _tied(generator: Generator, shape: tuple[int, int, int]) -> Array:
    """F1 scores: two of three cases are solved by everybody, the others are anything from 0 to 1."""
    hard = generator.random((shape[0], 1, 1)) < 1 / 3
    return np.where(hard, generator.random(shape), 1.0)


def _clustered(generator: Generator, shape: tuple[int, int, int]) -> Array:
    """Four questions about each document, which a combination answers all well or all badly."""
    cases, *rest = shape
    own = 0.3 * generator.normal(size=shape)
    return np.asarray(1 + np.repeat(generator.normal(size=(-(-cases // 4), *rest)), 4, axis=0)[:cases] + own)


def _drifting(generator: Generator, shape: tuple[int, int, int]) -> Array:
    """The service gets slower and less steady while the batch runs, for all combinations alike."""
    hour = np.linspace(0, 1, shape[0])[:, None, None]
    return 1 + hour + generator.exponential(0.1 + hour, size=shape) - (0.1 + hour) - 0.5


def _tiny(generator: Generator, shape: tuple[int, int, int]) -> Array:
    """Likelihoods: their squares are 0 to a float."""
    return 1e-165 * _lognormal(generator, shape)


def _huge(generator: Generator, shape: tuple[int, int, int]) -> Array:
    """Squares of these are too large for a float."""
    return 1e154 * _normal(generator, shape)


def _decimals(generator: Generator, shape: tuple[int, int, int]) -> Array:
    """Marks from 0 to 1 with one decimal, so that many sums are the same."""
    marks = generator.beta(3, 3, size=(shape[0], 1, 1)) * 0.6 + generator.beta(3, 3, size=shape) * 0.4
    return np.round(marks, 1)


def _zero_inflated(generator: Generator, shape: tuple[int, int, int]) -> Array:
    """What is 0 in four runs of five, and anything otherwise: complaints, retries, costs beyond a free allowance."""
    return np.where(generator.random(shape) < 0.8, 0.0, generator.exponential(5.0, size=shape))


def _more_often(generator: Generator, scores: Array, share: float) -> Array:
    """Where there was nothing there is sometimes something now: on average this much more."""
    return np.where(generator.random(scores.shape) < share / 5, scores + 5.0, scores)


def _one_mark_less(generator: Generator, scores: Array, share: float) -> Array:
    """Some runs get one mark less."""
    return np.asarray(np.round(scores - 0.1 * (generator.random(scores.shape) < share * 5), 1), dtype=np.float64)


def _less(generator: Generator, scores: Array, share: float) -> Array:
    return scores - share


def _slower(generator: Generator, scores: Array, share: float) -> Array:
    """Every run takes longer, by the same factor."""
    return scores * (1 + share)


def _spoilt(generator: Generator, scores: Array, share: float) -> Array:
    """Some runs go wrong altogether."""
    return np.where(generator.random(scores.shape) < share, 0.0, scores)


_RIGHT = Metric(name="right", worst=0.0, best=1.0)
NORMAL = Kind(name="normal", metric=Metric(name="score"), mean=1.0, repeats=3, draw=_normal, worsen=_less)
LOGNORMAL = Kind(
    name="lognormal",
    metric=Metric(name="latency", direction=Direction.LOWER),
    mean=float(np.exp(0.49)),
    repeats=1,
    draw=_lognormal,
    worsen=_slower,
)
BINARY = Kind(name="binary", metric=_RIGHT, mean=0.8, repeats=1, draw=_binary, worsen=_spoilt)
REPEATED = Kind(name="binary × 3", metric=_RIGHT, mean=0.8, repeats=3, draw=_binary, worsen=_spoilt)
TIED = Kind(name="tied", metric=_RIGHT, mean=5 / 6, repeats=1, draw=_tied, worsen=_spoilt)
KINDS = (NORMAL, LOGNORMAL, BINARY, REPEATED, TIED)

CLUSTERED = Kind(
    name="clusters", metric=Metric(name="score"), mean=1.0, repeats=1, draw=_clustered, worsen=_less, cluster=4
)
UNDECLARED = replace(CLUSTERED, name="undeclared", cluster=1)
DRIFTING = Kind(name="drift", metric=Metric(name="score"), mean=1.0, repeats=1, draw=_drifting, worsen=_less)
TINY = replace(LOGNORMAL, name="tiny", mean=1e-165 * LOGNORMAL.mean, draw=_tiny)
HUGE = replace(
    NORMAL, name="huge", mean=1e154, draw=_huge, worsen=lambda generator, scores, share: scores - share * 1e154
)
DECIMALS = Kind(name="decimals", metric=Metric(name="mark"), mean=0.5, repeats=1, draw=_decimals, worsen=_one_mark_less)
ZERO_INFLATED = Kind(
    name="zeros",
    metric=Metric(name="complaints", direction=Direction.LOWER),
    mean=1.0,
    repeats=1,
    draw=_zero_inflated,
    worsen=_more_often,
)
MORE_KINDS = (CLUSTERED, DRIFTING, TINY, HUGE, DECIMALS, ZERO_INFLATED)


def tables(
    kind: Kind, *, batches: int, cases: int, candidates: int = 1, drop: float = 0.0, seed: int = 1
) -> Iterator[ScoreTable]:
    """Yield batches in which every candidate is the baseline, made worse by `drop` on average."""
    generator = np.random.default_rng(seed)
    for _ in range(batches):
        scores = kind.draw(generator, (cases, 1 + candidates, kind.repeats))
        scores[:, 1:] = kind.worsen(generator, scores[:, 1:], drop / kind.mean)
        yield _table(kind, scores, [BASELINE, *(f"candidate {number}" for number in range(1, candidates + 1))])


def _table(kind: Kind, scores: Array, names: Sequence[str]) -> ScoreTable:
    return ScoreTable(
        metric=kind.metric,
        combinations={
            name: {str(case): repeats for case, repeats in enumerate(scores[:, column].tolist())}
            for column, name in enumerate(names)
        },
        clusters={str(case): str(case // kind.cluster) for case in range(len(scores))} if kind.cluster > 1 else {},
    )


def compared(
    kind: Kind, *, batches: int, cases: int, candidates: int = 1, drop: float = 0.0, seed: int = 1
) -> tuple[Comparison, ...]:
    """All comparisons of such batches, those of one batch together."""
    return compare(
        tables(kind, batches=batches, cases=cases, candidates=candidates, drop=drop, seed=seed), baseline=BASELINE
    )


def half_a_deviation(kind: Kind) -> float:
    """Half a standard deviation of the difference between two combinations in one case, or cluster of cases."""
    scores = kind.draw(np.random.default_rng(0), (100_000, 2, kind.repeats)).mean(axis=2)
    size = abs(kind.mean)  # squares of tiny and huge scores are no numbers
    apart = ((scores[:, 1] - scores[:, 0]) / size).reshape(-1, kind.cluster).mean(axis=1)
    return float(np.std(apart) / 2) * size


def found(comparisons: Sequence[Comparison], *findings: Finding, candidates: int = 1) -> float:
    """In which share of the batches any candidate gets one of these verdicts."""
    batches = [comparisons[start : start + candidates] for start in range(0, len(comparisons), candidates)]
    return _share(any(verdict.finding in findings for verdict in verdicts(batch)) for batch in batches)


def winners(comparisons: Sequence[Comparison], candidates: int = 1) -> float:
    """In which share of the batches any candidate is called better or worse."""
    return found(comparisons, Finding.BETTER, Finding.WORSE, candidates=candidates)


def differences_covered(comparisons: Sequence[Comparison]) -> float:
    """How often the interval of a difference holds 0."""
    return _share(one.interval is not None and one.interval.low <= 0 <= one.interval.high for one in comparisons)


def effects_covered(kind: Kind, comparisons: Sequence[Comparison], drop: float) -> float:
    """How often the interval of a difference holds a real drop."""
    truth = -drop * kind.metric.direction.sign
    return _share(one.interval is not None and one.interval.holds(truth) for one in comparisons)


def family_winners(*, batches: int, cases: int, candidates: int = 20, metrics: int = 26, seed: int = 3) -> float:
    """In which share of the batches any of very many comparisons, on metrics of all kinds, is called better or worse.

    Only the test is made, without the intervals: it alone decides.
    """
    generator = np.random.default_rng(seed)
    kinds = [KINDS[number % len(KINDS)] for number in range(metrics)]
    lucky = []
    for _ in range(batches):
        scores = [kind.draw(generator, (cases, 1 + candidates, kind.repeats)).mean(axis=2) for kind in kinds]
        apart = np.concatenate([own[:, 1:] - own[:, :1] for own in scores], axis=1)
        adjusted = step_down(Columns(values=apart, slack=np.zeros(apart.shape[1])), seed=0)
        lucky.append(min(adjusted) <= ALPHA)
    return _share(lucky)


def means_covered(kind: Kind, *, batches: int, cases: int) -> float:
    """How often the interval of a combination's mean holds the true mean."""
    generator = np.random.default_rng(2)
    # One table of combinations that have nothing in common: the summary of one does not depend on the others.
    scores = np.concatenate([kind.draw(generator, (cases, 1, kind.repeats)) for _ in range(batches)], axis=1)
    summaries = summarise(_table(kind, scores, [str(number) for number in range(batches)])).values()
    return _share(one.interval is not None and one.interval.low <= kind.mean <= one.interval.high for one in summaries)


def false_regressions(comparisons: Sequence[Comparison], drop: float) -> float:
    """How often a drop is called larger than it is."""
    return _share(regression(one, drop).outcome is GateOutcome.REGRESSION for one in comparisons)


def false_proofs(comparisons: Sequence[Comparison], drop: float) -> float:
    """How often a drop is called smaller than it is."""
    return _share(non_inferior(one, drop).outcome is GateOutcome.FINE for one in comparisons)


def _share(outcomes: Iterable[bool]) -> float:
    return float(np.mean([*outcomes]))


COLUMNS = ("A/A", "A/A × 5", "found", "mean in", "diff. in", "effect in")


def figures(kind: Kind, batches: int, cases: int) -> list[float]:
    """The figures of one line of the table."""
    effect = half_a_deviation(kind)
    same = compared(kind, batches=batches, cases=cases)
    worse = compared(kind, batches=batches, cases=cases, drop=effect)
    return [
        winners(same),
        winners(compared(kind, batches=batches, cases=cases, candidates=5), candidates=5),
        found(worse, Finding.WORSE),
        means_covered(kind, batches=batches, cases=cases),
        differences_covered(same),
        effects_covered(kind, worse, effect),
    ]


def report(batches: int) -> Iterator[str]:
    """Yield the tables, a line a kind of score and number of cases."""
    yield f"{batches} batches each. A/A: any winner among combinations that are the same, with one or five candidates."
    yield "found: a drop of half a standard deviation of the differences. in: intervals that hold the truth,"
    yield "of a mean, of no difference, and of the drop."
    yield f"{'scores':12}{'cases':>6}" + "".join(f"{column:>10}" for column in COLUMNS)
    for kind in (*KINDS, *MORE_KINDS, UNDECLARED):
        for cases in (8, 20, 80) if kind is LOGNORMAL else (20, 80):
            yield f"{kind.name:12}{cases:>6}" + "".join(f"{share:>10.1%}" for share in figures(kind, batches, cases))
    yield "\nAny winner among 520 comparisons (20 candidates, 26 metrics of all kinds) that are the same:"
    for cases in (20, 80):
        yield f"{'family':12}{cases:>6}{family_winners(batches=batches, cases=cases):>10.1%}"


if __name__ == "__main__":
    for line in report(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
