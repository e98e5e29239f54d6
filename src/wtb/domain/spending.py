"""Spent and Budget: what a batch has used, and the most that it may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wtb.domain.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a batch really used: money, tokens and seconds by the clock. Shared work counts once."""

    usd: float = 0.0
    tokens: int = 0
    s: float = 0.0

    @classmethod
    def of(cls, usage: Mapping[str, Any]) -> Spent:
        """Return what a node run reported."""
        tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
        return cls(usd=usage.get("cost_usd", 0.0), tokens=tokens)

    def __add__(self, other: Spent) -> Spent:
        """Return both together."""
        return Spent(usd=self.usd + other.usd, tokens=self.tokens + other.tokens, s=self.s + other.s)

    def __sub__(self, other: Spent) -> Spent:
        """Return the difference: what was spent since `other`."""
        return Spent(usd=self.usd - other.usd, tokens=self.tokens - other.tokens, s=self.s - other.s)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Spent:
        """Read the figures from plain JSON."""
        return cls(usd=data["usd"], tokens=data["tokens"], s=data["s"])

    def to_dict(self) -> dict[str, float]:
        """Return the figures as plain JSON."""
        return {"usd": self.usd, "tokens": self.tokens, "s": self.s}


NOTHING_SPENT = Spent()


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most that a batch may spend, over all its runs; once it is reached, no job starts."""

    usd: float | None = None
    tokens: int | None = None
    s: float | None = None

    def __post_init__(self) -> None:
        """Refuse limits that make no sense."""
        given: Mapping[str, Any] = self.limits()
        for name, limit in given.items():
            if not (isinstance(limit, int | float) and limit >= 0):
                raise InvalidInput(f"budget: {name} must be 0 or more, not {limit!r}")

    @classmethod
    def of(cls, given: Any) -> Budget:
        """Return the budget for `{"usd": 5}`, another budget, or None."""
        if isinstance(given, Budget):
            return given
        names = ("usd", "tokens", "s")
        if given is None or (isinstance(given, Mapping) and given.keys() <= set(names)):
            return cls(**(given or {}))
        raise InvalidInput(f"budget={given!r}: give a mapping such as {{'usd': 5}}, with any of {', '.join(names)}")

    def limits(self) -> dict[str, float]:
        """Return the limits that are set, by name."""
        given = {"usd": self.usd, "tokens": self.tokens, "s": self.s}
        return {name: limit for name, limit in given.items() if limit is not None}

    def reached(self, spent: Spent) -> tuple[str, ...]:
        """Return the names of the limits that are used up: `usd`, `tokens`, `s`."""
        return tuple(name for name, limit in self.limits().items() if getattr(spent, name) >= limit)
