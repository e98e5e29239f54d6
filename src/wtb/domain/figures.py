"""Usage and Figures: the tokens, money and time of a node run, including its failed attempts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wtb.domain.errors import InvalidInput

Price = Callable[[str, int, int], float | None]
"""The price of a model for input and output tokens, in dollars; None if it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens and money that nodes reported."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    models: tuple[str, ...] = ()
    unpriced: tuple[str, ...] = ()
    """Models without a known price: `cost_usd` does not include them."""

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Usage:
        """Read what `to_data` returned."""
        return cls(
            input_tokens=data.get("input_tokens", 0),
            output_tokens=data.get("output_tokens", 0),
            cost_usd=data.get("cost_usd", 0.0),
            models=tuple(data.get("models", ())),
            unpriced=tuple(data.get("unpriced", ())),
        )

    def to_data(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            **self.totals(),
            "models": list(self.models),
            **({"unpriced": list(self.unpriced)} if self.unpriced else {}),
        }

    def totals(self) -> dict[str, float]:
        """Return the numbers without the names of models."""
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost_usd": self.cost_usd,
        }

    def __add__(self, other: Usage) -> Usage:
        """Return both together."""
        if self is NOTHING or other is NOTHING:
            return other if self is NOTHING else self
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=self.cost_usd + other.cost_usd,
            models=_merged(self.models, other.models),
            unpriced=_merged(self.unpriced, other.unpriced),
        )

    @classmethod
    def reported(
        cls, price: Price, *, model: str | None, input_tokens: int, output_tokens: int, cost_usd: float | None
    ) -> Usage:
        """Return the usage of one model call; a model without a known price is never treated as free."""
        given = (input_tokens, output_tokens, cost_usd or 0.0)
        if not all(math.isfinite(each) and each >= 0 for each in given):
            raise InvalidInput(f"usage must be finite numbers that are not negative, not {given}")
        unpriced: tuple[str, ...] = ()
        if cost_usd is None and input_tokens + output_tokens:
            cost_usd = None if model is None else price(model, input_tokens, output_tokens)
            unpriced = () if cost_usd is not None else (model or "a model without a name",)
        return cls(
            input_tokens=int(input_tokens),
            output_tokens=int(output_tokens),
            cost_usd=float(cost_usd or 0.0),
            models=() if model is None else (model,),
            unpriced=unpriced,
        )


NOTHING = Usage()
"""The usage of a node that reported none."""


def _merged(names: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return names if names == more else tuple(sorted({*names, *more}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The time and usage of one node run, which a run sums along its line.

    `ms` and `usage` cover the attempt that succeeded, plus the recorded calls of earlier attempts whose results it
    reused. `spent` covers all attempts, failed ones included, and counts nothing twice; budgets use it. A shared result
    spent nothing here, and has the figures of the node run that made it.
    """

    ms: float = 0.0
    usage: Usage = NOTHING
    spent: Usage = NOTHING
    tool_errors: int = 0
    """Calls that failed, in all attempts."""
    is_shared: bool = False

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Figures:
        """Read what `to_data` returned."""
        usage = Usage.from_data(data["usage"]) if "usage" in data else NOTHING
        return cls(
            ms=data.get("ms", 0.0),
            usage=usage,
            spent=Usage.from_data(data["spent"]) if "spent" in data else NOTHING if data.get("shared") else usage,
            tool_errors=data.get("tool_errors", 0),
            is_shared=data.get("shared", False),
        )

    def to_data(self) -> dict[str, Any]:
        """Return it as plain JSON, without empty figures: most nodes only take time."""
        data: dict[str, Any] = {"ms": self.ms}
        if self.usage is not NOTHING:
            data["usage"] = self.usage.to_data()
        if self.is_shared:
            data["shared"] = True
        elif self.spent is not self.usage and self.spent != self.usage:
            data["spent"] = self.spent.to_data()
        if self.tool_errors:
            data["tool_errors"] = self.tool_errors
        return data


NO_FIGURES = Figures()
"""The figures of a node run that has only begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFigures:
    """The usage of a recorded call, and the number and time of its failed tries."""

    usage: Usage = NOTHING
    """The usage reported inside the call; reusing the recorded result includes this usage."""
    failures: int = 0
    failed_ms: float = 0.0

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> CallFigures:
        """Read what `to_data` returned."""
        usage = Usage.from_data(data["usage"]) if "usage" in data else NOTHING
        return cls(usage=usage, failures=data.get("failures", 0), failed_ms=data.get("failed_ms", 0.0))

    def to_data(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        data: dict[str, Any] = {} if self.usage == NOTHING else {"usage": self.usage.to_data()}
        return data | ({"failures": self.failures, "failed_ms": self.failed_ms} if self.failures else {})


NO_CALL_FIGURES = CallFigures()
"""The figures of a call that used nothing and did not fail."""
