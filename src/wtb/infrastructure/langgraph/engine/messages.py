"""Messages: gives messages without an id one that depends only on the node, its visit and their position.

LangGraph gives random ids. Two runs with the same result would then have different states, and share nothing after it.
As in LangGraph, the channel decides which values become messages, and an `Overwrite` has rules of its own.
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

from wtb.infrastructure.langgraph.engine.channels import WholeDelta

Read = Callable[[list[Any]], list[Any]]
"""Converts the values in a list that stand for messages; ValueError when one cannot be read."""

_ROLES = frozenset({"user", "human", "assistant", "ai", "tool", "system", "function"})
_TYPES = frozenset({"human", "ai", "tool", "system", "function", "remove"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReading:
    """How a channel converts the values that are written to it into messages."""

    written: Read
    overwritten: Read
    """The same for the values in an `Overwrite`."""
    keeps_mapping: bool = False
    """Whether a single mapping that stands for a message stays a mapping."""


def message_channels(channels: Mapping[str, Any]) -> Mapping[str, MessageReading]:
    """Return the channels that hold messages with ids, each with its way of reading."""
    found = {name: _reading(channel) for name, channel in channels.items()}
    return {name: reading for name, reading in found.items() if reading is not None}


def _reading(channel: Any) -> MessageReading | None:
    """Return how a channel reads messages; None if it holds none.

    In a DeltaChannel LangGraph gives ids to messages under every reducer, also among other values.
    """
    if isinstance(channel, WholeDelta) and channel.reducer is reducers._messages_delta_reducer:
        return MessageReading(written=convert_to_messages, overwritten=_messages_if_possible)
    if isinstance(channel, WholeDelta):
        return MessageReading(written=_messages_among, overwritten=list, keeps_mapping=True)
    reducer = getattr(channel, "operator", None)
    function = reducer.func if isinstance(reducer, partial) else reducer
    if getattr(function, "__module__", None) == reducers.__name__:
        return MessageReading(written=convert_to_messages, overwritten=_messages_among)
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


def ids_in(values: Mapping[str, Any], channels: Mapping[str, MessageReading]) -> frozenset[str]:
    """Return the ids of the messages in a state."""
    return frozenset(id for channel in channels for id in _ids(values.get(channel)))


def _ids(messages: Any) -> Iterator[str]:
    found = messages if isinstance(messages, list) else ()
    return (each.id for each in found if isinstance(each, BaseMessage) and each.id is not None)


class MessageIds:
    """Gives ids to the messages of one node run, or of an input; `place` names it within the run.

    An id that the state has already is skipped: a run is often given messages of another run, from a place of the same
    name.
    """

    def __init__(
        self, channels: Mapping[str, MessageReading], place: str, taken: Callable[[], frozenset[str]] = frozenset[str]
    ) -> None:
        self._channels = channels
        self._taken = taken
        self._ids: Iterator[str] = (str(uuid5(NAMESPACE_OID, f"{place}/{number}")) for number in count())

    def update(self, returned: Any) -> Any:
        """Return what a node returned, in any form, with ids; the node's own messages stay unchanged."""
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
            return values  # LangGraph reports what is wrong with them
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
