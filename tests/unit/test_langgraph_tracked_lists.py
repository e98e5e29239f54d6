"""Tracked lists: one law for the lists that the saver puts and for those that a run of a graph holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from wtb.domain.state import Append, Change, SetValue, Splice
from wtb.infrastructure.codecs.foreign import Encoded
from wtb.infrastructure.langgraph.tracked_lists import LiveList, TrackedList
from wtb.infrastructure.langgraph.values import ChannelValues, StateValues, Values


@dataclass
class Note:
    text: str


@dataclass(frozen=True)
class Tracker:
    """A list and the values that store its items, as the saver or the engine has them."""

    values: Values
    tracked: TrackedList

    def change(self, value: list[Any]) -> Change | None:
        return self.tracked.change(value, lambda item: self.values.store_item(item, "notes"))

    def stored(self, item: Any) -> Any:
        return self.values.store_item(item, "notes")


def for_saver(stored: list[Any] | None) -> Tracker:
    values = ChannelValues(JsonPlusSerializer())
    items = None if stored is None else [values.store_item(item, "notes") for item in stored]
    return Tracker(values, TrackedList(items))


def for_engine(stored: list[Any] | None) -> Tracker:
    values = StateValues()
    items = None if stored is None else [values.store_item(item, "notes") for item in stored]
    return Tracker(values, LiveList(items, values.restore_item))


ends = pytest.mark.parametrize("begin", [for_saver, for_engine])
Begin = Callable[[list[Any] | None], Tracker]


@ends
def test_an_empty_list_is_a_change_only_where_no_list_is_stored(begin: Begin) -> None:
    absent = begin(None)
    assert absent.change([]) == SetValue([])
    assert absent.change([]) is None
    assert begin([]).change([]) is None


@ends
def test_a_longer_list_is_an_append_and_a_list_that_differs_further_on_a_splice(begin: Begin) -> None:
    list_ = begin(["a", "b"])
    assert list_.change(["a", "b"]) is None
    assert list_.change(["a", "b", "c"]) == Append(("c",))
    assert list_.change(["a", "x"]) == Splice(1, 2, ("x",))
    assert list_.change(["y"]) == SetValue(["y"])


@ends
@pytest.mark.parametrize("kind", [AIMessage, dict, Note])
def test_an_equal_object_is_no_change_and_one_that_was_changed_in_place_is(begin: Begin, kind: Any) -> None:
    item = kind(content="first", id="1") if kind is AIMessage else kind(text="first")
    list_ = begin([item])
    assert list_.change([item]) is None
    if isinstance(item, dict):
        item["text"] = "second"
    else:
        setattr(item, "content" if isinstance(item, AIMessage) else "text", "second")

    assert list_.change([item]) == SetValue([list_.stored(item)])
    assert list_.change([item]) is None


def test_the_saver_gets_bytes_and_a_run_gets_data_that_everybody_can_read() -> None:
    assert type(for_saver(None).stored({"a": [1]})) is Encoded
    given = {"a": [1]}
    stored = for_engine(None).stored(given)
    given["a"].append(2)
    assert stored == {"a": [1]}


def test_a_node_gets_the_object_again_that_nobody_changed_and_a_new_one_for_one_that_was() -> None:
    values = StateValues()
    live = LiveList([values.store_item(AIMessage(text, id=text), "notes") for text in ("a", "b")], values.restore_item)
    first = live.restored()
    first[1].content = "redacted"
    second = live.restored()

    assert second[0] is first[0]
    assert [message.content for message in second] == ["a", "b"]
