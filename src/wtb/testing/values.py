"""Values that stores must give back exactly, and those that they may refuse but must never change."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

_BERLIN = ZoneInfo("Europe/Berlin")

EXACT_VALUES: dict[str, Any] = {
    "none": None,
    "bools": [True, False],
    "ints": [0, -1, 1 << 63, -(1 << 63), (1 << 64) - 1],
    "huge ints": [1 << 64, -(1 << 63) - 1, 1 << 5_000, -(1 << 5_000)],
    "floats": [0.0, -0.0, 1.5, 1e308, 5e-324, float("inf"), float("-inf"), float("nan")],
    "text": ["", "plain", "naïve ☃ 𝄞", "a\x00b", "\r\n\u2028"],
    "lone surrogates": {"text": "a\ud800b", "\udfff": ["\udfff"]},
    "bytes": [b"", b"\x00\xff"],
    "an empty list": [],
    "an empty mapping": {},
    "nested": {"b": [{"z": 1, "a": {"y": [], "x": {}}}], "a": None},
    "tuples": [(), (1,), (1, (2, [3]))],
    "sets": [set(), {1, "1", (1, 2)}, frozenset({frozenset({1}), b"x"})],
    "keys of all kinds": {1: "int", "1": "text", (1, 2): "tuple", None: "none", 1.5: "float", b"1": "bytes"},
    "times": [
        datetime(2026, 1, 1, 12, 30, 15, 123_456),  # noqa: DTZ001  a naive time is a value like any other
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=45, seconds=7))),
        datetime(2026, 7, 1, tzinfo=_BERLIN),
        datetime(2026, 10, 25, 2, 30, tzinfo=_BERLIN, fold=1),
        date(9999, 12, 31),
        time(23, 59, 59, 999_999),
        time(1, 30, fold=1),
        time(12, tzinfo=UTC),
        time(12, tzinfo=_BERLIN),
        timedelta(days=-1, microseconds=1),
    ],
    "decimals": [Decimal("1.10"), Decimal("-0"), Decimal("1E+400"), Decimal("Infinity")],
    "a uuid": UUID("12345678-1234-5678-1234-567812345678"),
    "tags within tags": {"x": ({1: (b"y", {2, 3}), "\ud800": [Decimal(1)]},)},
}
"""What every codec and store keeps, by what it shows."""


def nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
    """Return a value inside so many layers."""
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


def _circle() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


WRAPS: dict[str, Callable[[Any], Any]] = {
    "lists": lambda value: [value],
    "mappings": lambda value: {"a": value},
    "numbered": lambda value: {1: value},
    "tuples": lambda value: (value,),
    "sets": lambda value: frozenset({value}),
    "mixed": lambda value: [{"a": (value,)}],
}
"""Ways of putting a value into another."""

AWKWARD_VALUES: dict[str, Any] = {
    "a circle": _circle(),
    "a bytearray": bytearray(b"changes"),
    "a memory view": memoryview(b"window"),
    "a range": range(3),
    "a complex number": 1j,
    "a signalling decimal": Decimal("sNaN"),
    **{f"{depth} {name}": nested(depth, wrap) for depth in (190, 400, 5_000) for name, wrap in WRAPS.items()},
}
"""What may be refused, with an error that says why, but never changes and never breaks anything."""


def identical(one: Any, other: Any) -> bool:
    """Equal and of the same types throughout, mappings in the same order; a NaN is identical to a NaN."""
    pairs = [(one, other)]  # not recursive: values nest deeper than the stack
    while pairs:
        left, right = pairs.pop()
        if type(left) is not type(right):
            return False
        if isinstance(left, dict | list | tuple):
            if len(left) != len(right):
                return False
            pairs += zip(_parts(left), _parts(right), strict=True)
        elif not _same(left, right):
            return False
    return True


def _parts(value: Any) -> list[Any]:
    return [part for pair in value.items() for part in pair] if isinstance(value, dict) else list(value)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, set | frozenset):
        return {(type(item), item) for item in one} == {(type(item), item) for item in other}
    if isinstance(one, float | Decimal | datetime | time):  # zones, folds, -0.0 and NaN are lost on ==
        return repr(one) == repr(other)
    return bool(one == other)
