"""The contract of Codec: a subclass gives the fixtures `codec`, and `unknown`, the bytes of a value of another's."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from itertools import combinations
from typing import Any

import pytest

from wtb.domain.errors import DamagedData, StateNotSerialisable, UnknownFormat
from wtb.domain.ports import Codec
from wtb.testing.values import AWKWARD_VALUES, EXACT_VALUES, WRAPS, identical, nested

_SAME_IN_ANOTHER_ORDER: dict[str, tuple[Any, Any]] = {
    "mappings": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "inner mappings": ([{"x": {"a": 1, "b": 2}}], [{"x": {"b": 2, "a": 1}}]),
    "mappings in tuples": (({"a": 1, "b": 2},), ({"b": 2, "a": 1},)),
    "keys that are no text": ({1: "x", (2,): "y"}, {(2,): "y", 1: "x"}),
    "mappings under such keys": ({1: {"a": 1, "b": 2}}, {1: {"b": 2, "a": 1}}),
    "keys that are lone surrogates": ({"\ud800": 1, "a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}, "\ud800": 1}),
    "sets": ({1, 9, 17, 25}, {25, 17, 9, 1}),
    "sets of sets": ({frozenset({8, 16}), frozenset({1})}, {frozenset({1}), frozenset({16, 8})}),
}

_DIFFERENT: tuple[Any, ...] = (
    *(0, 1, True, False, None, 0.0, -0.0, 1.0, Decimal(1), Decimal("1.0"), "", "1", b"1", "None", b""),
    *([], (), {}, set(), frozenset(), [1], (1,), {1}, frozenset({1}), [[1]], ["1"], {"1": 1}, {1: 1}, [1, 1]),
    *([["1", 1]], {"1": None}, {"": 1}, {"": "1"}, 1 << 64, str(1 << 64), "\ud800", b"\xed\xa0\x80"),
)


def _callback() -> None: ...


_REFUSED: dict[str, tuple[Any, str]] = {
    "state.agent": (_callback, "function"),
    "state.agent.callback": ({"name": "x", "callback": _callback}, "function"),
    "state.agent.tools[1]": ({"tools": ["search", object()]}, "object"),
    "state.agent[0].lock": (({"lock": _callback},), "function"),
    "state.agent[7]": ({7: iter(())}, "tuple_iterator"),
    "state.agent.a.b[2].c": ({"a": {"b": [0, 1, {"c": type}]}}, "type"),
}


class CodecContract:
    """What every codec does."""

    @pytest.mark.parametrize("value", EXACT_VALUES.values(), ids=EXACT_VALUES.keys())
    def test_a_value_comes_back_exactly(self, codec: Codec, value: Any) -> None:
        data, _ = codec.encode(value, "state.x")
        assert identical(codec.decode(data), value)

    @pytest.mark.parametrize("value", AWKWARD_VALUES.values(), ids=AWKWARD_VALUES.keys())
    def test_an_awkward_value_comes_back_exactly_or_is_refused_by_its_path(self, codec: Codec, value: Any) -> None:
        assert _kept_or_refused(codec, value)

    @pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS.keys())
    def test_what_was_kept_can_be_read_from_any_depth_of_the_stack(
        self, codec: Codec, wrap: Callable[[Any], Any]
    ) -> None:
        for depth in (50, 90, 150, 300, 450):
            value = nested(depth, wrap)
            with suppress(StateNotSerialisable):
                data, _ = codec.encode(value, "state.x")
                assert identical(_at_depth(700, codec.decode, data), value)

    @pytest.mark.parametrize("pair", _SAME_IN_ANOTHER_ORDER.values(), ids=_SAME_IN_ANOTHER_ORDER.keys())
    def test_the_canonical_form_does_not_know_the_order_of_filling(self, codec: Codec, pair: tuple[Any, Any]) -> None:
        one, other = (codec.encode(value, "state.x")[1] for value in pair)
        assert one == other

    def test_different_values_have_different_canonical_forms(self, codec: Codec) -> None:
        forms = [(value, codec.encode(value, "state.x")[1]) for value in _DIFFERENT]
        alike = [(one, other) for (one, form), (other, its_form) in combinations(forms, 2) if form == its_form]
        assert alike == []

    def test_canonical_forms_are_the_same_each_time(self, codec: Codec) -> None:
        for value in EXACT_VALUES.values():
            assert codec.encode(value, "state.x") == codec.encode(value, "state.y")

    @pytest.mark.parametrize(("path", "refused"), _REFUSED.items(), ids=_REFUSED.keys())
    def test_what_cannot_be_kept_is_named_by_its_path_and_type(
        self, codec: Codec, path: str, refused: tuple[Any, str]
    ) -> None:
        value, kind = refused
        with pytest.raises(StateNotSerialisable) as raised:
            codec.encode(value, "state.agent")
        assert raised.value.path == path
        assert str(raised.value).startswith(f"{path}: {kind}")

    def test_each_decoding_gives_a_value_of_its_own(self, codec: Codec) -> None:
        data, _ = codec.encode({"items": [1]}, "state.x")
        codec.decode(data)["items"].append(2)
        assert codec.decode(data) == {"items": [1]}

    def test_a_type_that_is_not_known_here_is_said_to_be_so(self, codec: Codec, unknown: bytes) -> None:
        with pytest.raises(UnknownFormat):
            codec.decode(unknown)

    def test_bytes_that_are_no_value_are_damage(self, codec: Codec) -> None:
        data, _ = codec.encode({"a": [1, ("x", {"b": Decimal(1)})]}, "state.x")
        for end in range(len(data)):
            with pytest.raises(DamagedData):
                codec.decode(data[:end])

    def test_a_digest_sees_its_parts_as_one(self, codec: Codec) -> None:
        assert codec.digest(b"ab", b"", b"c") == codec.digest(b"abc")
        assert len(codec.digest(b"abc")) == 32

    def test_digests_of_different_bytes_differ(self, codec: Codec) -> None:
        digests = {codec.digest(data) for data in (b"", b"\x00", b"a", b"b", b"ab", b"ba")}
        assert len(digests) == 6

    def test_threads_share_a_codec(self, codec: Codec) -> None:
        values = [{"number": number, "items": [(number, str(number))] * 20} for number in range(200)]
        with ThreadPoolExecutor(4) as pool:
            decoded = pool.map(lambda value: codec.decode(codec.encode(value, "state.x")[0]), values)
            assert list(decoded) == values


def _kept_or_refused(codec: Codec, value: Any) -> bool:
    try:
        data, _ = codec.encode(value, "state.x")
    except StateNotSerialisable as error:
        return str(error).startswith("state.x")
    return identical(codec.decode(data), value)


def _at_depth(depth: int, action: Callable[[bytes], Any], data: bytes) -> Any:
    return action(data) if depth == 0 else _at_depth(depth - 1, action, data)
