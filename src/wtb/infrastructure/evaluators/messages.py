"""Read chat messages for evaluators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import EvaluationContext
from wtb.domain.messages import is_message

IsMessage = Callable[[Any], bool]

_KEY = "messages"
"""The key of the messages in LangGraph's MessagesState."""


def last_message(context: EvaluationContext) -> str:
    """Return the text of the last AI message in the final state.

    It looks in the key `messages`, or else in the only key that holds messages. Use it as the `key` of an evaluator.
    """
    key = _key_of_messages(context.state)
    messages = context.state[key]
    found = messages if isinstance(messages, list | tuple) else [messages]
    answers = [each for each in found if is_message(each) and each.type == "ai"]
    if not answers:
        kinds = ", ".join(dict.fromkeys(each.type for each in found if is_message(each))) or "none"
        raise InvalidInput(f"{key!r} holds no AI message; the types of its messages: {kinds}")
    return text_of(answers[-1].content)


def _key_of_messages(state: Mapping[str, Any]) -> str:
    if _KEY in state:
        return _KEY
    keys = [key for key, value in state.items() if holds_messages(value)]
    if len(keys) == 1:
        return keys[0]
    if not keys:
        raise InvalidInput(f"no key of the state holds messages; it has {', '.join(sorted(state)) or 'no keys'}")
    raise InvalidInput(f"{', '.join(keys)} hold messages; choose one with a path, such as '{keys[0]}.-1.content'")


def is_spoken(value: Any) -> bool:
    """Whether a value is a message of any kind, including mappings that chat models accept as one."""
    return is_message(value) or (isinstance(value, Mapping) and "content" in value and "role" in value)


def holds_messages(value: Any, is_one: IsMessage = is_message) -> bool:
    """Whether a value is a message, or a list with messages in it."""
    return is_one(value) or (isinstance(value, list | tuple) and any(map(is_one, value)))


def refuse_messages(key: str, value: Any, is_one: IsMessage) -> None:
    """Raise InvalidInput, with the ways to write it, if a key leads to whole messages instead of their content."""
    if not holds_messages(value, is_one):
        return
    if isinstance(value, list | tuple):
        raise InvalidInput(
            f"{key!r} holds {len(value)} messages; choose one: '{key}.-1.content' is the last one, "
            "wtb.langgraph.last_message the last answer of the model; or give a function of the context"
        )
    raise InvalidInput(f"{key!r} is a whole message; choose a part of it, such as '{key}.content'")


def text_of(value: Any) -> str:
    """Return a value as text; of content in blocks, return the text blocks."""
    if isinstance(value, list) and value and all(map(_is_block, value)):
        return "".join(block if isinstance(block, str) else str(block.get("text", "")) for block in value)
    return str(value)


def _is_block(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("type"), str)
