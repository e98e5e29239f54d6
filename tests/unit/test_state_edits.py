"""An edit changes the paths that it names, keeps what was only shown, and refuses the rest."""

from dataclasses import dataclass
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from pydantic import BaseModel

from wtb.application.queries.state_edits import StateEdit, StateEditor
from wtb.application.queries.tagged_json import TaggedJson
from wtb.domain.errors import InvalidInput
from wtb.domain.secrets import Masker
from wtb.domain.state import DELETE
from wtb.infrastructure.codecs.state_classes import StateClasses
from wtb.infrastructure.codecs.types import TypeRegistry


@dataclass
class Place:
    street: str


class Person(BaseModel):
    name: str
    age: int = 0


_TYPES = TypeRegistry()
_TYPES.register(Place)
_TYPES.register(Person)
_CLASSES = StateClasses(_TYPES)
_JSON = TaggedJson(_CLASSES, Masker())
_EDITOR = StateEditor(_JSON, _CLASSES)


def _edited(state: dict[str, Any], *changes: tuple[list[Any], Any], delete: list[list[Any]] | None = None) -> Any:
    edit = {"set": [{"path": path, "value": value} for path, value in changes], "delete": delete or []}
    return _EDITOR.update(StateEdit.from_data(edit), state, state)


def test_only_the_keys_that_change_are_in_the_update() -> None:
    state = {"a": {"x": [1, 2]}, "b": 2}
    assert _edited(state, (["a", "x", 1], 5)) == {"a": {"x": [1, 5]}}
    assert state == {"a": {"x": [1, 2]}, "b": 2}


def test_several_changes_of_one_key_add_up_and_a_position_at_the_end_appends() -> None:
    assert _edited({"a": [1]}, (["a", 0], 7), (["a", 1], {"$type": "tuple", "value": [1]})) == {"a": [7, (1,)]}


def test_items_and_keys_can_be_deleted() -> None:
    state = {"a": [1, 2, 3], "b": {"x": 1, "y": 2}, "c": 3}
    assert _edited(state, delete=[["a", 1], ["b", "x"], ["c"]]) == {"a": [1, 3], "b": {"y": 2}, "c": DELETE}


def test_a_new_key_and_a_key_that_is_no_text_can_be_set() -> None:
    assert _edited({"a": {1: "x"}}, (["b"], 1), (["a", 1], "y")) == {"b": 1, "a": {1: "y"}}


def test_fields_of_objects_change_and_models_validate_them() -> None:
    state = {"place": Place("a"), "person": Person(name="Ada", age=36)}
    changed = _edited(state, (["place", "street"], "b"), (["person", "age"], "37"))
    assert changed == {"place": Place("b"), "person": Person(name="Ada", age=37)}
    with pytest.raises(InvalidInput, match="age"):
        _edited(state, (["person", "age"], "old"))


def test_messages_are_edited_by_their_id() -> None:
    state = {"messages": [HumanMessage("hi", id="1"), AIMessage("helo", id="2")]}
    changed = _edited(state, (["messages", {"id": "2"}, "content"], "hello"))["messages"]
    assert [(each.id, each.content) for each in changed] == [("1", "hi"), ("2", "hello")]
    assert state["messages"][1].content == "helo"
    with pytest.raises(InvalidInput, match="nothing at"):
        _edited(state, (["messages", {"id": "3"}, "content"], "hello"))


def test_a_masked_value_that_comes_back_keeps_the_stored_one() -> None:
    state = {"config": {"api_key": "sk-1234567890abcdefghij", "model": "small"}}
    shown = _JSON.write(state)["config"]
    assert shown["api_key"] == {"$type": "masked", "value": "***"}
    assert _edited(state, (["config"], {**shown, "model": "large"})) == {
        "config": {"api_key": "sk-1234567890abcdefghij", "model": "large"}
    }


def test_a_masked_or_opaque_value_cannot_be_made_up_or_moved() -> None:
    state = {"text": "Bearer abcdefghijkl", "plain": None, "strange": object()}
    shown = _JSON.write(state)
    assert "abcdefghijkl" not in str(shown)
    assert _edited(state, (["text"], shown["text"])) == {"text": "Bearer abcdefghijkl"}
    assert _edited(state, (["strange"], shown["strange"])) == {"strange": state["strange"]}
    for value in (shown["text"], shown["strange"], {"$type": "masked", "value": "***"}):
        with pytest.raises(InvalidInput, match="can stay where it is"):
            _edited(state, (["plain"], value))


@pytest.mark.parametrize(
    "value",
    [
        {"$type": "os.system", "value": "x"},
        {"$type": ["class"], "value": "x"},
        {"$type": "class", "name": "os:system", "value": "x"},
        {"$type": "class", "value": "x"},
        {"$type": "class", "name": f"{__name__}:Person", "value": {"nobody": 1}},
        {"$type": "class", "name": f"{__name__}:Person", "value": {}, "model": [1]},
        {"$type": "int", "value": 5},
        {"$type": "int", "value": "9" * 5000},
        {"$type": "decimal", "value": "x"},
        {"$type": "bytes", "value": "%"},
        {"$type": "datetime", "value": "yesterday"},
        {"$type": "datetime", "value": "2026-01-01T00:00:00", "zone": "../../etc/passwd"},
        {"$type": "timedelta", "value": [10**30]},
        {"$type": "set", "value": [[1]]},
        {"$type": "tuple", "value": "ab"},
        {"$type": "dict", "value": [[[1], 2]]},
        {"$type": "dict", "value": [[1]]},
        {"$type": "text", "value": "\\x"},
        {"$type": None},
    ],
)
def test_json_that_describes_no_value_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput):
        _edited({"a": 1}, (["a"], value))


@pytest.mark.parametrize("path", [[], [1], ["a", "b"], ["a", 3], ["a", -1], ["a", "__class__"], "a", None, ["b", 0]])
def test_a_path_that_leads_nowhere_is_refused(path: Any) -> None:
    with pytest.raises(InvalidInput):
        _edited({"a": [1]}, (path, 1))


def test_a_deep_value_is_refused() -> None:
    value: Any = 1
    for _ in range(600):
        value = [value]
    with pytest.raises(InvalidInput, match="deep"):
        _edited({}, (["a"], value))
