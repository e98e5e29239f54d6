"""A wrong clock does not change what a LangGraph thread shows after a rollback, or in a copy."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from langgraph.graph import END, START
from langgraph.types import Command, Send, interrupt

import wtb
import wtb.langgraph
from tests.langgraph_graphs import Log, graph_of, row
from wtb.bench import Bench
from wtb.domain.ids import uuid7
from wtb.langgraph import Saver
from wtb.testing.fakes import FakeClock

pytestmark = pytest.mark.usefixtures("clock")

CONFIG: Any = {"configurable": {"thread_id": "t"}}
COPY: Any = {"configurable": {"thread_id": "copy"}}
HOUR = timedelta(hours=1)


def remembering(bench: Bench, seen: list[int]) -> Any:
    """Return a graph whose subgraph remembers how often it was called."""

    def count(state: Log) -> Log:
        seen.append(len(state["log"]))
        return {"log": ["inner"]}

    inner = graph_of(Log, {"x": count}, row("x")).compile(checkpointer=True)
    outer = graph_of(Log, {"first": lambda state: None, "inner": inner}, row("first", "inner"))
    return outer.compile(checkpointer=Saver(bench))


def without_rollback(bench: Bench) -> list[int]:
    """Return what the subgraph sees in three invocations, one after the other."""
    seen: list[int] = []
    app = remembering(bench, seen)
    for number in ("1", "2", "3"):
        app.invoke({"log": [number]}, {"configurable": {"thread_id": "plain"}})
    return seen


def test_a_subgraph_forgets_what_is_behind_a_rollback_though_the_clock_was_set_back_before(
    clock: FakeClock, bench: Bench
) -> None:
    seen: list[int] = []
    app = remembering(bench, seen)
    app.invoke({"log": ["1"]}, CONFIG)
    app.invoke({"log": ["2"]}, CONFIG)
    clock.advance(-HOUR)
    bench.get("t").rollback("inner#1")
    app.invoke({"log": ["2"]}, CONFIG)
    first, second, _ = without_rollback(bench)
    assert seen == [first, second, second]


def test_a_subgraph_remembers_what_came_after_a_rollback_though_the_clock_was_set_back_after(
    clock: FakeClock, bench: Bench
) -> None:
    seen: list[int] = []
    app = remembering(bench, seen)
    for number in ("1", "2"):
        app.invoke({"log": [number]}, CONFIG)
    bench.get("t").rollback("inner#1")
    clock.advance(-HOUR)
    for number in ("2", "3"):
        app.invoke({"log": [number]}, CONFIG)
    first, second, third = without_rollback(bench)
    assert seen == [first, second, second, third]


def test_a_redo_brings_back_what_a_subgraph_remembered_though_the_clock_was_set_back(
    clock: FakeClock, bench: Bench
) -> None:
    seen: list[int] = []
    app = remembering(bench, seen)
    for number in ("1", "2"):
        app.invoke({"log": [number]}, CONFIG)
    clock.advance(-HOUR)
    run = bench.get("t")
    run.rollback("inner#1")
    run.redo()
    app.invoke({"log": ["3"]}, CONFIG)
    assert seen == without_rollback(bench)


class DescendingIds:
    """Ids of which each sorts before the one that came before it, as under a clock that runs backwards."""

    left = 1 << 40

    def new(self) -> str:
        DescendingIds.left -= 1
        return uuid7(self.left, 0, 0)


def test_visits_are_counted_on_though_later_ids_sort_before_earlier_ones(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = [Send("work", {"log": []}), Send("work", {"log": []})]
    graph = graph_of(
        Log,
        {
            "work": lambda state: {"log": ["work"]},
            "ask": lambda state: {"log": [interrupt("well?")]},
        },
        [("work", "ask")],
    )
    graph.add_conditional_edges(START, lambda state: sent, ["work"])
    graph.add_conditional_edges("ask", lambda state: "work" if len(state["log"]) < 4 else END, ["work", END])
    monkeypatch.setattr(bench.services.controller._recorder, "_ids", DescendingIds())
    run = bench.run(wtb.langgraph.workflow(graph), {"log": []})
    run = run.resume(answer="yes")
    assert [visit for node, visit in run.history.path() if node == "work"] == [2, 1, 3]


def asking(bench: Bench) -> Any:
    nodes = {
        "left": lambda state: {"log": [interrupt("left?")]},
        "right": lambda state: {"log": ["right"]},
    }
    return graph_of(Log, nodes, [("__start__", "left"), ("__start__", "right")]).compile(checkpointer=Saver(bench))


@pytest.mark.parametrize("copies", [1, 2], ids=["a copy", "a copy of a copy"])
def test_a_copy_keeps_its_question_when_the_other_thread_is_answered_under_a_clock_that_was_set_back(
    clock: FakeClock, bench: Bench, copies: int
) -> None:
    app, saver = asking(bench), Saver(bench)
    app.invoke({"log": []}, CONFIG)
    saver.copy_thread("t", "copy" if copies == 1 else "between")
    clock.advance(-HOUR)
    app.invoke(Command(resume="yes"), CONFIG)
    if copies == 2:
        saver.copy_thread("between", "copy")
    assert [each.value for each in app.get_state(COPY).interrupts] == ["left?"]
    assert sorted(app.invoke(Command(resume="no"), COPY)["log"]) == ["no", "right"]
    assert sorted(app.get_state(CONFIG).values["log"]) == ["right", "yes"]


def test_a_copy_has_what_tasks_wrote_before_it_though_the_clock_was_set_back_meanwhile(
    clock: FakeClock, bench: Bench
) -> None:
    app, saver = asking(bench), Saver(bench)
    app.invoke({"log": []}, CONFIG)
    app.invoke(Command(resume="yes"), CONFIG)
    before = [each.pending_writes for each in saver.list(CONFIG)]
    clock.advance(-HOUR)
    saver.copy_thread("t", "copy")
    assert [each.pending_writes for each in saver.list(COPY)] == before
    assert any(before)
