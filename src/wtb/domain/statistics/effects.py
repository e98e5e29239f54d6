"""Effects: the effect of each variant of a node on a metric, averaged over the variants of all other nodes.

A batch over a grid has many combinations, and each is compared with the baseline separately. Effects use all of them at
once. For every case, the effect of a variant is its score minus the score of the node's default, averaged over all
settings of the other nodes. The interaction of two variants is the change that one makes to the effect of the other.

If not every combination has run, effects are estimated by least squares within each case. An effect that the
combinations cannot tell apart from others is refused, with the names of those others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from wtb.domain.display import Display, Displayed, DisplayTable, counted, signed_figure
from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import Errors, Metric, ScoreTable, mean_of
from wtb.domain.statistics.comparisons import ALPHA, SEED
from wtb.domain.statistics.differences import unit_means
from wtb.domain.statistics.intervals import Interval, Method, Sample
from wtb.domain.statistics.resampling import Array, Columns, highest_reach, step_down
from wtb.domain.statistics.verdicts import Finding

Factor = tuple[str, str]
"""A node and one of its variants."""

Settings = Mapping[str, Mapping[str, str]]
"""The variant of every varied node, by the name of the combination."""

_EXACT = 1e-9
_NOISE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantEffect:
    """The effect of one variant, or the interaction of two, on a metric.

    `difference` is in units of the metric. `interval` and `p_value` hold for all effects of the metric together.
    `units` counts the cases, or clusters of cases, that it was measured on.
    """

    metric: Metric
    factors: tuple[Factor, ...]
    difference: float
    interval: Interval | None
    p_value: float
    units: int
    means: tuple[float, ...] = ()
    """Of an interaction: the mean score with neither variant, with the first, with the second, and with both."""

    @property
    def is_interaction(self) -> bool:
        """Whether it is about two variants together."""
        return len(self.factors) > 1

    @property
    def name(self) -> str:
        """The variant as a person writes it: `answer=long`, or `answer=long × retrieve=dense`."""
        return _name(self.factors)

    @property
    def is_shown(self) -> bool:
        """Whether the data show an effect, at 5 % over all effects of the metric."""
        return self.p_value <= ALPHA and self.difference != 0

    @property
    def gain(self) -> float:
        """The difference, positive where the metric gets better."""
        return self.difference * self.metric.direction.sign

    @property
    def finding(self) -> Finding:
        """Whether the variant is shown to be better or worse than the default."""
        if not self.is_shown:
            return Finding.NO_EVIDENCE
        return Finding.BETTER if self.gain > 0 else Finding.WORSE


@dataclass(frozen=True, slots=True, kw_only=True)
class Confounded:
    """An effect that these combinations cannot tell apart from others."""

    factors: tuple[Factor, ...]
    with_: tuple[str, ...]

    @property
    def name(self) -> str:
        """The effect that cannot be estimated."""
        return _name(self.factors)


@dataclass(frozen=True, kw_only=True)
class VariantEffects(Displayed):
    """The effects of all variants on one metric.

    `is_complete` says whether every combination of the variants has run on every case. Otherwise the effects of single
    variants assume that variants do not interact.
    """

    metric: Metric
    defaults: Mapping[str, str]
    main: tuple[VariantEffect, ...]
    interactions: tuple[VariantEffect, ...]
    confounded: tuple[Confounded, ...]
    is_complete: bool

    def _display(self) -> Display:
        rows = [_row(each) for each in (*self.ranked, *(each for each in self.interactions if each.is_shown))]
        headings = ("variant", "effect", "difference", "95 % interval", "p", "cases")
        left_out = len(self.ranked) + len(self.interactions) - len(rows)
        lines = (f"{counted(left_out, 'interaction')} of two variants not shown to be there",) if left_out else ()
        return Display(title=self.sentence(), tables=(DisplayTable.of(headings, rows),), lines=lines)

    def of(self, node: str) -> tuple[VariantEffect, ...]:
        """Return the effects of a node's variants."""
        return tuple(effect for effect in self.main if effect.factors[0][0] == node)

    @property
    def ranked(self) -> tuple[VariantEffect, ...]:
        """The effects of single variants, those of the node that matters most first."""
        return tuple(effect for node in self.nodes for effect in self.of(node))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The varied nodes, those that matter most first: by their largest shown effect, then by their largest."""
        return tuple(sorted(self.defaults, key=lambda node: _weight(self.of(node)), reverse=True))

    def sentence(self, prices: Sequence[VariantEffects] = ()) -> str:
        """Say in one sentence which nodes matter for the metric, and what those cost that show no effect."""
        shown = [node for node in self.nodes if any(effect.is_shown for effect in self.of(node))]
        silent = [node for node in self.nodes if self.of(node) and node not in shown]
        parts = []
        if shown:
            first, *rest = [f"`{node}`" for node in shown]
            parts.append(f"{first} matters most" + (f", then {', '.join(rest)}" if rest else ""))
        for node in silent:
            costs = [cost for price in prices if (cost := price.cost_of(node))]
            parts.append(f"`{node}` shows no effect" + (f" and costs {' and '.join(costs)}" if costs else ""))
        return f"On {self.metric.name}: " + ("; ".join(parts) or "no effect can be estimated") + "."

    def cost_of(self, node: str) -> str:
        """Return the largest shown loss on this metric that a variant of the node brings; nothing if there is none."""
        worst = min((effect for effect in self.of(node) if effect.is_shown), key=lambda each: each.gain, default=None)
        if worst is None or worst.gain >= 0:
            return ""
        match self.metric.name:
            case "latency_s":
                return f"{-worst.gain * 1_000:.2g} ms"
            case "cost_usd":
                return f"${-worst.gain:.2g}"
            case name:
                return f"{-worst.gain:.2g} {name}"


def _row(effect: VariantEffect) -> tuple[str, ...]:
    ends = [effect.interval.low, effect.interval.high] if effect.interval else []
    return (
        effect.name,
        "interaction" if effect.is_interaction else effect.finding.value,
        signed_figure(effect.difference),
        " to ".join(map(signed_figure, ends)),
        f"{effect.p_value:.3g}",
        f"{effect.units:,}",
    )


def effects(
    table: ScoreTable,
    settings: Settings,
    defaults: Mapping[str, str],
    *,
    errors: Errors = Errors.WORST,
    seed: int = SEED,
) -> VariantEffects:
    """Estimate the effect of every variant on a metric, and the interaction of every two variants of two nodes.

    All are tested together: joint sign flips of cases or clusters with step-down maxT. A failed run counts as the worst
    score; on a metric without one, a case in which one side fails more often is lost by the largest difference.
    """
    if not defaults:
        raise InvalidInput("no node of this batch has more than one variant, so there are no effects to tell apart")
    design = _Design.of(settings, defaults)
    means = {name: table.case_means(name, errors) for name in settings}
    single, pairs = design.singles(), design.pairs()
    found: list[tuple[tuple[Factor, ...], dict[str, float]]] = []
    confounded: list[Confounded] = []
    for terms, model in ((single, single), (pairs, (*single, *pairs))):
        aliases = design.aliases(model)
        confounded += [Confounded(factors=term, with_=aliases[term]) for term in terms if term in aliases]
        clear = [term for term in terms if term not in aliases]
        found += _by_unit(table, means, _Contrasts(design, model, clear), errors).items()
    estimated = _estimated(table, [each for each in found if each[1]], seed)
    return VariantEffects(
        metric=table.metric,
        defaults=dict(defaults),
        main=tuple(effect for effect in estimated if not effect.is_interaction),
        interactions=tuple(
            replace(effect, means=_means(means, settings, defaults, effect.factors))
            for effect in estimated
            if effect.is_interaction
        ),
        confounded=tuple(confounded),
        is_complete=design.is_complete and all(len(own) == len(table.cases) for own in means.values()),
    )


@dataclass(frozen=True, kw_only=True)
class _Design:
    """The variant of each node in each combination, as columns of zeros and ones."""

    names: tuple[str, ...]
    settings: Settings
    factors: tuple[Factor, ...]

    @classmethod
    def of(cls, settings: Settings, defaults: Mapping[str, str]) -> _Design:
        used = {node: dict.fromkeys(chosen[node] for chosen in settings.values()) for node in defaults}
        factors = tuple((node, name) for node in defaults for name in used[node] if name != defaults[node])
        return cls(names=tuple(settings), settings=settings, factors=factors)

    @property
    def is_complete(self) -> bool:
        """Whether it has every combination of the variants."""
        sizes = [1 + sum(node == each for each, _ in self.factors) for node in {node for node, _ in self.factors}]
        return math.prod(sizes) == len({tuple(sorted(chosen.items())) for chosen in self.settings.values()})

    def singles(self) -> tuple[tuple[Factor, ...], ...]:
        return tuple((factor,) for factor in self.factors)

    def pairs(self) -> tuple[tuple[Factor, ...], ...]:
        return tuple(pair for pair in combinations(self.factors, 2) if pair[0][0] != pair[1][0])

    def matrix(self, terms: Sequence[tuple[Factor, ...]], names: Sequence[str]) -> Array:
        """Return a row per combination and a column per term, after a column of ones for the case itself."""
        rows = [
            [1.0, *(all(self.settings[name][node] == variant for node, variant in term) for term in terms)]
            for name in names
        ]
        return np.array(rows, dtype=np.float64).reshape(len(names), len(terms) + 1)

    def aliases(self, terms: Sequence[tuple[Factor, ...]]) -> dict[tuple[Factor, ...], tuple[str, ...]]:
        """Return the terms that cannot be estimated, each with the names of the terms that it is confounded with."""
        nulls = _null_space(self.matrix(terms, self.names))
        found = {}
        for index, term in enumerate(terms, start=1):
            mixed = nulls[:, np.abs(nulls[index]) > _EXACT]
            if mixed.size:
                others = np.flatnonzero(np.abs(mixed).max(axis=1) > _EXACT).tolist()
                found[term] = tuple(_name(terms[other - 1]) for other in others if other not in (0, index))
        return found


def _null_space(matrix: Array) -> Array:
    """Return the directions, as columns, in which coefficients can move without changing a fitted score."""
    _, sizes, rows = np.linalg.svd(matrix, full_matrices=True)
    rank = int((sizes > _EXACT * max(matrix.shape)).sum())
    return np.asarray(rows[rank:].T, dtype=np.float64)


class _Contrasts:
    """The weight of each combination in each effect, for the combinations that a case has run."""

    def __init__(
        self, design: _Design, model: Sequence[tuple[Factor, ...]], terms: Sequence[tuple[Factor, ...]]
    ) -> None:
        self.design = design
        self.terms = terms
        self._model = model
        self._known: dict[tuple[str, ...], dict[tuple[Factor, ...], Array]] = {}

    def of(self, names: tuple[str, ...]) -> Mapping[tuple[Factor, ...], Array]:
        """Return the effects that these combinations can tell apart; most cases have run the same ones."""
        if names not in self._known:
            self._known[names] = dict(self._made(names)) if names else {}
        return self._known[names]

    def _made(self, names: Sequence[str]) -> Iterator[tuple[tuple[Factor, ...], Array]]:
        matrix = self.design.matrix(self._model, names)
        nulls, inverse = _null_space(matrix), np.linalg.pinv(matrix)
        for index, term in enumerate(self._model, start=1):
            if term in self.terms and not (np.abs(nulls[index]) > _EXACT).any():
                yield term, inverse[index]


def _by_unit(
    table: ScoreTable, means: Mapping[str, Mapping[str, float]], contrasts: _Contrasts, errors: Errors
) -> dict[tuple[Factor, ...], dict[str, float]]:
    """Return each effect on each unit that has run enough combinations to estimate it."""
    by_case: dict[tuple[Factor, ...], dict[str, float]] = {term: {} for term in contrasts.terms}
    lost = _lost(table, contrasts, errors)
    for case in table.cases:
        run = tuple(name for name in contrasts.design.names if case in means[name])
        scores = np.array([means[name][case] for name in run])
        for term, contrast in contrasts.of(run).items():
            value = float(contrast @ scores)
            by_case[term][case] = value if abs(value) > _NOISE * float(np.abs(scores).max()) else 0.0
    return {term: unit_means(_with_lost(found, lost[term]), table.clusters) for term, found in by_case.items()}


def _lost(table: ScoreTable, contrasts: _Contrasts, errors: Errors) -> dict[tuple[Factor, ...], dict[str, int]]:
    """Return the cases that failed runs decide, on a metric without a worst score, with the side that each favours."""
    found: dict[tuple[Factor, ...], dict[str, int]] = {term: {} for term in contrasts.terms}
    if errors is Errors.DROP or table.metric.worst is not None:
        return found
    failed = {name: table.failed(name) for name in contrasts.design.names}
    for case in table.cases:
        run = tuple(name for name in contrasts.design.names if case in failed[name])
        shares = np.array([failed[name][case] for name in run])
        if not shares.any():
            continue
        for term, contrast in contrasts.of(run).items():
            more = float(contrast @ shares)
            if abs(more) > _EXACT:
                found[term][case] = -table.metric.direction.sign * (1 if more > 0 else -1)
    return found


def _with_lost(by_case: Mapping[str, float], lost: Mapping[str, int]) -> dict[str, float]:
    largest = max((abs(value) for case, value in by_case.items() if case not in lost), default=0.0) or 1.0
    return {**by_case, **{case: side * largest for case, side in lost.items()}}


def _estimated(
    table: ScoreTable, found: Sequence[tuple[tuple[Factor, ...], Mapping[str, float]]], seed: int
) -> list[VariantEffect]:
    if not found:
        return []
    units = {unit: row for row, unit in enumerate(sorted({unit for _, own in found for unit in own}))}
    values: Array = np.zeros((len(units), len(found)))
    for column, (_, own) in enumerate(found):
        values[[units[unit] for unit in own], column] = list(own.values())
    columns = Columns(values=values, slack=np.abs(values).sum(axis=0) * _NOISE)
    p_values = step_down(columns, seed=seed)
    reach = highest_reach(_centred(values, found, units), ALPHA, seed=seed)
    return [
        _effect(table, factors, np.fromiter(own.values(), dtype=np.float64), p_value, reach)
        for (factors, own), p_value in zip(found, p_values, strict=True)
    ]


def _centred(
    values: Array, found: Sequence[tuple[tuple[Factor, ...], Mapping[str, float]]], units: Mapping[str, int]
) -> Array:
    centred = values.copy()
    for column, (_, own) in enumerate(found):
        rows = [units[unit] for unit in own]
        centred[rows, column] -= centred[rows, column].mean()
    return centred


def _effect(
    table: ScoreTable, factors: tuple[Factor, ...], values: Array, p_value: float, reach: float
) -> VariantEffect:
    total = math.fsum(values)
    difference = total / values.size if abs(total) > _NOISE * float(np.abs(values).sum()) else 0.0
    most = 2.0 ** (len(factors) - 1)  # an interaction is a difference of differences
    interval = _interval(Sample.of_differences(values, _times(table.ends(), most)), difference, reach)
    if interval is not None and (p_value > ALPHA or not difference):
        interval = interval.hull(Interval(0.0, 0.0))
    elif interval is not None and interval.holds(0):  # the test is sharper than the interval: 0 is ruled out
        interval = Interval(0.0, interval.high) if difference > 0 else Interval(interval.low, 0.0)
    return VariantEffect(
        metric=table.metric,
        factors=factors,
        difference=difference,
        interval=interval and interval.within(_largest(table.limits(), most)),
        p_value=p_value,
        units=values.size,
    )


def _interval(sample: Sample, centre: float, reach: float) -> Interval | None:
    """Return the means that the joint sign-flip test does not reject; None if there are too few units for that.

    With few units this could be narrower than the interval of one comparison alone. Because it holds for all effects
    together, it is made at least as wide as that one.
    """
    method = sample.method()
    values = np.append(sample.values, sample.pseudo) if method is Method.PSEUDO_CASES else sample.values
    if method is Method.NONE or values.size <= reach**2:
        return None
    half = reach * math.sqrt(float(values.var()) / (values.size - reach**2))
    return Interval(centre - half, centre + half).hull(sample.student(1 - ALPHA))


def _times(ends: tuple[float, float] | None, factor: float) -> tuple[float, float] | None:
    return ends and (ends[0] * factor, ends[1] * factor)


def _largest(limits: tuple[float, float], factor: float) -> tuple[float, float]:
    """Return the largest loss and the largest gain that the scale allows."""
    span = (limits[1] - limits[0]) * factor
    return -span, span


def _means(
    means: Mapping[str, Mapping[str, float]],
    settings: Settings,
    defaults: Mapping[str, str],
    factors: Sequence[Factor],
) -> tuple[float, ...]:
    """Return the mean over all combinations with neither variant, with one of them, and with both."""
    (first, variant), (second, other) = factors
    wanted = [(a, b) for b in (defaults[second], other) for a in (defaults[first], variant)]
    found = []
    for chosen in wanted:
        names = [name for name, own in settings.items() if (own[first], own[second]) == chosen]
        found.append([score for name in names for score in means[name].values()])
    return tuple(mean_of(scores) for scores in found) if all(found) else ()


def _weight(found: Sequence[VariantEffect]) -> tuple[float, float]:
    return (
        max((abs(effect.difference) for effect in found if effect.is_shown), default=0.0),
        max((abs(effect.difference) for effect in found), default=0.0),
    )


def _name(factors: Sequence[Factor]) -> str:
    return " × ".join(f"{node}={variant}" for node, variant in factors)
