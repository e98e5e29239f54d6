"""Checks of the amounts that users give: seconds, gigabytes, processors."""

from __future__ import annotations

import math


def is_amount(value: object) -> bool:
    """Whether this is a finite number, 0 or more. Infinity cannot be stored as JSON, and no comparison refuses NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def is_positive(value: object) -> bool:
    """Whether this is an amount above 0."""
    return is_amount(value) and value != 0
