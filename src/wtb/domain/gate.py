"""Gates: whether a candidate may take the baseline's place, for a CI job; `wtb gate` exits with 0, 5 or 4."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from wtb.domain.errors import InvalidInput
from wtb.domain.statistics import Comparison


class Outcome(StrEnum):
    """What a gate says."""

    FINE = "fine"
    INCONCLUSIVE = "inconclusive"
    REGRESSION = "regression"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The outcome, and the drop on which it was decided: positive is worse, in units of the metric.

    With 95 % confidence the true drop is at least `at_least`; with 95 % confidence it is at most `at_most`.
    """

    outcome: Outcome
    allowed: float
    drop: float | None
    at_least: float | None
    at_most: float | None


def regression(comparison: Comparison, max_drop: float = 0.0) -> Gate:
    """Ask whether the candidate lost more than `max_drop` against the baseline; pass unless the scores point to it.

    - regression: a one-sided test at 5 % says that the true drop is larger than allowed (`at_least` > `max_drop`). When
      the true drop is just what is allowed, about 1 batch in 20 fails like this by chance.
    - fine: the drop that was seen is not larger than allowed. That is no proof; for one use `non_inferior`.
    - inconclusive: the drop that was seen is larger than allowed, but may be chance: run more cases. Also when there is
      no case to compare.
    """
    drop, at_least, at_most = _drops(comparison, max_drop)
    outcome = Outcome.INCONCLUSIVE
    if at_least is not None and at_least > max_drop:
        outcome = Outcome.REGRESSION
    elif drop is not None and drop <= max_drop:
        outcome = Outcome.FINE
    return Gate(outcome=outcome, allowed=max_drop, drop=drop, at_least=at_least, at_most=at_most)


def non_inferior(comparison: Comparison, margin: float) -> Gate:
    """Ask for proof that the candidate lost less than `margin` against the baseline; pass only with it.

    - fine: a one-sided test at 5 % says that the true drop is smaller than the margin (`at_most` < `margin`). When the
      true drop is just the margin, about 1 batch in 20 passes like this by chance.
    - regression: a one-sided test at 5 % says that the true drop is larger than the margin (`at_least` > `margin`).
    - inconclusive: neither is shown: run more cases, or allow a larger drop.
    """
    drop, at_least, at_most = _drops(comparison, margin)
    outcome = Outcome.INCONCLUSIVE
    if at_least is not None and at_least > margin:
        outcome = Outcome.REGRESSION
    elif at_most is not None and at_most < margin:
        outcome = Outcome.FINE
    return Gate(outcome=outcome, allowed=margin, drop=drop, at_least=at_least, at_most=at_most)


def _drops(comparison: Comparison, allowed: float) -> tuple[float | None, float | None, float | None]:
    """Return the drop that was seen, and the least and the most that it may be."""
    if not (math.isfinite(allowed) and allowed >= 0):
        raise InvalidInput(f"the drop that a gate allows is a number from 0 up, not {allowed}")
    sign = -comparison.metric.direction.sign
    drop = None if comparison.difference is None else sign * comparison.difference
    if comparison.bounds is None:
        return drop, None, None
    at_least, at_most = sorted((sign * comparison.bounds.low, sign * comparison.bounds.high))
    return drop, at_least, at_most
