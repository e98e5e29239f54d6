"""The codec: everything it takes comes back exactly, and its canonical form knows content and nothing else."""

from collections.abc import Hashable
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntFlag
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, PrivateAttr

from wtb.domain.errors import DamagedData, StateNotSerialisable, UnknownFormat
from wtb.infrastructure.codecs.msgpack import MsgpackCodec
from wtb.infrastructure.codecs.types import TypeRegistry


class Colour(Enum):
    RED = "red"
    BLUE = ("b", 1)


class Bits(IntFlag):
    ONE = 1
    TWO = 2


class Pair(NamedTuple):
    one: Any
    two: Any


@dataclass(frozen=True, slots=True)
class Frozen:
    value: Any


@dataclass
class Plain:
    a: Any
    b: Any


class Model(BaseModel):
    model_config = ConfigDict(extra="allow")

    value: Any
    _private: Any = PrivateAttr(default=None)


TYPES = TypeRegistry()
for cls in (Colour, Bits, Pair, Frozen, Plain, Model):
    TYPES.register(cls)
CODEC = MsgpackCodec(TYPES)


def model(value: Any, private: Any, extra: Any) -> Model:
    made = Model(value=value, **{"more": extra} if extra is not None else {})
    made._private = private
    return made


ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=8)  # lone surrogates included
ZONES = st.none() | st.just(UTC) | st.timezones()
HASHABLE_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([1 << 63, 1 << 64, -(1 << 63), -(1 << 63) - 1, 0, 1, 0.0, -0.0, 1.0]),
    st.floats(),
    ANY_TEXT,
    st.binary(max_size=8),
    st.datetimes(timezones=ZONES),
    st.times(timezones=ZONES),
    st.dates(),
    st.timedeltas(),
    st.uuids(),
    st.decimals(),
    st.sampled_from([*Colour, Bits.ONE, Bits(0), Bits.ONE | Bits.TWO, Bits(12)]),
)
HASHABLE: st.SearchStrategy[Hashable] = st.recursive(
    HASHABLE_LEAVES.filter(lambda leaf: not (isinstance(leaf, Decimal) and leaf.is_snan())),  # these cannot be hashed
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.frozensets(inner, max_size=3),
        st.builds(Pair, inner, inner),
        st.builds(Frozen, inner),
    ),
    max_leaves=4,
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    HASHABLE_LEAVES | HASHABLE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(ANY_TEXT, inner, max_size=4),
        st.dictionaries(HASHABLE, inner, max_size=3),
        st.sets(HASHABLE, max_size=4),
        st.builds(Pair, inner, inner),
        st.builds(Plain, inner, inner),
        st.builds(Frozen, inner),
        st.builds(model, inner, inner, inner),
    ),
    max_leaves=12,
)

EXACT_TYPES = (float, Decimal, datetime, time, date, timedelta, UUID, Enum, int, str, bytes)


def spelled(value: Any, *, ordered: bool = True) -> Any:
    """Write a value out with the type of everything in it; without `ordered`, mappings in a fixed order."""
    name = type(value).__name__
    if isinstance(value, dict):
        pairs = [(spelled(key, ordered=ordered), spelled(item, ordered=ordered)) for key, item in value.items()]
        return name, tuple(pairs if ordered else sorted(pairs, key=repr))
    if isinstance(value, set | frozenset):
        return name, tuple(sorted((spelled(item, ordered=ordered) for item in value), key=repr))
    if isinstance(value, list | tuple):
        return name, tuple(spelled(item, ordered=ordered) for item in value)
    if isinstance(value, EXACT_TYPES) or value is None:
        return name, repr(value)
    if isinstance(value, Model):
        return name, spelled([value.value, value.model_extra, value._private, value.model_fields_set], ordered=ordered)
    return name, tuple(spelled(getattr(value, field), ordered=ordered) for field in type(value).__dataclass_fields__)


