"""Threads that LangGraph runs, moved by WTB: after a rollback everything behind it happens anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from tests.langgraph_graphs import Log, graph_of, row, says
from wtb.bench import Bench
from wtb.domain.errors import InvalidInput
from wtb.domain.ids import ExecutionId
from wtb.infrastructure.langgraph.saver.records import Record
from wtb.infrastructure.langgraph.values import ChannelValues
from wtb.langgraph import Saver, import_threads

CONFIG: Any = {"configurable": {"thread_id": "t"}}


def noting(ran: list[str]) -> Any:
    """Return what makes nodes that say their name, and note that they ran."""

    def node(name: str) -> Any:
        def run(state: Log) -> Log:
            ran.append(name)
            return {"log": [f"{name}{ran.count(name)}"]}

        return run

    return node


def test_a_node_behind_a_rollback_runs_again(bench: Bench) -> None:
    ran: list[str] = []
    node = noting(ran)
    graph = graph_of(Log, {name: node(name) for name in "abc"}, row(*"abc")).compile(checkpointer=Saver(bench))
    graph.invoke({"log": []}, CONFIG)
    bench.get("t").rollback("a")
    assert graph.get_state(CONFIG).next == ("b",)
    assert graph.invoke(None, CONFIG) == {"log": ["a1", "b2", "c2"]}


def asking(ran: list[str]) -> StateGraph[Any]:
    node = noting(ran)
    nodes = {"a": node("a"), "ask": lambda state: {"log": [interrupt("well?")]}, "b": node("b")}
    return graph_of(Log, nodes, row("a", "ask", "b"))


@pytest.mark.parametrize("nested", [False, True])
def test_a_question_behind_a_rollback_is_asked_again(bench: Bench, nested: bool) -> None:
    ran: list[str] = []
    graph = asking(ran)
    outer = graph_of(Log, {"first": lambda state: None, "inner": graph.compile()}, row("first", "inner"))
    app = (outer if nested else graph).compile(checkpointer=Saver(bench))
    app.invoke({"log": []}, CONFIG)
    app.invoke(Command(resume="yes"), CONFIG)
    bench.get("t").rollback("first" if nested else "a")
    app.invoke(None, CONFIG)
    assert [each.value for each in app.get_state(CONFIG).interrupts] == ["well?"]
    assert app.invoke(Command(resume="no"), CONFIG)["log"][1:] == ["no", "b2"]
    assert ran == (["a", "b", "a", "b"] if nested else ["a", "b", "b"])


def test_a_redo_finds_the_question_as_it_was(bench: Bench) -> None:
    app = asking([]).compile(checkpointer=Saver(bench))
    app.invoke({"log": []}, CONFIG)
    run = bench.get("t")
    run.rollback(1)
    run.redo()
    assert [each.value for each in app.get_state(CONFIG).interrupts] == ["well?"]
    assert app.invoke(Command(resume="yes"), CONFIG) == {"log": ["a1", "yes", "b1"]}


def test_a_subgraph_with_a_memory_forgets_what_is_behind_a_rollback(bench: Bench) -> None:
    seen: list[int] = []

    def counts(state: Log) -> Log:
        seen.append(len(state["log"]))
        return {"log": ["inner"]}

    inner = graph_of(Log, {"x": counts}, row("x")).compile(checkpointer=True)
    outer = graph_of(Log, {"first": lambda state: None, "inner": inner}, row("first", "inner"))
    app = outer.compile(checkpointer=Saver(bench))
    app.invoke({"log": ["1"]}, CONFIG)
    app.invoke({"log": ["2"]}, CONFIG)
    bench.get("t").rollback("inner#1")
    app.invoke({"log": ["2"]}, CONFIG)
    assert seen[2] == seen[1]


def test_a_thread_is_changed_by_its_graph_only(bench: Bench) -> None:
    graph = asking([]).compile(checkpointer=Saver(bench))
    graph.invoke({"log": []}, CONFIG)
    run = bench.get("t")
    with pytest.raises(InvalidInput, match="only its graph changes"):
        run.fork(1, update={"log": ["changed"]})
    with pytest.raises(InvalidInput, match="only its graph changes"):
        run.fork(1, input={"log": ["changed"]})
    other: Any = {"configurable": {"thread_id": run.fork("a").id}}
    assert graph.get_state(other).next == ("ask",)
    graph.invoke(None, other)
    assert graph.invoke(Command(resume="yes"), other) == {"log": ["a1", "yes", "b1"]}


def test_a_thread_cannot_have_the_id_of_a_run(bench: Bench) -> None:
    graph = graph_of(Log, {"a": lambda state: {"log": ["a"]}}, row("a"))
    bench.run(graph, {"log": ["run"]}, run_id="t")
    saver = Saver(bench)
    app = graph.compile(checkpointer=saver)
    for call in (
        lambda: app.invoke({"log": ["thread"]}, CONFIG),
        lambda: saver.delete_thread("t"),
        lambda: saver.copy_thread("t", "u"),
    ):
        with pytest.raises(InvalidInput, match="'t' is a run of WTB, not a LangGraph thread; choose another thread_id"):
            call()
    assert bench.get("t").state == {"log": ["run", "a"]}


def test_an_import_passes_over_a_thread_whose_id_a_run_has(bench: Bench, tmp_path: Path) -> None:
    graph = graph_of(Log, {"a": lambda state: {"log": ["a"]}}, row("a"))
    bench.run(graph, {"log": ["run"]}, run_id="t")
    with SqliteSaver.from_conn_string(str(tmp_path / "theirs")) as theirs:
        for thread_id in ("t", "u"):
            graph.compile(checkpointer=theirs).invoke({"log": []}, {"configurable": {"thread_id": thread_id}})
    imported = import_threads(str(tmp_path / "theirs"), Saver(bench))
    assert (imported.threads, imported.present) == (1, ("t",))


def _values(graph: Any, saver: Any) -> list[Any]:
    """Return everything that a reader of the history of the thread sees of it."""
    seen = graph.compile(checkpointer=saver).get_state_history(CONFIG)
    return [(each.values, each.next, each.metadata, [task.result for task in each.tasks]) for each in seen]


class _Killed(BaseException):
    """Ends an import as a kill would."""


@pytest.mark.parametrize("method", ["put", "put_writes"])
def test_an_import_that_was_killed_anywhere_is_finished_by_the_next(
    bench: Bench, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of(Log, {name: lambda state, name=name: {"log": [name]} for name in "ab"}, row("a", "b"))
    with SqliteSaver.from_conn_string(str(tmp_path / "theirs")) as theirs:
        graph.compile(checkpointer=theirs).invoke({"log": []}, CONFIG)
        wanted = _values(graph, theirs)
    for kills in range(len(wanted)):
        ours, calls = Saver(bench), [0]
        original = getattr(ours, method)

        def killed(*args: Any, kills: int = kills, calls: list[int] = calls, original: Any = original) -> Any:
            calls[0] += 1
            if calls[0] > kills:
                raise _Killed
            return original(*args)

        with monkeypatch.context() as patched:
            patched.setattr(ours, method, killed)
            with pytest.raises(_Killed):
                import_threads(str(tmp_path / "theirs"), ours)
        assert import_threads(str(tmp_path / "theirs"), Saver(bench)).checkpoints <= len(wanted)
        assert _values(graph, Saver(bench)) == wanted
        Saver(bench).delete_thread("t")


def test_an_import_brings_what_came_since_the_last_unless_the_thread_went_on_here(bench: Bench, tmp_path: Path) -> None:
    graph = graph_of(Log, {"a": lambda state: {"log": ["a"]}}, row("a"))
    path, ours = str(tmp_path / "theirs"), Saver(bench)
    with SqliteSaver.from_conn_string(path) as theirs:
        graph.compile(checkpointer=theirs).invoke({"log": ["one"]}, CONFIG)
        assert import_threads(path, ours).checkpoints == 3
        graph.compile(checkpointer=theirs).invoke({"log": ["two"]}, CONFIG)
        assert import_threads(path, ours) == (1, 3, ())
        assert _values(graph, ours) == _values(graph, theirs)
        graph.compile(checkpointer=theirs).invoke({"log": ["three"]}, CONFIG)
    graph.compile(checkpointer=ours).invoke({"log": ["mine"]}, CONFIG)
    before = _values(graph, ours)
    assert import_threads(path, ours) == (0, 0, ("t",))
    assert _values(graph, ours) == before


def test_a_step_of_what_was_sent_is_known_by_its_node_and_the_state_holds_nothing_of_the_sending(bench: Bench) -> None:
    nodes = {"plan": says("plan"), "work": lambda given: {"log": [given["n"]]}}
    graph = graph_of(Log, nodes, [(START, "plan"), ("work", "plan")])
    graph.add_conditional_edges(
        "plan", lambda state: [Send("work", {"n": n}) for n in (1, 2)] if len(state["log"]) < 6 else END
    )
    app = graph.compile(checkpointer=Saver(bench))
    config: Any = {"configurable": {"thread_id": "t"}}
    assert app.invoke({"log": []}, config)["log"] == ["plan", 1, 2, "plan", 1, 2, "plan"]

    rows = bench.get("t").checkpoints
    assert [(row.node, row.visit) for row in rows[2:]] == [
        ("plan", 1), ("work", 1), ("plan", 2), ("work", 2), ("plan", 3)
    ]  # fmt: skip
    assert [row.next_nodes for row in rows[1:]] == [("plan",), ("work",), ("plan",), ("work",), ("plan",), ()]
    assert set(bench.get("t").state) == {"log"}
    with Saver(bench) as again:  # which knows nothing of the thread yet
        later = graph.compile(checkpointer=again)
        sent = [snapshot for snapshot in later.get_state_history(config) if snapshot.next == ("work", "work")]
        assert later.invoke(None, sent[-1].config)["log"] == ["plan", 1, 2, "plan", 1, 2, "plan"]


def test_the_record_of_a_checkpoint_is_no_update_of_a_node_and_is_read_where_earlier_versions_kept_it(
    bench: Bench,
) -> None:
    saver = Saver(bench)
    graph = graph_of(Log, {"a": says("a")}, row("a")).compile(checkpointer=saver)
    graph.invoke({"log": []}, CONFIG)
    with bench.services.storage.unit_of_work(readonly=True) as uow:
        snapshots = [uow.checkpoints.load(checkpoint.id) for checkpoint in uow.checkpoints.list_infos(ExecutionId("t"))]
    values = ChannelValues(saver.serde)
    assert len(snapshots) > 1
    for snapshot in snapshots:
        assert not snapshot.returned
        earlier = replace(snapshot, memory=None, returned={"langgraph": dict(snapshot.memory or {})})
        assert Record.of(earlier, values) == Record.of(snapshot, values) is not None
