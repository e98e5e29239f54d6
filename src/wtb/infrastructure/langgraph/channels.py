"""Channels: those that LangGraph leaves out of its checkpoints, as ones that are in every checkpoint of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from langgraph.channels import BinaryOperatorAggregate, DeltaChannel, LastValue, UntrackedValue
from langgraph.channels.binop import _get_overwrite
from langgraph.types import Overwrite


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

    def update(self, values: Sequence[Any]) -> bool:
        """Combine writes; overwritten with None it is empty again."""
        return super().update([Overwrite(self.typ()) if _empties(write) else write for write in values])


def _empties(write: Any) -> bool:
    is_overwrite, value = _get_overwrite(write)
    return is_overwrite and value is None


def _named(channel: Any, stored: Any) -> Any:
    stored.key = channel.key
    return stored


def _one_by_one(reducer: Callable[[Any, list[Any]], Any]) -> Callable[[Any, Any], Any]:
    """Return a reducer of batches as one of single writes, which has to come to the same."""

    @wraps(reducer)
    def reduced(value: Any, write: Any) -> Any:
        return reducer(value, [write])

    return reduced


def _last(value: Any, write: Any) -> Any:
    return write