def reordered(value: Any) -> Any:
    """Return an equal value whose mappings and sets were filled from the other end."""
    if isinstance(value, dict):
        return {reordered(key): reordered(item) for key, item in reversed(value.items())}
    if isinstance(value, set | frozenset):
        return type(value)(reversed([reordered(item) for item in value]))
    if isinstance(value, Pair):
        return Pair(*map(reordered, value))
    if isinstance(value, list | tuple):
        return type(value)(map(reordered, value))
    if isinstance(value, Frozen | Plain):
        return type(value)(*(reordered(getattr(value, field.name)) for field in fields(value)))
    return value


@given(VALUES)
@example(time(12, tzinfo=UTC))
def test_a_value_comes_back_with_the_type_of_everything_in_it(value: Any) -> None:
    data, _ = CODEC.encode(value, "state.x")
    assert spelled(CODEC.decode(data)) == spelled(value)


@given(VALUES)
def test_encoding_what_came_back_gives_the_same_bytes(value: Any) -> None:
    encoded = CODEC.encode(value, "state.x")
    assert CODEC.encode(CODEC.decode(encoded[0]), "state.y") == encoded


@given(VALUES)
def test_the_canonical_form_is_a_value_too_and_differs_in_order_at_most(value: Any) -> None:
    _, canonical = CODEC.encode(value, "state.x")
    assert spelled(CODEC.decode(canonical), ordered=False) == spelled(value, ordered=False)


@given(VALUES)
def test_the_canonical_form_does_not_know_in_which_order_a_value_was_filled(value: Any) -> None:
    assert CODEC.encode(value, "state.x")[1] == CODEC.encode(reordered(value), "state.x")[1]


@given(VALUES, VALUES)
def test_two_values_have_one_canonical_form_only_if_they_are_the_same(one: Any, other: Any) -> None:
    alike = spelled(one, ordered=False) == spelled(other, ordered=False)
    assert (CODEC.encode(one, "state.x")[1] == CODEC.encode(other, "state.x")[1]) == alike


@given(VALUES)
def test_it_does_not_matter_whether_the_native_encoder_or_the_walk_did_it(value: Any) -> None:
    """A neighbour that only the walk can encode makes it encode everything: the bytes must be the same."""
    for alone, neighbour, together in zip(
        CODEC.encode(value, "x"), CODEC.encode({1: 1}, "x"), CODEC.encode([value, {1: 1}], "x"), strict=True
    ):
        assert together == b"\x92" + alone + neighbour


STEPS = st.lists(st.from_regex(r"[a-z]{1,5}", fullmatch=True) | st.integers(0, 3), max_size=8)


@given(STEPS)
def test_a_value_that_cannot_be_kept_is_named_by_the_way_to_it(steps: list[str | int]) -> None:
    value: Any = object()
    for step in reversed(steps):
        value = {step: value, "~": None} if isinstance(step, str) else [*[0] * step, value]
    path = "state" + "".join(f".{step}" if isinstance(step, str) else f"[{step}]" for step in steps)
    with pytest.raises(StateNotSerialisable) as refused:
        CODEC.encode(value, "state")
    assert refused.value.path == path


def decoded(data: bytes) -> bool:
    """Decode bytes from anywhere: a value or one of our errors, nothing else."""
    try:
        CODEC.decode(data)
    except (DamagedData, UnknownFormat):
        return False
    return True


@given(st.binary(max_size=60))
@example(b"\xc7\x02\x05\x91\x01")
def test_bytes_from_anywhere_are_a_value_or_an_error_of_ours(data: bytes) -> None:
    decoded(data)


@given(VALUES, st.data())
def test_a_damaged_value_is_another_value_or_an_error_of_ours(value: Any, data: st.DataObject) -> None:
    stored = bytearray(CODEC.encode(value, "state.x")[0])
    for _ in range(data.draw(st.integers(1, 3))):
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    decoded(bytes(stored))


@given(VALUES, st.data())
def test_a_value_that_was_cut_off_is_never_read(value: Any, data: st.DataObject) -> None:
    stored, _ = CODEC.encode(value, "state.x")
    assert not decoded(stored[: data.draw(st.integers(0, len(stored) - 1))])


@given(st.lists(st.binary(max_size=20), min_size=1))
def test_a_digest_sees_its_parts_as_one(parts: list[bytes]) -> None:
    assert CODEC.digest(*parts) == CODEC.digest(b"".join(parts))
