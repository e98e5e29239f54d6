"""Channels: those that LangGraph leaves out of its checkpoints, as ones that are in every checkpoint of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from langgraph.channels import BinaryOperatorAggregate, DeltaChannel, LastValue, UntrackedValue


def stored_whole(channel: Any) -> Any:
    """Return a channel that combines writes as this one does, and whose value is part of every checkpoint.

    Of a DeltaChannel a saver would have to keep the writes, and an UntrackedValue would be gone after one step.
    """
    if isinstance(channel, DeltaChannel):
        return _named(channel, Folded(channel.typ, _one_by_one(channel.reducer)))
    if isinstance(channel, UntrackedValue):
        kept = LastValue(channel.typ) if channel.guard else BinaryOperatorAggregate(Any, _last)
        return _named(channel, kept)
    return channel


class Folded(BinaryOperatorAggregate[Any]):
    """A DeltaChannel that is stored as a value."""

    __slots__ = ()

    @property
    def reducer(self) -> Callable[[Any, Sequence[Any]], Any]:
        """How the DeltaChannel combines all writes of a superstep."""
        return self.operator.__wrapped__  # type: ignore[attr-defined, no-any-return]

    def update(self, values: Sequence[Any]) -> bool:
        """Let a DeltaChannel combine the writes: what it makes of an Overwrite is for LangGraph to say."""
        channel: DeltaChannel[Any] = DeltaChannel(self.reducer, self.typ)
        channel.value = self.value
        is_updated = channel.update(values)
        self.value = channel.value
        return is_updated


def _named(channel: Any, stored: Any) -> Any:
    stored.key = channel.key
    return stored


def _one_by_one(reducer: Callable[[Any, Sequence[Any]], Any]) -> Callable[[Any, Any], Any]:
    """Return a reducer of batches as one of single writes, for whoever asks how a channel combines them."""

    @wraps(reducer)
    def reduced(value: Any, write: Any) -> Any:
        return reducer(value, [write])

    return reduced


def _last(value: Any, write: Any) -> Any:
    return write
