"""Messages: those without an id get one that is the same whenever the same visit of the same node gives them.

LangGraph gives a random one. Two runs that took the same result would then differ in their states, and share nothing
that comes after it. Which values become messages is as in LangGraph: it differs by channel, and inside an `Overwrite`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from langchain_core.messages import BaseMessage, convert_to_messages
from langgraph.channels.binop import _get_overwrite
from langgraph.graph import message as reducers
from langgraph.types import Command, Overwrite

from wtb.infrastructure.langgraph.engine.channels import Folded

Read = Callable[[list[Any]], list[Any]]
"""Returns a list with messages in place of what stands for them; ValueError when something cannot be read."""

_ROLES = frozenset({"user", "human", "assistant", "ai", "tool", "system", "function"})
_TYPES = frozenset({"human", "ai", "tool", "system", "function", "remove"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How values that are written to a channel are read as messages."""

    written: Read
    overwritten: Read
    """The same for what an `Overwrite` holds."""
    keeps_mapping: bool = False
    """Whether a single mapping that stands for a message stays a mapping."""


def message_channels(channels: Mapping[str, Any]) -> Mapping[str, Reading]:
    """Return which channels hold messages that are known by their ids, and how what is written to each is read."""
    found = {name: _reading(channel) for name, channel in channels.items()}
    return {name: reading for name, reading in found.items() if reading is not None}


def _reading(channel: Any) -> Reading | None:
    """Return how a channel is read.

    In a DeltaChannel LangGraph gives ids to messages whatever the reducer is, which may be of other things too.
    """
    if isinstance(channel, Folded) and channel.reducer is reducers._messages_delta_reducer:
        return Reading(written=convert_to_messages, overwritten=_messages_if_possible)
    if isinstance(channel, Folded):
        return Reading(written=_messages_among, overwritten=list, keeps_mapping=True)
    reducer = getattr(channel, "operator", None)
    function = reducer.func if isinstance(reducer, partial) else reducer
    if getattr(function, "__module__", None) == reducers.__name__:
        return Reading(written=convert_to_messages, overwritten=_messages_among)
    return None


def _messages_among(written: list[Any]) -> list[Any]:
    return [convert_to_messages([each])[0] if _is_said(each) else each for each in written]


def _messages_if_possible(written: list[Any]) -> list[Any]:
    return [_message_if_possible(each) for each in written]


def _message_if_possible(written: Any) -> Any:
    try:
        return convert_to_messages([written])[0]
    except (ValueError, NotImplementedError):
        return written


def _is_said(written: Any) -> bool:
    return isinstance(written, dict) and (written.get("role") in _ROLES or written.get("type") in _TYPES)


def ids_in(values: Mapping[str, Any], channels: Mapping[str, Reading]) -> frozenset[str]:
    """Return the ids of the messages that a state holds."""
    return frozenset(id for channel in channels for id in _ids(values.get(channel)))


def _ids(messages: Any) -> Iterator[str]:
    found = messages if isinstance(messages, list) else ()
    return (each.id for each in found if isinstance(each, BaseMessage) and each.id is not None)


class Identified:
    """Gives ids to the messages of one node run, or of an input; `place` is what tells it from all others.

    An id that the state has is passed over: messages of another run, which may have been made in a place of the same
    name, are often given to the next.
    """

    def __init__(
        self, channels: Mapping[str, Reading], place: str, taken: Callable[[], frozenset[str]] = frozenset[str]
    ) -> None:
        self._channels = channels
        self._taken = taken
        self._ids: Iterator[str] = (str(uuid5(NAMESPACE_OID, f"{place}/{number}")) for number in count())

    def update(self, returned: Any) -> Any:
        """Return what a node returned, whatever its form, with ids; the node's own messages are not touched."""
        if not self._channels:
            return returned
        if type(returned) is dict:
            return {key: self._identified(key, value) for key, value in returned.items()}
        if isinstance(returned, Command) and type(returned.update) is dict:
            return replace(returned, update=self.update(returned.update))
        if type(returned) is list:
            return [self.update(each) for each in returned]
        return returned

    def _identified(self, channel: str, value: Any) -> Any:
        reading = self._channels.get(channel)
        if reading is None:
            return value
        is_overwrite, content = _get_overwrite(value)
        if is_overwrite:
            is_several = isinstance(content, list | tuple)
            return Overwrite(self._messages([*content], reading.overwritten)) if is_several else value
        if isinstance(value, list):
            return self._messages(value, reading.written)
        if reading.keeps_mapping and _is_said(value):
            return value if value.get("id") else {**value, "id": self._new_id(self._taken())}
        return self._messages([value], reading.written)[0]

    def _messages(self, values: list[Any], read: Read) -> list[Any]:
        try:
            messages = read(values)
        except (ValueError, NotImplementedError):
            return values  # LangGraph says what is wrong with them
        if any(isinstance(each, BaseMessage) and each.id is None for each in messages):
            taken = self._taken().union(_ids(messages))
            messages = [self._with_id(each, taken) for each in messages]
        return messages

    def _with_id(self, message: Any, taken: frozenset[str]) -> Any:
        if not isinstance(message, BaseMessage) or message.id is not None:
            return message
        return message.model_copy(update={"id": self._new_id(taken)})

    def _new_id(self, taken: frozenset[str]) -> str:
        return next(id for id in self._ids if id not in taken)
