"""Agreement: how well a judge's scores agree with people's scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The agreement of a judge with people.

    `kappa` is Cohen's kappa with quadratic weights: 1 is perfect, 0 is what chance gives. It is None if there are fewer
    than two labelled scores, or if all scores and labels are the same.
    """

    scores: int
    """Scores that have a label."""
    unlabelled: int
    """Scores without a label."""
    failed: int
    """Labels for which the judge gave no score; they are in no figure below."""
    exact: float | None
    """The share of scores that equal the label."""
    mean_difference: float | None
    """By how much the judge is higher than people, on average."""
    mean_error: float | None
    """How far the judge is from people, on average, in either direction."""
    kappa: float | None


def agreement_of(pairs: Iterable[tuple[float | None, float | None]]) -> Agreement:
    """Return the agreement of scores with labels; either may be missing."""
    given = list(pairs)
    both = [(score, label) for score, label in given if score is not None and label is not None]
    differences = [score - label for score, label in both]
    return Agreement(
        scores=len(both),
        unlabelled=sum(score is not None and label is None for score, label in given),
        failed=sum(score is None and label is not None for score, label in given),
        exact=_mean([float(difference == 0) for difference in differences]),
        mean_difference=_mean(differences),
        mean_error=_mean([abs(difference) for difference in differences]),
        kappa=_kappa(both),
    )


def _mean(numbers: Sequence[float]) -> float | None:
    return math.fsum(numbers) / len(numbers) if numbers else None


def _kappa(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return 1 minus the squared disagreement divided by that of independent scores with the same frequencies."""
    if len(pairs) < 2:
        return None
    count = len(pairs)
    seen = math.fsum((score - label) ** 2 for score, label in pairs) / count
    scores, labels = [score for score, _ in pairs], [label for _, label in pairs]
    by_chance = math.fsum((score - label) ** 2 for score in scores for label in labels) / count**2
    return None if by_chance == 0 else 1 - seen / by_chance
