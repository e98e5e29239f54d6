"""Objects that somebody changes while they are being stored: the change is part of the next checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ormsgpack
import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from wtb.infrastructure.langgraph.plain_data import packed
from wtb.infrastructure.langgraph.tracked_lists import LiveList, StoreItem
from wtb.infrastructure.langgraph.values import StateValues
from wtb.langgraph import Saver

START: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


class Interrupting(SerializerProtocol):
    """Lets something happen right after a value was encoded, as another thread might."""

    def __init__(self) -> None:
        self._inner = JsonPlusSerializer()
        self.then: Callable[[], None] | None = None

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        encoded = self._inner.dumps_typed(obj)
        then, self.then = self.then, None
        if then is not None:
            then()
        return encoded

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return self._inner.loads_typed(data)


@pytest.fixture
def serde() -> Interrupting:
    return Interrupting()


@pytest.fixture
def saver(serde: Interrupting) -> Iterator[Saver]:
    with Saver("memory://", serde=serde) as opened:
        yield opened


def put(saver: Saver, values: dict[str, Any], at: Any = START) -> Any:
    versions = {channel: saver.get_next_version(None, None) for channel in values}
    checkpoint: Any = {**empty_checkpoint(), "id": str(uuid6(clock_seq=-2)), "channel_values": values}
    checkpoint["channel_versions"] = versions
    return saver.put(at, checkpoint, {"source": "loop", "step": 0, "parents": {}}, versions)


def content(saver: Saver, at: Any) -> str:
    found = saver.get_tuple(at)
    assert found is not None
    held = found.checkpoint["channel_values"]["messages"]
    return str((held[0] if isinstance(held, list) else held).content)


def storing(values: StateValues) -> StoreItem:
    return lambda item: values.store_item(item, "messages")


def redact(message: AIMessage) -> Callable[[], None]:
    def redacted() -> None:
        message.content = "redacted"

    return redacted


@pytest.mark.parametrize("as_list", [True, False])
def test_a_change_while_a_task_writes_is_in_the_checkpoint_that_follows(
    saver: Saver, serde: Interrupting, *, as_list: bool
) -> None:
    message = AIMessage("secret", id="1")
    value: Any = [message] if as_list else message
    begun = put(saver, {"other": 1})
    serde.then = redact(message)
    saver.put_writes(begun, [("messages", value)], "task")

    assert content(saver, put(saver, {"messages": value}, begun)) == "redacted"


def test_a_change_while_a_list_is_stored_is_in_the_next_checkpoint(saver: Saver, serde: Interrupting) -> None:
    messages = [AIMessage("secret", id="1")]
    serde.then = redact(messages[0])
    first = put(saver, {"messages": messages})
    second = put(saver, {"messages": messages}, first)

    assert (content(saver, first), content(saver, second)) == ("secret", "redacted")


def test_a_change_while_a_list_is_compared_with_the_stored_one_is_in_the_next_checkpoint(
    saver: Saver, serde: Interrupting
) -> None:
    first = put(saver, {"messages": [AIMessage("secret", id="1")]})
    other = [AIMessage("secret", id="1")]
    serde.then = redact(other[0])
    second = put(saver, {"messages": other}, first)
    third = put(saver, {"messages": other}, second)

    assert (content(saver, second), content(saver, third)) == ("secret", "redacted")


def test_a_change_while_the_list_of_a_run_is_kept_is_seen_in_the_next_step(serde: Interrupting) -> None:
    messages = [AIMessage("secret", id="1")]
    values = StateValues(serde)
    known = LiveList(None, values.restore_item)
    serde.then = redact(messages[0])
    known.change(messages, storing(values))

    assert known.change(messages, storing(values)) is not None
    assert known.restored()[0].content == "redacted"


def test_a_change_while_the_list_of_a_run_is_compared_is_seen_in_the_next_step(serde: Interrupting) -> None:
    values = StateValues(serde)
    known = LiveList([values.store_item(AIMessage("secret", id="1"), "messages")], values.restore_item)
    other = [AIMessage("secret", id="1")]
    serde.then = redact(other[0])

    assert known.change(other, storing(values)) is None
    assert known.change(other, storing(values)) is not None


def test_plain_data_that_changes_while_it_is_encoded_is_told_apart_by_what_was_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value, encode = {"b": 1, "a": "secret"}, ormsgpack.packb

    def encode_then_redact(*args: Any) -> bytes:
        data = encode(*args)
        value["a"] = "redacted"
        return data

    monkeypatch.setattr(ormsgpack, "packb", encode_then_redact)
    stored = packed(value)

    assert stored is not None
    assert ormsgpack.unpackb(stored.data) == ormsgpack.unpackb(stored.canonical) == {"b": 1, "a": "secret"}
