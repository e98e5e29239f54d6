"""Simulated gates whose truth is known: harmless edits that do not pass, drops that are found, proofs that are wrong.

`python -m tests.statistics.simulate_gate [BATCHES]` prints the table of docs/verdict-rates.md;
the tests hold it to bounds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from unittest.mock import patch

import numpy as np

from tests.statistics.simulate import BINARY, LOGNORMAL, NORMAL, REPEATED, TIED, Array, Generator, Kind
from wtb.domain.evaluation import Metric, ScoreTable
from wtb.domain.statistics import gate_bounds
from wtb.domain.statistics.comparisons import Comparison, compare
from wtb.domain.statistics.gate import Gate, GateOutcome, non_inferior, regression

SIZES = (8, 20, 80)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """An edit of a workflow: a kind of score, how often the baseline and the candidate were run, and the margin.

    `margin` is the drop at the edge, at which a proof of less is wrong; `in_percent` says that scores are positive.
    """

    name: str
    kind: Kind
    margin: float
    in_percent: bool = True
    runs: tuple[int, int] = (1, 1)


def _f1_that_rarely_fails(generator: Generator, shape: tuple[int, int, int]) -> Array:
    """F1 scores between 0.7 and 1, of which half are 1; the runs of a case differ little."""
    easy = generator.random((shape[0], 1, 1)) < 0.5
    return np.where(easy, 1.0, 0.7 + 0.28 * generator.random((shape[0], 1, 1)) + 0.02 * generator.random(shape))


RARE = Kind(
    name="F1, rare failures",
    metric=Metric(name="f1", worst=0.0, best=1.0),
    mean=0.925,
    repeats=1,
    draw=_f1_that_rarely_fails,
    worsen=BINARY.worsen,
)


def _deviation(kind: Kind, runs: tuple[int, int]) -> float:
    """The standard deviation of the difference between two combinations in one case."""
    scores = kind.draw(np.random.default_rng(0), (100_000, 2, max(runs)))
    return float(np.std(scores[:, 1, : runs[1]].mean(axis=1) - scores[:, 0, : runs[0]].mean(axis=1)))


def _edit(name: str, kind: Kind, *, in_percent: bool = True, runs: tuple[int, int] = (1, 1)) -> Edit:
    return Edit(name=name, kind=kind, margin=_deviation(kind, runs) / 4, in_percent=in_percent, runs=runs)


EDITS = (
    _edit("bell-shaped, 3 repeats", NORMAL, in_percent=False, runs=(3, 3)),
    _edit("skewed (lognormal)", LOGNORMAL),
    _edit("skewed, baseline of 3 batches", LOGNORMAL, runs=(3, 1)),
    _edit("right or wrong", BINARY),
    _edit("right or wrong, 3 repeats", REPEATED, runs=(3, 3)),
    _edit("right or wrong, baseline of 3 batches", BINARY, runs=(3, 1)),
    _edit("two of three cases tied", TIED),
    Edit(name="F1, 2.2 % rare failures, margin 0.02", kind=RARE, margin=0.02),
)


def compared(edit: Edit, *, batches: int, cases: int, drop: float, seed: int = 1) -> tuple[Comparison, ...]:
    """Compare candidates that are worse than their baseline by `drop` on average."""
    return compare(_tables(edit, batches, cases, drop, seed), "baseline")


def _tables(edit: Edit, batches: int, cases: int, drop: float, seed: int) -> Iterator[ScoreTable]:
    generator, kind = np.random.default_rng(seed), edit.kind
    for _ in range(batches):
        scores = kind.draw(generator, (cases, 2, max(edit.runs)))
        new = kind.worsen(generator, scores[:, 1, : edit.runs[1]], drop / kind.mean)
        sides = {"baseline": scores[:, 0, : edit.runs[0]], "candidate": new}
        yield ScoreTable(
            metric=kind.metric,
            combinations={
                name: {str(case): runs for case, runs in enumerate(side.tolist())} for name, side in sides.items()
            },
        )


def share(gates: Iterable[Gate], *outcomes: GateOutcome) -> float:
    """How often a gate says one of these."""
    return float(np.mean([gate.outcome in outcomes for gate in gates]))


def not_fine(comparisons: Sequence[Comparison]) -> float:
    """How often a gate with its defaults does not pass."""
    return share(map(regression, comparisons), GateOutcome.REGRESSION, GateOutcome.INCONCLUSIVE)


def any_drop_seen(comparisons: Sequence[Comparison]) -> float:
    """How often a gate would not pass that passes only where no drop was seen."""
    return float(np.mean([gate.drop is None or gate.drop > 0 for gate in map(regression, comparisons)]))


def proven(comparisons: Sequence[Comparison], margin: float | str) -> float:
    """How often less than the margin is proven."""
    return share((non_inferior(one, margin) for one in comparisons), GateOutcome.FINE)


def proven_by_bounds(comparisons: Sequence[Comparison], margin: float) -> float:
    """How often the interval of the comparison alone would prove it, whatever the scale."""
    return float(np.mean([one.bounds is not None and _most(one.metric, one) < margin for one in comparisons]))


def _most(metric: Metric, comparison: Comparison) -> float:
    assert comparison.bounds is not None
    return -comparison.bounds.low if metric.direction.sign > 0 else comparison.bounds.high


def percent(edit: Edit) -> str:
    """The margin as a share of the baseline's mean."""
    return f"{100 * edit.margin / edit.kind.mean}%"


@contextmanager
def draws_kept(draws: int = 9_999) -> Iterator[None]:
    """Keep random draws, which are the same for as many cases: making them takes most of the time of a gate."""
    make = gate_bounds._blocks

    @lru_cache(maxsize=4)
    def kept(width: int, draw: Callable[[Generator, tuple[int, int]], Array]) -> list[Array]:
        return [*make(width, draw)]

    with patch.multiple(gate_bounds, _blocks=kept, _DRAWS=draws):
        yield


def figures(edit: Edit, batches: int, cases: int) -> list[float | None]:
    """The figures of one line of the table."""
    harmless = compared(edit, batches=batches, cases=cases, drop=0.0)
    edge = compared(edit, batches=batches, cases=cases, drop=edit.margin, seed=2)
    larger = compared(edit, batches=batches, cases=cases, drop=2 * edit.margin, seed=3)
    return [
        not_fine(harmless),
        any_drop_seen(harmless),
        share(map(regression, edge), GateOutcome.REGRESSION),
        share(map(regression, larger), GateOutcome.REGRESSION),
        share((regression(one, edit.margin) for one in edge), GateOutcome.REGRESSION),
        proven(edge, edit.margin),
        proven_by_bounds(edge, edit.margin),
        proven(edge, percent(edit)) if edit.in_percent else None,
        proven(harmless, 2 * edit.margin),
    ]


COLUMNS = (
    "scores",
    "cases",
    "harmless, not fine",
    "harmless, a drop seen",
    "drop d found",
    "drop 2d found",
    "wrongly fails at d",
    "wrongly proven at d",
    "by the interval alone",
    "wrongly proven at d in percent",
    "harmless, proven at 2d",
)


def report(batches: int) -> Iterator[str]:
    """Yield the table in Markdown, a line a kind of edit and number of cases."""
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|---" * len(COLUMNS) + "|"
    for edit in EDITS:
        for cases in SIZES:
            shown = (
                "–" if each is None else f"{each:.1%}".replace("%", " %") for each in figures(edit, batches, cases)
            )
            yield f"| {edit.name} (d = {edit.margin:.3f}) | {cases} | {' | '.join(shown)} |"


if __name__ == "__main__":
    with draws_kept():
        for line in report(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000):
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
