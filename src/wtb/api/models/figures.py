"""Numbers that JSON can hold, and the figures of runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field

from wtb.api.models.base import AnswerModel
from wtb.domain.figures import Usage
from wtb.domain.spending import Spent


def finite(value: Any) -> Any:
    """Return a number, or None for one that JSON cannot hold."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def plain(value: Any) -> Any:
    """Return stored JSON data without numbers and texts that JSON cannot hold."""
    if isinstance(value, Mapping):
        return {plain_text(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return plain_text(value) if isinstance(value, str) else finite(value)


def plain_text(text: str) -> str:
    """Return a text that UTF-8 can hold; half a character becomes an escape."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


PlainData = Annotated[dict[str, Any], BeforeValidator(plain)]
"""Data with texts that came from users or from their code."""

Number = Annotated[float | None, BeforeValidator(finite)]
"""A number; null if it is infinite or not a number."""

PlainText = Annotated[str, BeforeValidator(lambda value: plain_text(value) if isinstance(value, str) else value)]
"""A text that came from users or from their code."""


class UsageAnswer(AnswerModel):
    """Tokens and money."""

    input_tokens: int = Field(examples=[1200])
    output_tokens: int = Field(examples=[80])
    cost_usd: Number = Field(examples=[0.0042])
    models: list[PlainText] = Field(description="The models that were used.", examples=[["gpt-5"]])
    unpriced: list[PlainText] = Field(description="Models without a known price; `cost_usd` leaves them out.")

    @classmethod
    def of(cls, usage: Usage) -> Self:
        """Return usage as an answer."""
        return cls(**usage.totals(), models=list(usage.models), unpriced=list(usage.unpriced))


class SpentAnswer(AnswerModel):
    """Money, tokens and seconds that a batch used."""

    usd: Number
    tokens: int
    s: Number

    @classmethod
    def of(cls, spent: Spent) -> Self:
        """Return spending as an answer."""
        return cls(usd=spent.usd, tokens=int(spent.tokens), s=spent.s)
