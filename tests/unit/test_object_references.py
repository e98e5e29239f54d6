"""Objects that another process imports or makes anew."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

import wtb
from wtb.domain.evaluation import Direction
from wtb.infrastructure.object_references import describe, described


@dataclass(frozen=True)
class Threshold:
    """A dataclass of a user."""

    least: float
    names: tuple[str, ...] = ()


class Plain:
    """A class of a user without values."""


class Holding:
    """A class of a user that holds a value."""

    def __init__(self) -> None:
        self.value = 1


@wtb.evaluator(worst=0, best=1)
def short(context: Any) -> bool:
    return len(context.state["answer"]) < 10


def read(context: Any) -> Any:
    return context.state


@pytest.mark.parametrize(
    "value",
    [
        None,
        0.5,
        "steps",
        ["a", ("b", 1)],
        {"key": [True]},
        read,
        short,
        Direction.LOWER,
        Threshold(0.5, ("a",)),
        wtb.ExactMatch("answer", expected_key="right"),
        wtb.ExactMatch(read),
        wtb.Latency(),
    ],
)
def test_what_is_described_is_made_anew_as_it_was(value: Any) -> None:
    made = described(json.loads(json.dumps(describe(value))))
    assert made == value
    assert type(made) is type(value)


def test_a_class_without_values_is_made_anew() -> None:
    assert isinstance(described(describe(Plain())), Plain)


def test_what_cannot_be_imported_is_refused_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(wtb.InvalidInput, match="cannot be imported by its name"):
        describe(lambda state: state)
    with pytest.raises(wtb.InvalidInput, match="Holding is not a dataclass"):
        describe(Holding())
    monkeypatch.setattr(read, "__module__", "__main__")
    with pytest.raises(wtb.InvalidInput, match="defined in the script that runs, or in a notebook"):
        describe(wtb.ExactMatch(read))
