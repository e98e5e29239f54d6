"""Usage: what a node reports about a model call."""

from __future__ import annotations

import math
from typing import Any

import pytest

from wtb.domain.errors import InvalidInput
from wtb.domain.figures import Usage


@pytest.mark.parametrize(
    "given",
    [
        {"cost_usd": math.nan},
        {"cost_usd": math.inf},
        {"cost_usd": -0.1},
        {"input_tokens": -1},
        {"output_tokens": math.nan},
    ],
    ids=str,
)
def test_usage_that_is_no_finite_number_or_negative_is_refused(given: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"model": None, "input_tokens": 1, "output_tokens": 1, "cost_usd": 0.1, **given}
    with pytest.raises(InvalidInput, match="usage must be finite numbers"):
        Usage.reported(lambda *_: None, **asked)
