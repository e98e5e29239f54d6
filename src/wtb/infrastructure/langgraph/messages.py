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
from langgraph.types import Command


def message_channels(channels: Mapping[str, Any]) -> frozenset[str]:
    """Return which channels hold messages that are known by their ids."""
    return frozenset(name for name, channel in channels.items() if _adds_messages(channel))


def _adds_messages(channel: Any) -> bool:
    reducer = getattr(channel, "operator", None) or getattr(channel, "reducer", None)
    function = reducer.func if isinstance(reducer, partial) else reducer
    return getattr(function, "__module__", None) == reducers.__name__


def ids_in(values: Mapping[str, Any], channels: frozenset[str]) -> frozenset[str]:
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
        self, channels: frozenset[str], place: str, taken: Callable[[], frozenset[str]] = frozenset[str]
    ) -> None:
        self._channels = channels
        self._taken = taken
        self._ids: Iterator[str] = (str(uuid5(NAMESPACE_OID, f"{place}/{number}")) for number in count())

    def update(self, returned: Any) -> Any:
        """Return what a node returned, whatever its form, with ids; the node's own messages are not touched."""
        if not self._channels:
            return returned
        if type(returned) is dict:
            return {key: self._messages(value) if key in self._channels else value for key, value in returned.items()}
        if isinstance(returned, Command) and type(returned.update) is dict:
            return replace(returned, update=self.update(returned.update))
        if type(returned) is list:
            return [self.update(each) for each in returned]
        return returned

    def _messages(self, value: Any) -> Any:
        try:
            messages = convert_to_messages(value if isinstance(value, list) else [value])
        except (ValueError, NotImplementedError):
            return value  # LangGraph says what is wrong with it
        if all(each.id is not None for each in messages):
            return messages
        taken = self._taken().union(_ids(messages))
        return [self._with_id(each, taken) for each in messages]

    def _with_id(self, message: BaseMessage, taken: frozenset[str]) -> BaseMessage:
        if message.id is not None:
            return message
        return message.model_copy(update={"id": next(id for id in self._ids if id not in taken)})
