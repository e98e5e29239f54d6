"""Channels: replaces those that LangGraph leaves out of its checkpoints by ones whose value is always stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from langgraph.channels import BinaryOperatorAggregate, DeltaChannel, LastValue, UntrackedValue


def stored_whole(channel: Any) -> Any:
    """Return a channel that combines writes as this one does, and whose value is in every checkpoint.

    A DeltaChannel would need all its writes to be stored, and an UntrackedValue would be gone after one step.
    """
    if isinstance(channel, DeltaChannel):
        return _named(channel, WholeDelta(channel.typ, _one_by_one(channel.reducer)))
    if isinstance(channel, UntrackedValue):
        kept = LastValue(channel.typ) if channel.guard else BinaryOperatorAggregate(Any, _last)
        return _named(channel, kept)
    return channel


class WholeDelta(BinaryOperatorAggregate[Any]):
    """A DeltaChannel whose value is stored, not its writes."""

    __slots__ = ()

    @property
    def reducer(self) -> Callable[[Any, Sequence[Any]], Any]:
        """The function that combines all writes of a superstep."""
        return self.operator.__wrapped__  # type: ignore[attr-defined, no-any-return]

    def update(self, values: Sequence[Any]) -> bool:
        """Let a DeltaChannel combine the writes, so that an Overwrite means what it means to LangGraph."""
        channel: DeltaChannel[Any] = DeltaChannel(self.reducer, self.typ)
        channel.value = self.value
        is_updated = channel.update(values)
        self.value = channel.value
        return is_updated


def _named(channel: Any, stored: Any) -> Any:
    stored.key = channel.key
    return stored


def _one_by_one(reducer: Callable[[Any, Sequence[Any]], Any]) -> Callable[[Any, Any], Any]:
    """Return a reducer of many writes as a reducer of one write, the usual form of a channel's reducer."""

    @wraps(reducer)
    def reduced(value: Any, write: Any) -> Any:
        return reducer(value, [write])

    return reduced


def _last(value: Any, write: Any) -> Any:
    return write
