"""LangGraph's SDK against a real server: every thread is a run of WTB, and programs connect by URL."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph_sdk.errors import ConflictError, NotFoundError, PermissionDeniedError, UnprocessableEntityError

from tests.api.langgraph_project import HELLO, WAIT_S, LangGraphProject, serving_graphs, until
from wtb.bench import Bench
from wtb.bootstrap import Services
from wtb.domain.access import Role


@pytest.fixture
def project(empty_folder: Path, services: Services) -> Iterator[LangGraphProject]:
    with serving_graphs(empty_folder, services) as project:
        yield project


def events(parts: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for part in parts:
        found.setdefault(part.event, []).append(part.data)
    return found


def plans(project: LangGraphProject) -> int:
    return (project.folder / "plans.txt").read_text().count("plan")


def worker_at_gate(project: LangGraphProject) -> int:
    """Return the process that waits in the last node."""
    file = project.folder / "worker.pid"
    return int(until(lambda: file.exists() and file.read_text()))


def test_a_program_streams_in_every_mode_and_its_thread_is_a_run(project: LangGraphProject) -> None:
    client = project.sync()
    thread = client.threads.create(metadata={"user": "ada"})
    assert (thread["status"], thread["values"], thread["metadata"]) == ("idle", None, {"user": "ada"})

    modes = ["values", "updates", "messages-tuple", "custom"]
    said = events(client.runs.stream(thread["thread_id"], "agent", input=HELLO, stream_mode=modes))

    assert set(said) == {"metadata", "values", "updates", "messages", "custom", "end"}
    assert said["custom"] == [{"planning": "weather"}]
    assert [next(iter(each)) for each in said["updates"]] == ["plan", "talk", "review"]
    tokens = [chunk["content"] for chunk, about in said["messages"] if about["langgraph_node"] == "talk"]
    assert "".join(tokens) == "one two three four"
    assert len(tokens) > 3
    assert said["messages"][0][0]["type"] == "AIMessageChunk"
    assert said["values"][-1]["steps"] == ["plan", "talk", "review unasked"]
    assert [each["type"] for each in said["values"][-1]["messages"]] == ["human", "ai"]

    found = client.threads.get(thread["thread_id"])
    assert (found["status"], found["metadata"]["graph_id"], found["metadata"]["user"]) == ("idle", "agent", "ada")
    assert found["values"] == said["values"][-1]
    listed = project.api().get("/api/v1/executions").json()["items"]
    assert [(each["id"], each["status"]) for each in listed] == [(thread["thread_id"], "completed")]
    run = Bench._over(project.services).get(thread["thread_id"])
    assert [each.node for each in run.checkpoints][2:] == [None, "plan", "talk", "review"]
    assert run.state["steps"] == ["plan", "talk", "review unasked"]


@pytest.mark.parametrize("server_settings", ["sqlite"], indirect=True)
def test_tokens_are_streamed_and_never_stored(project: LangGraphProject) -> None:
    said = events(project.sync().runs.stream(None, "agent", input=HELLO, stream_mode="messages-tuple"))
    assert any(chunk["type"] == "AIMessageChunk" for chunk, _ in said["messages"])
    stored = b"".join(file.read_bytes() for file in (project.folder / ".wtb").glob("wtb.db*"))
    assert b"one two three four" in stored
    assert b"AIMessageChunk" not in stored


def test_an_async_program_waits_reads_states_updates_and_forks_at_a_checkpoint(project: LangGraphProject) -> None:
    thread = asyncio.run(forking(project))
    branches = {each.name for each in Bench._over(project.services).get(thread).history.branches}
    assert {"main", "main ~2", "main ~3"} <= branches


async def forking(project: LangGraphProject) -> str:
    async with project.client() as client:
        thread: str = (await client.threads.create())["thread_id"]
        values = await client.runs.wait(thread, "agent", input=HELLO)
        assert values["steps"] == ["plan", "talk", "review unasked"]

        history = await client.threads.get_history(thread)
        assert [each["next"] for each in history] == [[], ["review"], ["talk"], ["plan"], ["__start__"]]
        assert [len(each["values"].get("steps", [])) for each in history] == [3, 2, 1, 0, 0]
        assert [each["parent_checkpoint"] and each["parent_checkpoint"]["checkpoint_id"] for each in history[:-1]] == [
            each["checkpoint"]["checkpoint_id"] for each in history[1:]
        ]
        assert history[0]["metadata"]["graph_id"] == "agent"
        page = await client.threads.get_history(thread, limit=2, before=history[1]["checkpoint"])
        assert [each["next"] for each in page] == [["talk"], ["plan"]]

        before_talk = history[2]["checkpoint"]
        at = await client.threads.get_state(thread, checkpoint_id=before_talk["checkpoint_id"])
        assert at == await client.threads.get_state(thread, checkpoint=before_talk)
        assert (at["next"], at["values"]["steps"]) == (["talk"], ["plan"])

        forked = await client.runs.wait(thread, "agent", checkpoint=before_talk)
        assert forked["steps"] == ["plan", "talk", "review unasked"]
        assert len(await client.threads.get_history(thread, limit=100)) == 8  # LangGraph marks the fork itself
        edited = await client.runs.wait(
            thread, "agent", input={"topic": "sea"}, checkpoint_id=before_talk["checkpoint_id"]
        )
        assert (edited["topic"], edited["steps"][0]) == ("sea", "plan")

        made = await client.threads.update_state(thread, {"topic": "moon"}, as_node="talk")
        state = await client.threads.get_state(thread)
        assert (state["values"]["topic"], state["next"]) == ("moon", ["review"])
        assert state["checkpoint"]["checkpoint_id"] == made["checkpoint"]["checkpoint_id"]
        assert (await client.threads.get(thread))["status"] == "interrupted"
    return str(thread)


def test_a_question_reaches_the_client_and_its_answer_the_graph(project: LangGraphProject) -> None:
    client = project.sync()
    thread = client.threads.create()["thread_id"]
    asked = {**HELLO, "topic": "asked"}
    said = events(client.runs.stream(thread, "agent", input=asked, stream_mode=["values", "updates"]))
    question = said["values"][-1]["__interrupt__"]
    assert [each["value"] for each in question] == [{"question": "good?"}]
    assert said["updates"][-1]["__interrupt__"] == question

    found = client.threads.get(thread)
    assert (found["status"], list(found["interrupts"].values())) == ("interrupted", [question])
    state = client.threads.get_state(thread)
    assert (state["next"], state["tasks"][0]["name"], state["interrupts"]) == (["review"], "review", question)
    assert client.runs.join(thread, client.runs.list(thread)[0]["run_id"])["__interrupt__"] == question

    ended = client.runs.wait(thread, "agent", command={"resume": "yes"})
    assert ended["steps"] == ["plan", "talk", "review yes"]
    assert client.threads.get(thread)["status"] == "idle"
    assert plans(project) == 1


def test_a_client_that_names_the_current_checkpoint_answers_there(project: LangGraphProject) -> None:
    """As chat front ends do: `useStream` sends the checkpoint that it shows."""
    client = project.sync()
    thread = client.threads.create()["thread_id"]
    client.runs.wait(thread, "agent", input={**HELLO, "topic": "asked"})
    shown = client.threads.get_history(thread, limit=1)[0]["checkpoint"]
    del shown["thread_id"]
    assert client.runs.wait(thread, "agent", command={"resume": "no"}, checkpoint=shown)["steps"][-1] == "review no"
    again = client.threads.get_history(thread, limit=1)[0]["checkpoint"]
    more = client.runs.wait(thread, "agent", input={**HELLO, "topic": "sea"}, checkpoint=again)
    assert len(more["messages"]) == 4


def test_the_question_of_a_subgraph_shows_where_it_is_asked(project: LangGraphProject) -> None:
    client = project.sync()
    thread = client.threads.create()["thread_id"]
    said = events(
        client.runs.stream(thread, "outer", input={"steps": ["go"]}, stream_mode="values", stream_subgraphs=True)
    )
    assert any(event.startswith("values|sub:") for event in said)
    (task,) = client.threads.get_state(thread, subgraphs=True)["tasks"]
    assert (task["name"], task["state"]["next"], task["interrupts"][0]["value"]) == ("sub", ["inner"], "inside?")
    inside = client.threads.get_state(thread, checkpoint=task["checkpoint"])
    assert inside["values"] == {"steps": ["go"]}
    assert client.runs.wait(thread, "outer", command={"resume": "in"})["steps"][-1] == "in"


def test_threads_are_searched_changed_and_deleted(project: LangGraphProject) -> None:
    client, admin = project.sync(), project.sync(Role.ADMIN)
    first = client.threads.create(thread_id="first", metadata={"user": "ada"})
    assert client.threads.create(thread_id="first", if_exists="do_nothing") == first
    with pytest.raises(ConflictError):
        client.threads.create(thread_id="first")
    client.threads.create(thread_id="second", metadata={"user": "bob"})
    client.runs.wait("second", "agent", input={**HELLO, "topic": "asked"})

    assert [each["thread_id"] for each in client.threads.search()] == ["second", "first"]
    assert [each["thread_id"] for each in client.threads.search(sort_by="thread_id", sort_order="asc")] == [
        "first",
        "second",
    ]
    assert [each["thread_id"] for each in client.threads.search(metadata={"graph_id": "agent"})] == ["second"]
    assert [each["thread_id"] for each in client.threads.search(status="interrupted")] == ["second"]
    assert [each["thread_id"] for each in client.threads.search(values={"topic": "asked"})] == ["second"]
    assert client.threads.search(ids=["first"], select=["thread_id"]) == [{"thread_id": "first"}]
    assert (client.threads.count(), client.threads.count(metadata={"user": "bob"})) == (2, 1)

    changed = client.threads.update("first", metadata={"title": "Tea"})
    assert changed["metadata"] == {"user": "ada", "title": "Tea"}
    with pytest.raises(PermissionDeniedError):
        client.threads.delete("first")
    admin.threads.delete("first")
    with pytest.raises(NotFoundError, match="no thread 'first'"):
        client.threads.get("first")
    for call in (client.threads.get_state, client.threads.get_history, client.runs.list):
        with pytest.raises(NotFoundError):
            call("first")


def test_graphs_are_assistants_that_can_be_read(project: LangGraphProject) -> None:
    client = project.sync(Role.VIEWER)
    assert [each["graph_id"] for each in client.assistants.search()] == ["agent", "outer"]
    assert client.assistants.count(graph_id="outer") == 1
    agent = client.assistants.get("agent")
    assert client.assistants.get(agent["assistant_id"]) == agent
    graph = client.assistants.get_graph("agent")
    assert {"source": "plan", "target": "talk"} in [
        {"source": each["source"], "target": each["target"]} for each in graph["edges"]
    ]
    schemas = client.assistants.get_schemas("agent")
    assert "messages" in schemas["input_schema"]["properties"]
    with pytest.raises(NotFoundError, match="agent, outer"):
        client.assistants.get("native")


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "debug": (lambda client: list(client.runs.stream(None, "agent", stream_mode=["values", "debug"])), "debug"),
    "messages": (lambda client: list(client.runs.stream(None, "agent", stream_mode="messages")), "messages-tuple"),
    "enqueue": (lambda client: client.runs.create(None, "agent", multitask_strategy="enqueue"), "enqueue"),
    "webhook": (lambda client: client.runs.create(None, "agent", webhook="http://x"), "webhook"),
    "later": (lambda client: client.runs.create(None, "agent", after_seconds=5), "begin later"),
    "delete": (lambda client: client.runs.create(None, "agent", on_completion="delete"), "keeps every run"),
    "both": (lambda client: client.runs.create(None, "agent", input={}, command={"resume": 1}), "not both"),
    "private": (
        lambda client: client.runs.create(None, "agent", config={"configurable": {"__pregel_send": 1}}),
        "__pregel_send",
    ),
    "supersteps": (lambda client: client.threads.create(supersteps=[{"updates": []}]), "supersteps"),
    "ttl": (lambda client: client.threads.create(ttl=5), "ttl"),
    "cron": (lambda client: client.crons.search(), "crons are not offered"),
    "store": (lambda client: client.store.get_item(["a"], "b"), "the store is not offered"),
    "edit": (lambda client: client.assistants.create("agent"), "assistants can be read, not changed"),
    "versions": (lambda client: client.assistants.get_versions("agent"), "assistants can be read, not changed"),
    "copy": (lambda client: client.threads.copy("t"), "wtb fork"),
    "batch": (lambda client: client.runs.create_batch([]), "wtb batch"),
}


@pytest.mark.parametrize("server_settings", ["sqlite"], indirect=True)
def test_what_is_not_offered_is_refused_with_a_sentence(project: LangGraphProject) -> None:
    client = project.sync()
    for what, (call, sentence) in REFUSED.items():
        with pytest.raises(UnprocessableEntityError) as refused:
            pytest.fail(f"{what} is not refused: {call(client)}")
        assert sentence in str(refused.value), what
    assert client.threads.search() == []
    with pytest.raises(NotFoundError):
        client.runs.create(None, "nothing")
    with pytest.raises(NotFoundError):
        client.runs.create("nowhere", "agent", input=HELLO)
    client.threads.create(thread_id="here")
    with pytest.raises(NotFoundError):
        client.runs.create("here", "agent", input=HELLO, checkpoint_id="1f1e36ca-0994-6c1c-bfff-fe8c8782c4a0")
    made = client.runs.create("there", "agent", input=HELLO, if_not_exists="create")
    assert client.runs.join("there", made["run_id"])["steps"][-1] == "review unasked"


@pytest.mark.parametrize("server_settings", ["sqlite"], indirect=True)
def test_a_run_that_fails_tells_the_client_and_the_thread_goes_on(project: LangGraphProject) -> None:
    client = project.sync()
    thread = client.threads.create()["thread_id"]
    said = events(client.runs.stream(thread, "agent", input={**HELLO, "topic": "broken"}))
    assert said["error"] == [{"error": "ValueError", "message": "no such topic"}]
    assert client.threads.get(thread)["status"] == "error"
    assert client.runs.list(thread)[0]["status"] == "error"
    with pytest.raises(Exception, match="no such topic"):
        client.runs.wait(thread, "agent", input=None)
    with pytest.raises(UnprocessableEntityError, match="Node nobody does not exist"):
        client.threads.update_state(thread, {"topic": "mended"}, as_node="nobody")
    client.threads.update_state(thread, {"topic": "mended"})
    assert client.runs.wait(thread, "agent", input=None)["steps"] == ["plan", "talk", "review unasked"]
    assert plans(project) == 1


def test_a_killed_worker_is_replaced_and_the_client_hears_the_end(project: LangGraphProject) -> None:
    client = project.sync()
    (project.folder / "gate").touch()
    thread = client.threads.create()["thread_id"]
    parts: list[Any] = []
    listening = threading.Thread(
        target=lambda: parts.extend(client.runs.stream(thread, "agent", input=HELLO, stream_mode="updates"))
    )
    listening.start()
    worker = worker_at_gate(project)
    assert client.threads.get(thread)["status"] == "busy"
    with pytest.raises(ConflictError, match="is busy"):
        client.runs.create(thread, "agent", input=HELLO)
    os.kill(worker, signal.SIGKILL)
    (project.folder / "gate").unlink()
    listening.join(WAIT_S)
    said = events(parts)
    assert [next(iter(each)) for each in said["updates"]] == ["plan", "talk", "review"]
    assert "error" not in said
    assert plans(project) == 1
    assert client.threads.get_state(thread)["values"]["steps"] == ["plan", "talk", "review unasked"]
    assert len(client.threads.get_state(thread)["values"]["messages"]) == 2


def test_a_cancelled_run_leaves_a_thread_that_goes_on(project: LangGraphProject) -> None:
    client = project.sync()
    (project.folder / "gate").touch()
    thread = client.threads.create()["thread_id"]
    run = client.runs.create(thread, "agent", input=HELLO)
    worker_at_gate(project)
    with pytest.raises(UnprocessableEntityError, match="wtb rollback"):
        client.runs.cancel(thread, run["run_id"], action="rollback")
    client.runs.cancel(thread, run["run_id"], wait=True)
    assert client.runs.get(thread, run["run_id"])["status"] == "interrupted"
    assert client.threads.get_state(thread)["next"] == ["review"]
    (project.folder / "gate").unlink()
    assert client.runs.wait(thread, "agent", input=None)["steps"] == ["plan", "talk", "review unasked"]


def test_a_client_that_leaves_cancels_its_run_only_if_it_says_so(project: LangGraphProject) -> None:
    asyncio.run(leaving(project))


async def leaving(project: LangGraphProject) -> None:
    (project.folder / "gate").touch()

    async def left(thread: str, **how: Any) -> str:
        (project.folder / "worker.pid").unlink(missing_ok=True)
        stream = client.runs.stream(thread, "agent", input=HELLO, stream_mode="updates", **how)
        run = (await anext(stream)).data["run_id"]
        await asyncio.to_thread(worker_at_gate, project)
        await stream.aclose()
        return str(run)

    async with project.client() as client:
        await client.threads.create(thread_id="ends")
        await client.threads.create(thread_id="goes-on")
        ended = await left("ends", on_disconnect="cancel")
        going = await left("goes-on")
        runs = project.sync().runs
        await asyncio.to_thread(until, lambda: runs.get("ends", ended)["status"] == "interrupted")
        assert (await client.runs.get("goes-on", going))["status"] == "running"
        (project.folder / "gate").unlink()
        assert (await client.runs.join("goes-on", going))["steps"][-1] == "review unasked"


def test_a_client_joins_a_running_run_and_names_its_last_message(project: LangGraphProject) -> None:
    client = project.sync()
    (project.folder / "gate").touch()
    thread = client.threads.create()["thread_id"]
    stream = client.runs.stream(thread, "agent", input=HELLO, stream_mode=["updates", "values"])
    first = [next(stream) for _ in range(3)]
    run, last = first[0].data["run_id"], first[2].id
    worker_at_gate(project)
    stream.close()
    joined: list[Any] = []
    listening = threading.Thread(
        target=lambda: joined.extend(client.runs.join_stream(thread, run, stream_mode=["updates"], last_event_id=last))
    )
    listening.start()
    (project.folder / "gate").unlink()
    listening.join(WAIT_S)
    said = [next(iter(each.data)) for each in [*first, *joined] if each.event == "updates"]
    assert said == ["plan", "talk", "review"]
    assert {each.event for each in joined} == {"updates", "end"}
    assert [each.event for each in client.runs.join_stream(thread, run)] == ["values", "end"]


@pytest.mark.parametrize("server_settings", ["sqlite"], indirect=True)
def test_the_key_of_a_langgraph_client_counts_for_its_routes_only(project: LangGraphProject) -> None:
    key = {"x-api-key": project.token(Role.ADMIN)}
    with httpx.Client(base_url=project.address) as api:
        assert api.get("/langgraph/info", headers=key).json()["flags"]["crons"] is False
        assert api.get("/langgraph/ok", headers=key).json() == {"ok": True}
        assert api.get("/langgraph/ok").status_code == 401
        assert api.get("/langgraph/ok", headers={"x-api-key": "wtb_wrong"}).status_code == 401
        assert api.get("/api/v1/executions", headers=key).status_code == 401
        assert api.get("/langgraph/nowhere", headers=key).status_code == 404
        assert api.get("/langgraph/ok", headers={**key, "Origin": "https://elsewhere.example"}).status_code == 403
    viewer = project.sync(Role.VIEWER)
    with pytest.raises(PermissionDeniedError):
        viewer.threads.create()
    with pytest.raises(PermissionDeniedError):
        viewer.runs.create(None, "agent")
    assert viewer.threads.search() == []


def test_wtb_shows_rolls_back_and_forks_a_thread_and_the_client_goes_on_there(project: LangGraphProject) -> None:
    client = project.sync()
    thread = client.threads.create()["thread_id"]
    bench = Bench._over(project.services)
    assert bench.get(thread).state == {}
    client.runs.wait(thread, "agent", input=HELLO)
    run = bench.get(thread)
    run.rollback("plan")
    assert client.threads.get_state(thread)["next"] == ["talk"]
    assert client.runs.wait(thread, "agent", input=None)["steps"] == ["plan", "talk", "review unasked"]
    assert plans(project) == 1
    run.rollback(0)
    assert client.threads.get_state(thread)["values"] == {}
    assert client.runs.wait(thread, "agent", input={**HELLO, "topic": "sea"})["topic"] == "sea"
    forked = bench.get(thread).fork("plan")
    assert client.threads.get(forked.id)["status"] == "interrupted"
    assert client.runs.wait(forked.id, "agent", input=None)["steps"][-1] == "review unasked"
