"""Whatever a state may hold is the same after it went out as JSON and came back."""

import json
from dataclasses import dataclass
from datetime import UTC
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from wtb.application.queries.tagged_json import Stored, TaggedJson
from wtb.domain.secrets import Masker
from wtb.infrastructure.codecs.state_classes import StateClasses
from wtb.infrastructure.codecs.types import TypeRegistry
from wtb.testing.values import EXACT_VALUES, identical


@dataclass
class Place:
    street: str
    lines: list[Any]


class Colour(Enum):
    RED = 1


class Pair(NamedTuple):
    left: Any
    right: Any


class Person(BaseModel):
    name: str
    age: Any = None


_TYPES = TypeRegistry()
for _each in (Place, Colour, Pair, Person):
    _TYPES.register(_each)
_JSON = TaggedJson(StateClasses(_TYPES), Masker())

_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary(max_size=20)
    | st.datetimes(timezones=st.none() | st.just(UTC) | st.timezones())
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.just(Colour.RED)
    | st.builds(Place, st.text(), st.lists(st.integers()))
    | st.builds(Person, name=st.text(), age=st.none() | st.floats(allow_nan=False))
)
_KEYS = st.text() | st.just("$type") | st.integers() | st.none() | st.binary(max_size=3) | st.just("password")
_STATES = st.dictionaries(
    st.text(),
    st.recursive(
        _LEAVES,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(_KEYS, inner, max_size=4)
            | st.lists(inner, max_size=3).map(tuple)
            | st.sets(st.integers() | st.text() | st.tuples(st.floats(allow_nan=False)), max_size=3)
            | st.frozensets(st.binary(max_size=3), max_size=3)
            | st.builds(Pair, inner, inner)
        ),
        max_leaves=12,
    ),
    max_size=4,
)


def _there_and_back(value: Any) -> Any:
    sent = json.dumps(_JSON.write(value), allow_nan=False, ensure_ascii=False).encode()
    return _JSON.read(json.loads(sent), Stored((value,)))


@given(_STATES)
@settings(max_examples=150)
def test_a_state_comes_back_as_it_was_stored(state: dict[str, Any]) -> None:
    assert identical(_there_and_back(state), state)


@pytest.mark.parametrize("name", EXACT_VALUES)
def test_every_value_that_stores_keep_comes_back(name: str) -> None:
    assert identical(_there_and_back(EXACT_VALUES[name]), EXACT_VALUES[name])


def test_an_array_comes_back() -> None:
    array = np.arange(6, dtype="int16").reshape(2, 3)
    back = _there_and_back({"a": array})["a"]
    assert back.dtype == array.dtype
    assert back.tolist() == array.tolist()
