"""Gates: decide whether a candidate may replace the baseline, for CI jobs; `wtb gate` exits with 0, 5 or 4."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from scipy.special import bdtrc

from wtb.domain.errors import InvalidInput
from wtb.domain.statistics.comparisons import ALPHA, Comparison
from wtb.domain.statistics.gate_bounds import Drops, drops_as_share, drops_in_units
from wtb.domain.statistics.pairing import Failures

_FEW = 5
"""With fewer cases no drop can be told from chance: four coins show the same side in more than one toss in twenty."""


class GateOutcome(StrEnum):
    """What a gate says."""

    FINE = "fine"
    INCONCLUSIVE = "inconclusive"
    REGRESSION = "regression"


class GateReason(StrEnum):
    """Why a gate says so."""

    DROP_SHOWN = "drop_shown"
    MORE_ERRORS = "more_errors"
    NOTHING_TO_COMPARE = "nothing_to_compare"
    UNFINISHED = "unfinished"
    TOO_FEW_CASES = "too_few_cases"
    NO_PROOF = "no_proof"
    NO_DROP_SHOWN = "no_drop_shown"
    PROVEN = "proven"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """How much a candidate may lose: in units of the metric, or as a share of what the baseline scored."""

    value: float
    is_share: bool = False

    def __post_init__(self) -> None:
        """Refuse values that are not an allowance."""
        if not (math.isfinite(self.value) and self.value >= 0):
            raise InvalidInput(f"max_drop must be 0 or more, or a share such as '10%', not {self.value}")

    @classmethod
    def of(cls, given: Allowance | float | str) -> Allowance:
        """Read `0.02` as units of the metric, and `"10%"` as a share."""
        if isinstance(given, Allowance):
            return given
        text = str(given).strip()
        is_share = text.endswith("%")
        try:
            value = float(text.removesuffix("%"))
        except ValueError as error:
            message = f"max_drop must be 0 or more, or a share such as '10%', not {given!r}"
            raise InvalidInput(message) from error
        return cls(value=value / 100 if is_share else value, is_share=is_share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The outcome of a gate with its reason, and the drop that decided it; a positive drop is worse.

    Drops and `allowed` are in units of the metric, or shares of the baseline if `is_share`. With 95 % confidence the
    true drop is at least `at_least`; with 95 % confidence it is at most `at_most`. `errors` counts cases with a failed
    run or a failed evaluation. `errors_p` is the chance that so many cases fail only with the candidate if both fail
    equally often. `unfinished` counts cases that the baseline has scored and the candidate has not finished.
    """

    outcome: GateOutcome
    reason: GateReason
    allowed: float
    is_share: bool
    drop: float | None
    at_least: float | None
    at_most: float | None
    errors: Failures
    max_errors: int
    errors_p: float
    unfinished: int


def regression(
    comparison: Comparison, max_drop: Allowance | float | str = 0.0, *, max_errors: int = 0, unfinished: int = 0
) -> Gate:
    """Ask whether the candidate lost more than `max_drop` against the baseline; pass unless that is shown.

    - regression: a one-sided test at 5 % says that the true drop is larger than allowed (`at_least` > `max_drop`), or
      that errors have become more frequent. When the true drop is just what is allowed, about 1 batch in 20 fails like
      this by chance.
    - inconclusive: more than `max_errors` cases fail only with the candidate, though that may be chance; cases have not
      been run; no case has scores on both sides; or fewer than 5 have, and more was lost than is allowed.
    - fine: otherwise. No drop was shown; one up to `at_most` may be there. For proof use `non_inferior`.
    """
    judged = _Judged.of(comparison, max_drop, max_errors, unfinished)
    return judged.gate(*(judged.objection() or judged.doubt() or (GateOutcome.FINE, GateReason.NO_DROP_SHOWN)))


def non_inferior(
    comparison: Comparison, margin: Allowance | float | str, *, max_errors: int = 0, unfinished: int = 0
) -> Gate:
    """Ask for proof that the candidate lost less than `margin` against the baseline; pass only with it.

    - regression: as `regression` says.
    - fine: a one-sided test at 5 % says that the true drop is smaller than the margin (`at_most` < `margin`).
    - inconclusive: neither is shown: run more cases, or allow a larger drop. Also with errors and unfinished cases.
    """
    judged = _Judged.of(comparison, margin, max_errors, unfinished)
    return judged.gate(*(judged.objection() or judged.proof()))


Judgement = tuple[GateOutcome, GateReason]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    comparison: Comparison
    allowed: Allowance
    drops: Drops
    max_errors: int
    unfinished: int

    @classmethod
    def of(cls, comparison: Comparison, allowed: Allowance | float | str, max_errors: int, unfinished: int) -> _Judged:
        if max_errors < 0:
            raise InvalidInput(f"max_errors must be a number of cases, 0 or more, not {max_errors}")
        allowance = Allowance.of(allowed)
        try:
            drops = (drops_as_share if allowance.is_share else drops_in_units)(comparison)
        except InvalidInput:
            # Failed runs score the end of the scale, which may be 0: then the gate reports the errors instead.
            if comparison.failures.candidate_only <= max_errors:
                raise
            drops = Drops(seen=None)
        return cls(comparison=comparison, allowed=allowance, drops=drops, max_errors=max_errors, unfinished=unfinished)

    def objection(self) -> Judgement | None:
        """Return the judgement that prevents a pass, for both kinds of gate; None if there is none."""
        drops, failures = self.drops, self.comparison.failures
        too_many = failures.candidate_only > self.max_errors
        if too_many and errors_p(failures) <= ALPHA:
            return GateOutcome.REGRESSION, GateReason.MORE_ERRORS
        if drops.at_least is not None and drops.at_least > self.allowed.value:
            return GateOutcome.REGRESSION, GateReason.DROP_SHOWN
        if too_many:
            return GateOutcome.INCONCLUSIVE, GateReason.MORE_ERRORS
        if drops.seen is None or self.comparison.pairs <= failures.both:
            return GateOutcome.INCONCLUSIVE, GateReason.NOTHING_TO_COMPARE
        return (GateOutcome.INCONCLUSIVE, GateReason.UNFINISHED) if self.unfinished else None

    def doubt(self) -> Judgement | None:
        """Return a judgement if there are too few cases to tell the observed drop from chance; otherwise None."""
        can_tell = self.comparison.pairs >= _FEW and self.drops.at_least is not None
        if can_tell or self.drops.seen is None or self.drops.seen <= self.allowed.value:
            return None
        return GateOutcome.INCONCLUSIVE, GateReason.TOO_FEW_CASES

    def proof(self) -> Judgement:
        if self.drops.at_most is not None and self.drops.at_most < self.allowed.value:
            return GateOutcome.FINE, GateReason.PROVEN
        return GateOutcome.INCONCLUSIVE, GateReason.NO_PROOF

    def gate(self, outcome: GateOutcome, reason: GateReason) -> Gate:
        return Gate(
            outcome=outcome,
            reason=reason,
            allowed=self.allowed.value,
            is_share=self.allowed.is_share,
            drop=self.drops.seen,
            at_least=self.drops.at_least,
            at_most=self.drops.at_most,
            errors=self.comparison.failures,
            max_errors=self.max_errors,
            errors_p=errors_p(self.comparison.failures),
            unfinished=self.unfinished,
        )


def errors_p(failures: Failures) -> float:
    """Return the chance that as many or more cases fail only with the candidate, if both fail equally often."""
    one_sided = failures.candidate_only + failures.baseline_only
    return float(bdtrc(failures.candidate_only - 1, one_sided, 0.5)) if failures.candidate_only else 1.0
