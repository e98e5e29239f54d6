"""Who did it: the user of the settings is on everything that is made, and decides nothing."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import StateGraph

import wtb
import wtb.langgraph
from tests.integration.support_desk import Desk, support
from wtb.bench import Bench
from wtb.domain.errors import InvalidInput
from wtb.domain.events import SYSTEM_STREAM, EventType
from wtb.flow import Workflow
from wtb.infrastructure.system import login_name


def two_steps() -> Workflow:
    flow = Workflow("two steps")
    flow.add_node("one", lambda state: {"n": state["n"] + 1}, start=True)
    flow.add_node("two", lambda state: {"n": state["n"] + 1})
    flow.edge("one", "two")
    return flow


def doers(run: wtb.Run) -> dict[str, list[Any]]:
    """Return who did what, by type of event."""
    found: dict[str, list[Any]] = {}
    for event in run.events():
        found.setdefault(event.type.value, []).append(event.data.get("by"))
    return found


def test_the_user_is_on_the_run_and_on_every_checkpoint_also_when_somebody_else_goes_on(tmp_path: Path) -> None:
    with Bench(folder=tmp_path / "wtb", user="ann") as bench:
        run = bench.run(two_steps(), {"n": 0}, break_after=["one"], run_id="r")
        assert run.view().created_by == "ann"
    with Bench(folder=tmp_path / "wtb", user="bob") as bench:
        run = bench.resume("r", two_steps(), update={"n": 5}, break_after=[])
        assert [each.created_by for each in run.checkpoints] == ["ann", "ann", "bob", "bob"]
        assert run.execution.created_by == "ann"
        assert run.at("two").created_by == "bob"
        found = doers(run)
    assert found["execution.created"] == found["execution.started"] == ["ann"]
    assert found["execution.resumed"] == found["state.updated"] == ["bob"]
    assert found["node.completed"] == ["ann", "bob"]


@pytest.mark.parametrize("asked", ["pause", "stop"])
@pytest.mark.parametrize("is_elsewhere", [True, False])
def test_whoever_asks_a_running_run_to_end_is_named(tmp_path: Path, asked: str, is_elsewhere: bool) -> None:
    with (
        Bench(folder=tmp_path / "wtb", user="ann") as bench,
        Bench(folder=tmp_path / "wtb", user="bob by ship") as other,
    ):
        flow = Workflow("ended")
        ender = other if is_elsewhere else bench

        def ask(state: Any, ctx: Any) -> dict[str, Any]:
            getattr(ender.get(ctx.run.execution_id), asked)()
            return {}

        flow.add_node("ask", ask, start=True).add_node("next", lambda state: {}).edge("ask", "next")
        run = bench.run(flow, {})
        ended = doers(run)[{"pause": "execution.paused", "stop": "execution.cancelled"}[asked]]
    assert ended == ["bob by ship" if is_elsewhere else "ann"]


def test_a_call_can_name_somebody_else() -> None:
    with Bench("memory://", user="server") as bench:
        desk = Desk()
        run = bench.run(support(desk), {}, created_by="ann")
        assert run.execution.created_by == run.checkpoints[0].created_by == "ann"
        run.checkpoint("named", created_by="bob")
        run.rollback("b", created_by="carol")
        run.redo(created_by="dave")
        forked = run.fork("a", update={"log": []}, created_by="erin")
        assert (forked.execution.created_by, forked.checkpoints[-1].created_by) == ("erin", "erin")
        assert [journal.created_by for journal in run.rollbacks] == ["carol", "dave"]
        found = doers(run)
        assert doers(forked) == {"branch.created": ["erin"], "state.updated": ["erin"]}
        safety = [each for each in run.checkpoints if each.kind == "system"]
    assert found["execution.created"] == ["ann"]
    assert found["checkpoint.created"] == ["bob"]
    assert found["rollback.started"] == found["rollback.completed"] == found["checkpoint.restored"] == ["carol", "dave"]
    assert found["tool.reversed"] == ["carol", "carol"]
    assert found["branch.created"] == ["erin"]
    assert [each.created_by for each in safety] == ["carol"]


def test_whoever_continues_a_rollback_is_named_for_the_rest_of_it(tmp_path: Path) -> None:
    desk = Desk()
    desk.broken = True
    with Bench(folder=tmp_path / "wtb", user="ann") as bench:
        run = bench.run(support(desk), {}, run_id="r")
        with pytest.raises(wtb.WTBError):
            run.rollback("c")
    desk.broken = False
    with Bench(folder=tmp_path / "wtb", user="bob") as bench:
        run = bench.get("r")
        run.continue_rollback()
        found = doers(run)
    assert found["rollback.started"] == found["rollback.failed"] == ["ann"]
    assert found["rollback.completed"] == found["tool.reversed"] == ["bob"]


def test_deletions_say_who_deleted() -> None:
    with Bench("memory://", user="ann") as bench:
        run = bench.run(two_steps(), {"n": 0}, run_id="r")
        run.delete(1)
        run.delete()
        log = bench.services.queries.event_page("r").events
    deleted = [event for event in log if event.type in (EventType.CHECKPOINT_DELETED, EventType.EXECUTION_DELETED)]
    assert [event.data["by"] for event in deleted] == ["ann", "ann"]


def test_batches_and_baselines_say_who_changed_them() -> None:
    cases: list[dict[str, Any]] = [{"id": "1", "input": {"n": 0}}]
    with Bench("memory://", user="ann") as bench:
        batch = bench.batch(two_steps(), name="nightly", cases=cases, evaluators=[wtb.Steps()])
        bench.evaluate("nightly", [wtb.Latency()])
        bench.set_baseline("main", "nightly")
        bench.delete_baseline("main")
        bench.delete_batch("nightly")
        log = bench.services.queries.event_page().events
    told = [(event.type.value, event.stream) for event in log if event.stream in (batch.id, SYSTEM_STREAM)]
    assert told == [
        ("batch.started", batch.id),
        ("batch.completed", batch.id),
        ("batch.scored", batch.id),
        ("baseline.kept", SYSTEM_STREAM),
        ("baseline.deleted", SYSTEM_STREAM),
        ("batch.deleted", batch.id),
    ]
    assert {event.data["by"] for event in log if event.stream in (batch.id, SYSTEM_STREAM)} == {"ann"}


def test_results_are_shared_whoever_made_them(tmp_path: Path) -> None:
    cases: list[dict[str, Any]] = [{"id": "1", "input": {"n": 0}}]
    counts = []
    for user in ("ann", "bob"):
        with Bench(folder=tmp_path / "wtb", user=user) as bench:
            bench.batch(two_steps(), name=user, cases=cases, evaluators=[wtb.Steps()])
            (job,) = bench.services.queries.batch(user).jobs
            counts.append((job.record.executed, job.record.shared))
    assert counts == [(2, 0), (0, 2)]


class Counted(TypedDict):
    n: int


def test_a_thread_says_who_began_it_and_its_checkpoints_keep_the_run_id_of_langgraph() -> None:
    builder: Any = StateGraph(Counted)
    builder.add_node("add", lambda state: {"n": state["n"] + 1})
    builder.set_entry_point("add")
    with Bench("memory://", user="ann") as bench:
        saver = wtb.langgraph.Saver(bench)
        graph = builder.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "t"}, "metadata": {"run_id": "first"}}
        graph.invoke({"n": 0}, config)
        thread = bench.get("t")
        assert thread.execution.created_by == "ann"
        assert {each.created_by for each in thread.checkpoints} == {"first"}
        assert doers(thread) == {"execution.created": ["ann"]}
        saver.delete_for_runs(["ann"])
        assert graph.get_state(config).values == {"n": 1}
        saver.delete_for_runs(["first"])
        assert graph.get_state(config).values == {}
        (deleted,) = [event for event in bench.events(run="t") if event.type is EventType.EXECUTION_DELETED]
        assert deleted.data["by"] == "ann"


def test_the_variable_names_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WTB_USER", " Ann Müller ")
    with Bench("memory://") as bench:
        assert bench.run(two_steps(), {"n": 0}).execution.created_by == "Ann Müller"


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[31mred", "   ", "x" * 201])
def test_a_name_that_would_spoil_a_table_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="user"):
        Bench("memory://", user=name)


def test_without_a_setting_it_is_the_login_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WTB_USER", raising=False)
    monkeypatch.setattr(getpass, "getuser", lambda: "login")
    with Bench("memory://") as bench:
        assert bench.run(two_steps(), {"n": 0}).execution.created_by == "login"


@pytest.mark.parametrize("error", [OSError, KeyError, ImportError])
def test_a_user_without_a_name_is_unknown(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def nameless() -> str:
        raise error("uid not found: 1234")

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert login_name() == "unknown"


@pytest.mark.parametrize(("name", "shown"), [("", "unknown"), ("a\nb", "a?b"), ("\udcff", "?"), ("x" * 300, "x" * 200)])
def test_a_strange_login_name_is_made_fit(monkeypatch: pytest.MonkeyPatch, name: str, shown: str) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: name)
    assert login_name() == shown
