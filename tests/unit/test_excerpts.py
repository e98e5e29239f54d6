"""Excerpts of values for events: short, plain JSON, without secrets, and no code of the value runs."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

import wtb
from wtb.domain.excerpts import excerpt
from wtb.domain.secrets import Masker

MASKER = Masker()


class Hostile:
    """Would raise if anybody looked at it."""

    def __repr__(self) -> str:
        raise RuntimeError("looked at")

    __str__ = __repr__
    __len__ = __repr__


class LoudText(str):
    """A text that would raise if its own method were called."""

    def __str__(self) -> str:
        raise RuntimeError("called")


@pytest.mark.parametrize("value", [None, True, 3, -1.5, "text", {"a": [1, {"b": None}]}, []])
def test_plain_values_stay_as_they_are(value: Any) -> None:
    assert excerpt(value, MASKER) == value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x" * 300, "x" * 199 + "…"),
        (b"bytes", "<bytes>"),
        (date(2026, 1, 1), "<date>"),
        (10**5_000, "<int>"),
        (float("inf"), "<float>"),
        (Hostile(), "<Hostile>"),
        (LoudText("loud"), "loud"),
        ((1, 2), [1, 2]),
        (list(range(12)), [*range(10), "… 2 more"]),
        ({1: "one"}, {"1": "one"}),
        ([[[["deep"]]]], [[["<list>"]]]),
        ({"password": "x", "n": wtb.Secret("hidden-value")}, {"password": "***", "n": "***"}),
        ("call with token=abc12345", "call with token=***"),
        ("y" * 1_990 + " password=hunter2-and-more", "y" * 199 + "…"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_values_are_shortened_masked_or_named_by_their_type(value: Any, shown: Any) -> None:
    assert excerpt(value, MASKER) == shown


def test_an_excerpt_is_small_and_json_however_large_the_value_is() -> None:
    large = {f"key {number}": ["text" * 1_000] * 100 for number in range(1_000)}
    assert len(json.dumps(excerpt(large, MASKER))) < 25_000


def test_what_was_left_out_is_counted() -> None:
    assert excerpt({str(number): number for number in range(13)}, MASKER)["…"] == "3 more"
