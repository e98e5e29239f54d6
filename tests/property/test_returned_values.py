"""Whatever list or mapping a node returns, the next state holds it, as a plain assignment would, on every store.

A state is stored by what changed, which is found by comparing. So nodes return values here that equal the old ones
but are of other types, that they changed in place, that are in another order, that two keys share, or that they change
later.
"""

from __future__ import annotations

from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.model import frozen
from wtb.bootstrap import Services, bootstrap
from wtb.domain.options import RunOptions
from wtb.flow import Workflow
from wtb.infrastructure.sql import schema
from wtb.settings import Settings
from wtb.storage_bootstrap import open_database

ATOMS = (0, 1, True, False, 0.0, -0.0, 1.0, float("nan"), None, "", "1", b"1", 1 << 70)
NESTED: tuple[Any, ...] = (
    (1,),
    (True,),
    [1],
    [True],
    [[0.0]],
    {"a": 1},
    {"a": True},
    {"a": 1, "b": 2},
    {"b": 2, "a": 1},
    {"a": {"b": []}},
)
VALUES = (*ATOMS, *NESTED, Decimal("1.0"), Decimal("1.00"), {1}, {True}, {1: "x"}, {True: "x"}, "x" * 300)

values = st.sampled_from(VALUES)
lists = st.builds(
    lambda some, times: some * times, st.lists(values, min_size=1, max_size=6), st.sampled_from((1, 3, 9))
)
mappings = st.builds(
    lambda some, length: {f"k{number}": some[number % len(some)] for number in range(length)},
    st.lists(values, min_size=1, max_size=6),
    st.sampled_from((1, 31, 32, 33, 50)),
)


class Edit(NamedTuple):
    """What a node does with the value that it is given."""

    verb: str
    at: int
    value: Any


VERBS = (
    "add",
    "add",
    "add",
    "begin",
    "replace",
    "remove",
    "shorten",
    "inside",
    "inside and add",
    "move",
    "same",
    "swap",
)
edits = st.lists(st.builds(Edit, st.sampled_from(VERBS), st.integers(0, 60), values), min_size=1, max_size=6)


def edited(given: Any, edit: Edit) -> Any:
    """Return what a node makes of a list or mapping; `inside` changes what it was given in place."""
    given = list(given.items()) if (is_mapping := type(given) is dict) else given
    at = edit.at % max(1, len(given))
    new = (f"n{edit.at}", edit.value) if is_mapping else edit.value
    match edit.verb:
        case "add":
            given = [*given, new]
        case "begin":
            given = [new, *given]
        case "replace":
            given = [*given[:at], (given[at][0], edit.value) if is_mapping and given else new, *given[at + 1 :]]
        case "remove":
            given = [*given[:at], *given[at + 1 :]]
        case "shorten":
            given = given[:at]
        case "inside" | "inside and add":
            change_inside([value for _, value in given] if is_mapping else given, at)
            given = [*given, new] if edit.verb == "inside and add" else given
        case "move" if given:
            given = [*given[:at], *given[at + 1 :], given[at]]
    return dict(given) if is_mapping else given


def change_inside(values: list[Any], at: int) -> None:
    """Change the first value from here on that can be changed."""
    for value in values[at:]:
        if type(value) is dict:
            value["inside"] = at
            return
        if type(value) is list:
            value.append(at)
            return


def check(services: Services, start: dict[str, Any], todo: list[Edit]) -> None:
    """Run one node that makes these edits, one a visit; compare all that was stored with plain copies of it."""
    expected: list[dict[str, Any]] = [deepcopy(start)]
    returned: list[dict[str, Any]] = []
    held: list[Any] = []

    def node(state: Any) -> dict[str, Any]:
        for value in held:  # what was returned before; the state must not see this
            value.clear()
        edit = todo[len(returned)]
        update = {"v": edited(state["v"], edit)}
        if edit.verb == "swap":
            update = {"v": state["w"], "w": state["w"]} if edit.at % 2 else {"v": state["w"], "w": state["v"]}
        returned.append(deepcopy(update))
        expected.append({**expected[-1], **deepcopy(update)})
        held[:] = update.values()
        return update

    flow = Workflow("edits").add_node("node", node, start=True).edge("node", "node").definition()
    run = services.controller.create(flow, deepcopy(start), RunOptions(max_steps=len(todo)))
    assert services.controller.run(run.id, flow).failure.type == "StepLimitReached"  # type: ignore[union-attr]
    with services.storage.unit_of_work(readonly=True) as uow:
        ids = [checkpoint.id for checkpoint in uow.checkpoints.list_infos(run.id)]
        many, single = list(uow.checkpoints.load_many(ids)), [uow.checkpoints.load(id) for id in ids]
    for snapshots in (many, single):
        states = [[snapshot.state["v"], snapshot.state["w"]] for snapshot in snapshots]
        assert frozen(states, ordered=True) == frozen([[each["v"], each["w"]] for each in expected], ordered=True)
        updates = [snapshot.returned["node"] for snapshot in snapshots[1:]]
        assert frozen(updates, ordered=True) == frozen(returned, ordered=True)


def examples(services: Services, count: int) -> None:
    """Check so many examples."""

    @settings(max_examples=count)
    @given(st.fixed_dictionaries({"v": lists | mappings, "w": lists | mappings}), edits)
    def run(start: dict[str, Any], todo: list[Edit]) -> None:
        check(services, start, todo)

    run()


def test_in_memory() -> None:
    with bootstrap(Settings(url="memory://")) as services:
        examples(services, 150)


def test_on_sqlite(tmp_path: Path) -> None:
    with bootstrap(Settings(folder=tmp_path / "wtb")) as services:
        examples(services, 60)


def test_on_postgres(postgres_url: str) -> None:
    database = open_database(Settings(url=postgres_url))
    schema.upgrade(database)
    database.close()
    with bootstrap(Settings(url=postgres_url)) as services:
        examples(services, 20)


@pytest.mark.parametrize("old", [[1] * 40, {f"k{number}": 1 for number in range(40)}], ids=["list", "mapping"])
@pytest.mark.parametrize("other", [True, 1.0, "1"], ids=repr)
def test_one_of_many_that_is_merely_equal_is_a_change(old: Any, other: Any) -> None:
    with bootstrap(Settings(url="memory://")) as services:
        check(services, {"v": old, "w": [[]]}, [Edit("replace", 20, other), Edit("add", 50, other)])
