"""What a worker does with a command: also when an earlier worker was killed in the middle, and with graphs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from wtb.application.queries.tagged_json import TaggedJson
from wtb.application.server import served_workflows
from wtb.application.server.run_marks import read_mark
from wtb.application.server.served_workflows import ServedWorkflows, absolute, is_under
from wtb.bench import Bench
from wtb.bootstrap import bootstrap
from wtb.domain.commands import Command, CommandKind
from wtb.domain.errors import (
    InvalidInput,
    TooManyRequests,
    VersionMismatch,
    WorkerFailed,
    WorkflowNotFound,
    WorkflowNotServed,
)
from wtb.domain.execution import ExecutionStatus
from wtb.domain.ids import ExecutionId
from wtb.domain.secrets import Masker
from wtb.infrastructure.codecs.state_classes import StateClasses
from wtb.infrastructure.runners.command_process import CommandProcess
from wtb.server_bootstrap import command_server
from wtb.server_commands import HANDLERS
from wtb.server_commands.context import CommandContext
from wtb.server_commands.workflows import answer
from wtb.settings import Settings

_FLOW = """
import wtb
flow = wtb.Workflow("steps")
calls = []

@flow.node(start=True)
def one(state):
    return {"n": state.get("n", 0) + 1}

@flow.node
def two(state, ctx):
    calls.append(state["n"])
    return {"answers": [ctx.ask("first?"), ctx.ask("second?")] if state.get("asks") else [], "seen": state["n"]}

flow.edge("one", "two")
"""

_GRAPH = """
from typing import Annotated, TypedDict
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]

def answer(state):
    return {"messages": [AIMessage("you said " + state["messages"][-1].content, id="a1")]}

builder = StateGraph(Chat)
builder.add_node(answer)
builder.add_edge(START, "answer")
builder.add_edge("answer", END)
graph = builder.compile()
"""


_BATCH = """
from contextlib import suppress

import wtb
from wtb.bench import Bench
from wtb.bootstrap import bootstrap
from wtb.settings import Settings

flow = wtb.Workflow("dear")

@flow.node(start=True)
def answer(state, ctx):
    ctx.usage(model="m", input_tokens=10)
    if state["cancels"]:
        with suppress(wtb.InvalidInput), Bench._over(bootstrap(Settings(folder={folder!r}))) as other:
            other.cancel_batch("dear")
    return {{"answer": 1}}
