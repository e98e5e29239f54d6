"""Values of graphs as plain JSON: the same from a live graph as from the store, and no object is built."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Interrupt, Send

from tests.langgraph_graphs import Colour, Customer, Point, every_type
from wtb.infrastructure.codecs.foreign import Foreign
from wtb.infrastructure.langgraph.clients.plain_json import plain


def stored(value: Any) -> Foreign:
    return Foreign(*JsonPlusSerializer().dumps_typed(value))


MESSAGES = [
    HumanMessage("hi", id="1"),
    AIMessage("", id="2", tool_calls=[{"name": "look", "args": {"at": "sea"}, "id": "c"}]),
    ToolMessage("seen", tool_call_id="c", id="3"),
]


@pytest.mark.parametrize("value", [*MESSAGES, MESSAGES, Point(1, [2]), Customer(name="a", tags={"x": 1}), Colour.RED])
def test_stored_and_live_values_look_the_same(value: Any) -> None:
    assert plain(stored(value)) == plain(value)


def test_a_message_has_all_its_fields_and_nothing_else() -> None:
    found = plain(stored(MESSAGES[1]))
    assert (found["type"], found["tool_calls"][0]["name"], found["content"]) == ("ai", "look", "")
    assert "class" not in found


@pytest.mark.parametrize("make", [lambda value: value, stored])
def test_every_type_becomes_json(make: Any) -> None:
    for name, value in every_type().items():
        json.dumps(plain(make(value)), allow_nan=False), name


def test_numbers_that_json_does_not_know_are_null_and_objects_their_text() -> None:
    assert plain({"a": math.nan, 1: [math.inf]}) == {"a": None, "1": [None]}
    assert plain(Interrupt(value="?", id="i")) == {"value": "?", "id": "i"}
    assert plain(stored(Send("node", {"x": 1})))[:2] == ["node", {"x": 1}]
    assert plain(object()).startswith("<object")
