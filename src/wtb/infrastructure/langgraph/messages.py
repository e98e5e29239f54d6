"""Messages: those without an id get one that is the same whenever the same visit of the same node gives them.

LangGraph gives a random one. Two runs that took the same result would then differ in their states, and share nothing
that comes after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from langchain_core.messages import BaseMessage, convert_to_messages
from langgraph.graph import message as reducers
from langgraph.types import Command, Overwrite

from wtb.infrastructure.langgraph.channels import Folded

Read = Callable[[list[Any]], list[Any]]
"""Says which messages there are in what was written; ValueError when it is none."""

_REDUCERS = frozenset({reducers.__name__, reducers._messages_delta_reducer.__module__})
_ROLES = frozenset({"user", "human", "assistant", "ai", "tool", "system", "function", "remove"})


def message_channels(channels: Mapping[str, Any]) -> Mapping[str, Read]:
    """Return which channels hold messages that are known by their ids, and how what is written to each is read.

    In a DeltaChannel LangGraph gives ids to messages whatever its reducer is, which may be of other things too.
    """
    others = {name: _messages_among for name, channel in channels.items() if isinstance(channel, Folded)}
    return {**others, **{name: convert_to_messages for name, channel in channels.items() if _adds_messages(channel)}}


def _adds_messages(channel: Any) -> bool:
    reducer = getattr(channel, "operator", None)
    function = reducer.func if isinstance(reducer, partial) else reducer
    return getattr(function, "__module__", None) in _REDUCERS


def _messages_among(written: list[Any]) -> list[Any]:
    found = [convert_to_messages([each])[0] if _is_said(each) else each for each in written]
    if not any(isinstance(each, BaseMessage) for each in found):
        raise ValueError
    return found


def _is_said(written: Any) -> bool:
    return isinstance(written, dict) and (written.get("role") in _ROLES or written.get("type") in _ROLES)


def ids_in(values: Mapping[str, Any], channels: Mapping[str, Read]) -> frozenset[str]:
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
        self, channels: Mapping[str, Read], place: str, taken: Callable[[], frozenset[str]] = frozenset[str]
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
        if channel not in self._channels:
            return value
        if isinstance(value, Overwrite):
            return Overwrite(self._messages(value.value, _messages_among))
        return self._messages(value, self._channels[channel])

    def _messages(self, value: Any, read: Read) -> Any:
        try:
            messages = read(value if isinstance(value, list) else [value])
        except (ValueError, NotImplementedError):
            return value  # LangGraph says what is wrong with it
        if any(isinstance(each, BaseMessage) and each.id is None for each in messages):
            taken = self._taken().union(_ids(messages))
            messages = [self._with_id(each, taken) for each in messages]
        return messages if isinstance(value, list) else messages[0]

    def _with_id(self, message: Any, taken: frozenset[str]) -> Any:
        if not isinstance(message, BaseMessage) or message.id is not None:
            return message
        return message.model_copy(update={"id": next(id for id in self._ids if id not in taken)})
