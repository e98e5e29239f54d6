"""The client drives a real server: runs by real workers, lists, events across restarts, errors and roles."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import wtb
from tests.api.served_address import ServedAddress, served_address
from wtb.api.models.events import EventAnswer
from wtb.domain.errors import (
    CursorGone,
    ExecutionNotFound,
    Forbidden,
    InvalidInput,
    NotFinished,
    TokenNotFound,
    Unauthenticated,
    VersionMismatch,
)
from wtb.domain.events import Event, EventType
from wtb.settings import Settings


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[ServedAddress]:
    """A project whose server is not running yet."""
    folder = tmp_path_factory.mktemp("project")
    (folder / ".wtb").mkdir(mode=0o700)
    shutil.copyfile(sqlite_template, folder / ".wtb" / "wtb.db")
    with served_address(folder, Settings(folder=folder / ".wtb", user="tester")) as served:
        yield served


@pytest.fixture
def client(served: ServedAddress) -> Iterator[wtb.Client]:
    """A client of the running server."""
    with served.up(), wtb.Client(served.url, served.token) as client:
        yield client


def test_a_run_is_broken_edited_resumed_compared_rolled_back_redone_forked_and_deleted(client: wtb.Client) -> None:
    run = client.run("agent", {"topic": "journey"}, break_before=["deliver"])
    assert run.status == "paused"
    assert run.created_by == "the admin"
    state = client.state(run.id)
    assert state["big"] == 1 << 70
    assert state["at"] == datetime(2026, 1, 1, tzinfo=UTC)
    assert state["place"]["name"] == "agent:Place"
    assert state["api_key"] == {"$type": "masked", "value": "***"}

    done = client.resume(run.id, update={"plan": "edited", "seen": (1, 2), "big": wtb.DELETE}, version=run.version)
    assert done.status == "completed"
    with pytest.raises(VersionMismatch):
        client.resume(run.id, update={"plan": "late"}, version=run.version)
    state = client.state(run.id)
    assert (state["plan"], state["seen"], "big" in state) == ("edited", (1, 2), False)
    changed = {item.path: item.new for item in client.diff(run.id, 1).state}
    assert changed["state.seen"] == (1, 2)
    assert [row.step for row in client.history(run.id)] == sorted(
        (row.step for row in client.history(run.id)), reverse=True
    )
    assert [call.arguments["text"] for call in client.calls(run.id)] == [f"{run.id} edited"]

    plan = client.rollback(run.id, 1, dry_run=True)
    assert [call["tool"] for call in plan.data["reverse"]] == ["send"]
    client.rollback(run.id, 1, expected=plan)
    assert client.get(run.id).status == "paused"
    with pytest.raises(VersionMismatch):
        client.rollback(run.id, 1, expected=plan)
    client.redo(run.id)
    assert client.state(run.id)["sent"] == "sent"

    client.checkpoint(run.id, "before the fork")
    fork = client.fork(run.id, 1, update={"plan": "forked"}, variants={"plan": "short"})
    assert client.resume(fork.id).status == "completed"
    assert client.state(fork.id)["plan"] == "forked"
    client.delete(fork.id)
    with pytest.raises(ExecutionNotFound):
        client.get(fork.id)


def test_a_question_is_answered(client: wtb.Client) -> None:
    run = client.run("agent", {"topic": "asked"})
    assert run.pause is not None
    assert run.pause.question is not None
    done = client.resume(run.id, answer="yes")
    assert (done.status, client.state(run.id)["review"]) == ("completed", "yes")


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_run_goes_on_while_nobody_waits_and_can_be_paused(client: wtb.Client, served: ServedAddress) -> None:
    gate = served.folder / "gate-slow"
    gate.touch()
    (served.folder / "world.txt").touch()
    command = client.start("agent", {"topic": "slow"})
    with pytest.raises(NotFinished):
        client.wait_for(command, wait_s=0.2)
    assert command.subject is not None
    run = command.subject
    wait_until(lambda: run in (served.folder / "world.txt").read_text())
    assert client.pause(run).requested == "pause"
    gate.unlink()
    assert client.wait_for(command).status == "completed"
    assert client.get(run).status == "paused"
    client.stop(run)
    assert client.get(run).status == "cancelled"


def test_what_cannot_be_done_is_the_error_that_a_bench_raises(client: wtb.Client, served: ServedAddress) -> None:
    with pytest.raises(ExecutionNotFound):
        client.get("nothing")
    with pytest.raises(wtb.NotFound, match="no workflow"):
        client.run("unknown")
    with pytest.raises(InvalidInput):
        client.run("agent", {"topic": "x"}, variants={"plan": "absent"})
    with pytest.raises(TokenNotFound):
        client.revoke_token("nobody")
    viewer = client.create_token("watcher", "viewer").token
    with wtb.Client(served.url, viewer) as watcher:
        assert watcher.whoami().role == "viewer"
        with pytest.raises(Forbidden):
            watcher.run("agent")
        client.revoke_token("watcher")
        with pytest.raises(Unauthenticated):
            next(watcher.events())


def test_lists_are_read_to_their_end(client: wtb.Client) -> None:
    for topic in ("a", "b", "c"):
        client.run("agent", {"topic": topic}, break_before=["plan"])
    runs = list(client.list_runs(workflow="agent"))
    assert len(runs) >= 3
    assert [run.id for run in client.list_runs(limit=2)] == [run.id for run in runs[:2]]
    assert list(client.list_runs(statuses="failed")) == []
    assert [flow.name for flow in client.list_workflows() if flow.served] == ["agent"]
    assert {node.name for node in client.graph("agent").nodes} == {"plan", "deliver", "review"}
    assert client.check("agent").faults == []


def record(served: ServedAddress, first: int, count: int) -> None:
    """Record numbered events."""
    with served.services.storage.unit_of_work() as uow:
        at = datetime.now(UTC)
        for number in range(first, first + count):
            uow.events.append(Event(type=EventType.NODE_LOGGED, stream="numbers", at=at, data={"n": number}))
        uow.commit()


def test_events_come_once_and_in_order_while_the_server_restarts(served: ServedAddress) -> None:
    seen: list[int] = []
    came = threading.Event()

    def follow() -> None:
        with wtb.Client(served.url, served.token) as client:
            for event in client.events(since="start", types=["node.logged"]):
                seen.append(event.data["n"])
                came.set()
                if event.data["n"] == 29:
                    return

    record(served, 0, 10)
    with served.up():
        thread = threading.Thread(target=follow)
        thread.start()
        assert came.wait(30)
        record(served, 10, 5)
    record(served, 15, 5)
    with served.up():
        record(served, 20, 10)
        thread.join(60)
    assert seen == list(range(30))


def test_the_async_client_follows_from_a_cursor_and_refuses_a_foreign_one(served: ServedAddress) -> None:
    async def follow() -> list[EventAnswer]:
        async with wtb.AsyncClient(served.url, served.token) as client:
            page = await client.read_events(types=["node.logged"], limit=3)
            found = []
            async for event in client.events(since=page.items[-1].cursor, types=["node.logged"]):
                found.append(event)
                if len(found) == 5:
                    break
            with pytest.raises(CursorGone):
                await anext(client.events(since="1-1-00ff00ff00ff00ff"))
            return found

    with served.up():
        found = asyncio.run(follow())
    assert [event.data["n"] for event in found] == [3, 4, 5, 6, 7]