"""


class Workers:
    """Carries out commands in this process, as worker after worker would."""

    def __init__(self, folder: Path, home: Path, flow: str) -> None:
        self._folder = folder
        self.flow = flow
        self.bench = Bench._over(bootstrap(Settings(folder=home, user="Ada")))

    def carry_out(self, kind: CommandKind, subject: str, reference: str, attempts: int = 1, **given: Any) -> Any:
        command = Command(
            id="c",
            kind=kind,
            subject=subject,
            arguments=given,
            created_by="Ada",
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
            attempts=attempts,
        )
        ctx = CommandContext(bench=self.bench, reference=str(self._folder / reference))
        return HANDLERS[kind](ctx, command)

    def mark(self, run_id: str) -> dict[str, Any]:
        return read_mark(self.bench.services.storage, run_id)[1].to_data()

    def claim_and_die(self, run_id: str) -> None:
        """Leave a run as a worker does that is killed after it took it, before it changed it."""
        services = self.bench.services
        place, _, start = services.owners.me().rpartition("/")
        services.recorder.begin(services.recorder.load(ExecutionId(run_id)), f"{place}/{int(start) + 1}")

    def state(self, run_id: str) -> dict[str, Any]:
        return self.bench.services.queries.state(run_id)[1]


@pytest.fixture
def workers(empty_folder: Path, sqlite_folder: Path) -> Iterator[Workers]:
    name = f"steps_{empty_folder.parent.name.replace('-', '_')}"
    (empty_folder / f"{name}.py").write_text(_FLOW)
    made = Workers(empty_folder, sqlite_folder, f"{name}.py:flow")
    with made.bench:
        yield made


def _broken(workers: Workers, run_id: str, **input: Any) -> dict[str, Any]:
    options = {"break_before": ["two"]}
    workers.carry_out(CommandKind.RUN_START, run_id, workers.flow, input=input, options=options)
    return workers.mark(run_id)


def test_a_run_that_exists_is_not_started_again(workers: Workers) -> None:
    first = workers.carry_out(CommandKind.RUN_START, "r", workers.flow, input={"n": 1})
    again = workers.carry_out(CommandKind.RUN_START, "r", workers.flow, attempts=2, input={"n": 1})
    assert again == first
    assert first["run"]["status"] == "completed"


def test_a_run_that_was_only_created_is_not_started_by_the_next_worker(workers: Workers) -> None:
    first = workers.carry_out(CommandKind.RUN_START, "r", workers.flow, input={"n": 1}, start=False)
    again = workers.carry_out(CommandKind.RUN_START, "r", workers.flow, attempts=2, input={"n": 1}, start=False)
    assert again == first
    assert first["run"]["status"] == "pending"


def test_an_edit_is_made_by_the_next_worker_if_the_first_died_before_it(workers: Workers) -> None:
    mark = _broken(workers, "r", n=1)
    workers.claim_and_die("r")
    update = {"set": [{"path": ["n"], "value": 50}], "delete": []}
    given = {"mark": mark, "version": mark["version"], "update": update}
    result = workers.carry_out(CommandKind.RUN_RESUME, "r", workers.flow, attempts=2, **given)
    assert result["run"]["status"] == "completed"
    assert workers.state("r")["seen"] == 50
    again = workers.carry_out(CommandKind.RUN_RESUME, "r", workers.flow, attempts=3, **given)
    assert again == result  # it was done: nothing is done twice


def test_an_answer_is_given_once_whenever_its_worker_died(workers: Workers) -> None:
    options: dict[str, Any] = {"answer": "A"}
    workers.carry_out(CommandKind.RUN_START, "r", workers.flow, input={"asks": True})
    options["mark"] = mark = workers.mark("r")
    workers.claim_and_die("r")  # before the answer was recorded
    result = workers.carry_out(CommandKind.RUN_RESUME, "r", workers.flow, attempts=2, **options)
    assert result["run"]["pause"]["question"]["question"] == "second?"
    workers.claim_and_die("r")  # after it was recorded: the second question must not get it
    again = workers.carry_out(CommandKind.RUN_RESUME, "r", workers.flow, attempts=3, **{**options, "mark": mark})
    assert again["run"]["pause"]["question"]["question"] == "second?"
    ended = workers.carry_out(CommandKind.RUN_RESUME, "r", workers.flow, mark=workers.mark("r"), answer="B")
    assert ended["run"]["status"] == "completed"
    assert workers.state("r")["answers"] == ["A", "B"]


def test_a_rollback_is_made_by_the_next_worker_and_never_twice(workers: Workers) -> None:
    workers.carry_out(CommandKind.RUN_START, "r", workers.flow, input={})
    planned = workers.carry_out(CommandKind.RUN_PLAN_ROLLBACK, "r", workers.flow, target=1)
    given = {"target": 1, "mark": workers.mark("r"), "version": planned["version"], "digest": planned["digest"]}
    with pytest.raises(VersionMismatch, match="plan"):
        workers.carry_out(CommandKind.RUN_ROLLBACK, "r", workers.flow, **{**given, "digest": "0" * 32})
    execution = workers.bench.services.queries.execution("r")
    with workers.bench.services.storage.unit_of_work() as uow:  # an earlier worker took the lease, and was killed
        uow.executions.save(replace(execution, version=execution.version + 1))
        uow.commit()
    with pytest.raises(VersionMismatch, match="version"):
        workers.carry_out(CommandKind.RUN_ROLLBACK, "r", workers.flow, **given)
    result = workers.carry_out(CommandKind.RUN_ROLLBACK, "r", workers.flow, attempts=2, **given)
    assert result["run"]["status"] == "paused"
    assert workers.carry_out(CommandKind.RUN_ROLLBACK, "r", workers.flow, attempts=3, **given) == result
    assert len(workers.bench.services.queries.rollbacks("r")) == 1


@pytest.mark.parametrize(("who", "target"), [("Grace", 1), ("Ada", 0)])
def test_a_rollback_of_somebody_else_is_not_taken_for_that_of_a_killed_worker(
    workers: Workers, who: str, target: int
) -> None:
    workers.carry_out(CommandKind.RUN_START, "r", workers.flow, input={})
    planned = workers.carry_out(CommandKind.RUN_PLAN_ROLLBACK, "r", workers.flow, target=1)
    given = {"target": 1, "mark": workers.mark("r"), "version": planned["version"], "digest": planned["digest"]}
    workers.bench.services.travel.rollback(ExecutionId("r"), target, created_by=who)
    for kind in (CommandKind.RUN_ROLLBACK, CommandKind.RUN_REDO):
        with pytest.raises(VersionMismatch, match=f"by {who}"):
            workers.carry_out(kind, "r", workers.flow, attempts=2, **given)


def test_a_fork_and_a_name_are_made_once(workers: Workers) -> None:
    workers.carry_out(CommandKind.RUN_START, "r", workers.flow, input={})
    for attempts in (1, 2):
        made = workers.carry_out(CommandKind.RUN_FORK, "f", workers.flow, attempts, run="r", target=1)
        assert made["run"]["id"] == "f"
        named = workers.carry_out(CommandKind.RUN_CHECKPOINT, "r", workers.flow, attempts, name="end")
        assert named["checkpoint"]["name"] == "end"
    assert len(workers.bench.list_runs()) == 2


@pytest.mark.parametrize("why", ["cancelled", "budget"])
def test_a_batch_that_stops_by_itself_is_not_run_again_by_the_server(
    workers: Workers, empty_folder: Path, sqlite_folder: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr("wtb.application.batches.attempt._CANCELLED_S", 0.0)
    monkeypatch.setattr("wtb.application.batches.attempt._LOOK_S", 0.001)
    file = f"dear_{empty_folder.parent.name.replace('-', '_')}_{why}.py"
    (empty_folder / file).write_text(_BATCH.format(folder=str(sqlite_folder)))
    cases = [{"id": str(number), "input": {"cancels": why == "cancelled"}} for number in range(9)]
    options = {"workers": 1, "share": False, **({"budget": {"tokens": 20}} if why == "budget" else {})}
    given: dict[str, Any] = {"name": "dear", "cases": cases, "evaluators": ["latency_s"], "options": options}
    ended = workers.carry_out(CommandKind.BATCH_START, "dear", file, **given)
    assert ended["batch"]["status"] == "cancelled"
    assert ended["batch"]["left"] > 0
    assert "stopped_by_server" not in ended
    again = workers.carry_out(CommandKind.BATCH_START, "dear", file, attempts=2, **given)  # its worker was killed
    assert again["batch"] == ended["batch"]


def test_a_message_of_a_graph_is_edited_by_its_id(workers: Workers, empty_folder: Path) -> None:
    name = f"graph_{empty_folder.parent.name.replace('-', '_')}"
    (empty_folder / f"{name}.py").write_text(_GRAPH)
    reference = f"{name}.py:graph"
    message = {"type": "human", "content": "helo", "id": "m1"}
    options = {"break_before": ["answer"]}
    workers.carry_out(CommandKind.RUN_START, "g", reference, input={"messages": [message]}, options=options)
    shown = TaggedJson(StateClasses(), Masker()).write(workers.state("g"))["messages"][0]
    assert (shown["$type"], shown["value"]["content"], shown["value"]["id"]) == ("foreign", "helo", "m1")
    mark = workers.mark("g")
    edit = {"set": [{"path": ["messages", {"id": "m1"}, "content"], "value": "hello"}], "delete": []}
    done = workers.carry_out(CommandKind.RUN_RESUME, "g", reference, mark=mark, version=mark["version"], update=edit)
    assert done["run"]["status"] == "completed", done
    contents = [each.content for each in workers.bench.get("g").state["messages"]]
    assert contents == ["hello", "you said hello"]
    found = answer({"describe": [str(empty_folder / reference)]}, Masker())["workflows"][0]
    assert [node["name"] for node in found["definition"]["nodes"]] == ["answer"]


def test_questions_about_workflows_are_answered_even_if_they_cannot_be_loaded(workers: Workers, tmp_path: Path) -> None:
    found = answer({"describe": [str(tmp_path / "nowhere.py:flow")]}, Masker())["workflows"][0]
    assert found["error"]["type"] == "InvalidInput"
    checked = tmp_path / "unfit_flow.py"
    checked.write_text("import wtb\nflow = wtb.Workflow('unfit')\n")
    assert answer({"check": f"{checked}:flow"}, Masker())["faults"] != []


def test_only_what_is_served_or_recorded_in_the_folder_may_run(workers: Workers, empty_folder: Path) -> None:
    workers.carry_out(CommandKind.RUN_START, "r", workers.flow, input={})
    queries = workers.bench.services.queries
    execution = queries.execution("r")
    source = str(execution.workflow_source)

    def served(*references: str, folder: Path = empty_folder, name: str = "other") -> ServedWorkflows:
        return ServedWorkflows(
            references,
            folder=folder,
            recorded=True,
            queries=queries,
            describe=lambda wanted: [
                {"reference": each, "source": each, "name": name if each == "other:flow" else "steps"}
                for each in wanted
            ],
        )

    assert served().for_run(execution, "resume") == source
    assert served().find("steps").reference == source
    with pytest.raises(WorkflowNotServed) as refused:
        served("other:flow").for_run(execution, "resume")
    assert refused.value.command == "wtb resume r"
    with pytest.raises(WorkflowNotServed, match="wtb run"):
        served("other:flow").find("steps")
    with pytest.raises(WorkflowNotFound, match="serves other"):
        served("other:flow").find("nobody")
    assert served("other:flow", name="steps").for_run(execution, "resume") == "other:flow"
    assert served("a:flow", "b:flow").find("steps").reference == "a:flow"  # one workflow that two files import
    elsewhere = empty_folder / "elsewhere"
    elsewhere.mkdir()
    with pytest.raises(WorkflowNotServed):
        served(folder=elsewhere).for_run(execution, "redo")


def test_a_configured_batch_waits_for_a_server_that_has_it(workers: Workers, empty_folder: Path) -> None:
    accepted = workers.bench.services.commands.accept(
        CommandKind.BATCH_START,
        by="Ada",
        subject="qa",
        arguments={"batch": "qa", "reference": absolute("checks.py:batch", empty_folder)},
    )
    for references, may_take in ((["other.py"], None), (["other.py", "checks.py:batch"], accepted)):
        server = command_server(workers.bench.services, references, recorded=False)
        assert server.commands.find_next(server.dispatcher._may_take) == may_take


def test_two_workflows_of_one_name_are_not_mixed_up(workers: Workers, empty_folder: Path) -> None:
    served = ServedWorkflows(
        ["old:flow", "new:flow"],
        folder=empty_folder,
        recorded=False,
        queries=workers.bench.services.queries,
        describe=lambda wanted: [{"reference": each, "name": "agent", "definition": {"of": each}} for each in wanted],
    )
    with pytest.raises(InvalidInput, match="old:flow and new:flow are two workflows that are both called 'agent'"):
        served.find("agent")


def test_a_file_that_ends_its_worker_does_not_hide_the_others(workers: Workers, empty_folder: Path) -> None:
    def describe(wanted: Sequence[str]) -> list[dict[str, Any]]:
        if "deadly:flow" in wanted:
            raise WorkerFailed("the worker ended")
        return [{"reference": each, "source": each, "name": "good"} for each in wanted]

    served = ServedWorkflows(
        ["deadly:flow", "good:flow"],
        folder=empty_folder,
        recorded=False,
        queries=workers.bench.services.queries,
        describe=describe,
    )
    assert [each.name for each in served.list_served()] == [None, "good"]
    assert served.find("good").reference == "good:flow"
    with pytest.raises(WorkerFailed):
        served.find("deadly")


def test_files_that_cannot_be_imported_beside_others_are_loaded_once_more_and_not_each_by_itself(
    workers: Workers, empty_folder: Path
) -> None:
    asked: list[tuple[str, ...]] = []

    def describe(wanted: Sequence[str]) -> list[dict[str, Any]]:
        asked.append(tuple(wanted))
        whole = [each for each in wanted if each.startswith("tool")][:1]  # each of them has a tool of the same name
        return [
            {"reference": each, "name": each}
            if each in whole
            else {"reference": each, "error": {}, "is_unimportable": True}
            for each in wanted
        ]

    served = ServedWorkflows(
        ["tool1:flow", "broken1:flow", "tool2:flow", "broken2:flow"],
        folder=empty_folder,
        recorded=False,
        queries=workers.bench.services.queries,
        describe=describe,
    )
    assert [each.name for each in served.list_served()] == ["tool1:flow", None, "tool2:flow", None]
    assert [len(wanted) for wanted in asked] == [4, 3, 2]


def test_a_file_that_never_ends_its_import_is_tried_rarely_and_stops_nobody_else(
    workers: Workers, empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_workflows, "_WAIT_S", 0.05)
    begun, gate, now = threading.Event(), threading.Event(), [0.0]
    asked: list[Sequence[str]] = []

    def describe(wanted: Sequence[str]) -> list[dict[str, Any]]:
        asked.append(wanted)
        if "endless:flow" in wanted and len(asked) > 1:
            begun.set()
            gate.wait(20)
            now[0] += 60
            raise WorkerFailed("the worker was killed")
        return [{"reference": each, "source": each, "name": each} for each in wanted]

    served = ServedWorkflows(
        ["endless:flow", "good:flow"],
        folder=empty_folder,
        recorded=False,
        queries=workers.bench.services.queries,
        describe=describe,
        monotonic=lambda: now[0],
    )
    served.list_served()
    now[0] += 31
    loading = threading.Thread(target=served.list_served)
    loading.start()
    begun.wait(20)
    assert served.find("good:flow").reference == "good:flow"  # as it was known, while somebody else waits
    gate.set()
    loading.join()
    assert len(asked) == 4
    now[0] += 29
    assert [each.name for each in served.list_served()] == [None, "good:flow"]
    assert len(asked) == 4
    now[0] += 300
    served.list_served()
    assert asked[4:] == [["good:flow"]]


def test_while_workflows_are_loaded_for_the_first_time_only_so_many_requests_wait(
    workers: Workers, empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_workflows, "_MOST_WAITING", 1)
    begun, gate = threading.Event(), threading.Event()

    def describe(wanted: Sequence[str]) -> list[dict[str, Any]]:
        begun.set()
        gate.wait(20)
        return [{"reference": each, "source": each, "name": each} for each in wanted]

    queries = workers.bench.services.queries
    served = ServedWorkflows(["slow:flow"], folder=empty_folder, recorded=False, queries=queries, describe=describe)
    loading = threading.Thread(target=served.list_served)
    loading.start()
    begun.wait(20)
    with pytest.raises(TooManyRequests):
        served.find("slow:flow")
    gate.set()
    loading.join()
    assert served.find("slow:flow").reference == "slow:flow"


def test_a_workflow_that_writes_into_the_connection_of_its_worker_is_an_error_like_any_other(tmp_path: Path) -> None:
    file = tmp_path / "chatty.py"
    for line in (b"garbage", b"[1]", b"{}"):
        file.write_text(
            "import os, stat\n"
            "for number in range(3, 64):\n"
            "    try:\n"
            f"        stat.S_ISSOCK(os.fstat(number).st_mode) and os.write(number, {line + chr(10).encode()!r})\n"
            "    except OSError:\n"
            "        pass\n"
        )
        worker = CommandProcess({"folder": str(tmp_path / ".wtb")})
        try:
            with pytest.raises(WorkerFailed, match="cannot be read"):
                worker.ask({"describe": [f"{file}:flow"]})
        finally:
            worker.kill()


@pytest.mark.parametrize(
    ("source", "is_there"),
    [
        ("{}/agent.py:flow", True),
        ("agent:flow", True),
        ("package.inner:flow", True),
        ("package:flow", True),
        ("{}/../outside.py:flow", False),
        ("{}/link.py:flow", False),
        ("/etc/passwd", False),
        ("/etc/passwd.py:flow", False),
        ("..outside:flow", False),
        ("os:flow", False),
        ("\x00.py:flow", False),
    ],
)
def test_a_recorded_source_counts_if_its_file_is_in_the_folder(tmp_path: Path, source: str, is_there: bool) -> None:
    folder = tmp_path / "project"
    (folder / "package").mkdir(parents=True)
    for file in ("agent.py", "package/inner.py", "package/__init__.py", "../outside.py"):
        (folder / file).touch()
    (folder / "link.py").symlink_to(tmp_path / "outside.py")
    assert is_under(source.format(folder), folder) is is_there


def test_references_mean_the_same_from_every_folder(tmp_path: Path) -> None:
    assert absolute("agent.py:flow", tmp_path) == f"{tmp_path}/agent.py:flow"
    assert absolute("agent.py", tmp_path) == f"{tmp_path}/agent.py"
    assert absolute("flow.json", tmp_path) == f"{tmp_path}/flow.json"
    assert absolute("package.module:flow", tmp_path) == "package.module:flow"


def test_a_worker_refuses_an_edit_that_does_not_fit(workers: Workers) -> None:
    mark = _broken(workers, "r", n=1)
    given = {"mark": mark, "version": mark["version"], "update": {"set": [{"path": ["n", 0], "value": 1}]}}
    with pytest.raises(InvalidInput, match="nothing at"):
        workers.carry_out(CommandKind.RUN_RESUME, "r", workers.flow, **given)
    assert workers.bench.get("r").status is ExecutionStatus.PAUSED
    assert workers.mark("r") == mark
