"""A batch that was started over the API: its server and its workers are killed, and it reaches its verdict.

Nothing is lost, done twice or told twice: each job has one result and one effect, and a client that reconnects by its
cursor gets every event once.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import connect

from tests.crash.engine_process import prepared_database
from tests.crash.server_process import ServerProcess, wait_until, worker_of
from tests.services import free_port
from wtb.bootstrap import Services, bootstrap
from wtb.domain.access import Role
from wtb.domain.feed import START
from wtb.settings import Settings

CASES, WORKERS = 8, 3
JOBS = 2 * CASES
KILLS = 3

AGENT = """
import os, time
from pathlib import Path

import wtb

HERE = Path(__file__).parent
flow = wtb.Workflow("mail")


def noted(file, line):
    with (HERE / file).open("a") as stream:
        stream.write(line + "\\n")


def happened(call):
    file = HERE / "world.txt"
    lines = file.read_text().split() if file.exists() else []
    return "sent" if call.arguments["what"] in lines else None


@wtb.tool(confirm=happened)
def send(what):
    noted("world.txt", what)
    return "sent"


@flow.node(start=True)
def read(state):
    noted("read.txt", f"{os.getpid()} {state['case']}")
    time.sleep(0.05)
    return {"text": state["case"]}


@flow.node
def write(state, ctx):
    time.sleep(0.05)
    return {"answer": state["text"]}


@flow.node
def post(state, ctx):
    sent = ctx.tool(send, what=f"{state['case']}:{state['answer']}")
    time.sleep(0.1)
    return {"sent": sent}


@flow.variant("write", "bad")
def bad(state):
    return {"answer": "bad"}


flow.edge("read", "write")
flow.edge("write", "post")
"""


class Follower:
    """A client of the feed that connects again from its last cursor, whatever happens to the server."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token
        self.seen: list[tuple[str, int]] = []
        self.connections = 0
        self._cursor = "start"
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self) -> None:
        headers = {"Authorization": f"Bearer {self._token}"}
        while not self._is_done.is_set():
            address = f"ws://127.0.0.1:{self._port}/api/v1/events?since={self._cursor}"
            try:
                with connect(address, additional_headers=headers, max_queue=None, close_timeout=1) as socket:
                    self.connections += 1
                    while not self._is_done.is_set():
                        self._take(socket.recv)
            except (OSError, ConnectionClosed, InvalidHandshake):  # the server is away
                time.sleep(0.05)

    def _take(self, receive: Any) -> None:
        try:
            message = json.loads(receive(0.2))
        except TimeoutError:
            return
        self.seen += [(event["stream"], event["sequence"]) for event in message["events"]]
        self._cursor = message["cursor"]

    def close(self) -> None:
        self._is_done.set()
        self._thread.join(30)
        assert not self._thread.is_alive()


class Story:
    """One batch, its servers, and whoever follows it."""

    def __init__(self, folder: Path, settings: Settings, services: Services) -> None:
        self.folder, self.settings, self.services = folder, settings, services
        (folder / "agent.py").write_text(AGENT)
        _, self._token = services.tokens.create("ci", Role.OPERATOR, by="tester")
        self.port = free_port()
        self.follower = Follower(self.port, self._token)

    def serve(self) -> ServerProcess:
        return ServerProcess(self.folder, self.settings, self._token, port=self.port)

    def lines(self, file: str) -> list[str]:
        path = self.folder / file
        return path.read_text().splitlines() if path.exists() else []

    def wait_for_work(self, more: int) -> None:
        """Wait until so many more calls were made."""
        wanted = min(len(self.lines("world.txt")) + more, JOBS - 1)
        wait_until(lambda: len(self.lines("world.txt")) >= wanted, "the batch makes no progress")

    def driver(self, command_id: str) -> int:
        """Return the process that runs the batch now."""
        wait_until(lambda: self.services.commands.get(command_id).owner is not None, "nobody runs the batch")
        return worker_of(self.services.commands.get(command_id).owner)

    def worker(self) -> int:
        """Return the process that began the last job."""
        return int(self.lines("read.txt")[-1].split()[0])


@pytest.fixture(params=["sqlite", "postgres"])
def story(request: pytest.FixtureRequest, empty_folder: Path, sqlite_template: Path) -> Iterator[Story]:
    """A story over each database in turn."""
    url = prepared_database(request, empty_folder, sqlite_template)
    settings = Settings(folder=empty_folder / "wtb", url=url)
    with bootstrap(settings) as services:
        story = Story(empty_folder, settings, services)
        try:
            yield story
        finally:
            story.follower.close()


@pytest.mark.parametrize("runner", ["threads", "processes"])
def test_a_batch_over_the_api_survives_the_death_of_its_workers_and_servers(story: Story, runner: str) -> None:
    body = {
        "workflow": "mail",
        "name": "killed",
        "cases": [{"id": f"c{n}", "input": {"case": f"c{n}"}, "expected": {"answer": f"c{n}"}} for n in range(CASES)],
        "evaluators": [{"name": "exact_match", "key": "answer"}],
        "options": {"variants": "all", "workers": WORKERS, "runner": runner, "external": "run"},
    }
    with story.serve() as first:
        status, accepted, _ = first.call("POST", "/batches?wait_s=0", body, **{"Idempotency-Key": "once"})
        assert status == 202, accepted
        command = accepted["command"]["id"]
        story.wait_for_work(2)
        os.kill(story.worker(), signal.SIGKILL)  # that of a job: with threads, the one that runs the batch
        story.wait_for_work(2)
        first.kill()
    with story.serve() as second:
        _, again, _ = second.call("POST", "/batches?wait_s=0", body, **{"Idempotency-Key": "once"})
        assert again["command"]["id"] == command
        story.wait_for_work(2)
        os.kill(story.driver(command), signal.SIGKILL)
        ended = story.services.commands.wait_for(command, 120)
        assert ended.error is None, ended.error
        check_results(story, second)
        wait_until(lambda: len(story.follower.seen) >= len(stored(story.services)), "the client misses events")
        assert story.follower.seen == stored(story.services)
        assert story.follower.connections >= 2


def check_results(story: Story, server: ServerProcess) -> None:
    """Each job has one result and one effect, the verdict is the right one, and only what was in flight ran again."""
    _, batch, _ = server.call("GET", "/batches/killed")
    assert (batch["status"], batch["completed"], batch["failed"]) == ("completed", JOBS, 0)
    _, results, _ = server.call("GET", "/batches/killed/results?limit=500")
    places = Counter((row["combination"], row["case"]) for row in results["items"])
    assert len(places) == JOBS
    assert set(places.values()) == {1}
    effects = Counter(story.lines("world.txt"))
    wanted = {f"c{n}:{answer}" for n in range(CASES) for answer in (f"c{n}", "bad")}
    assert effects == dict.fromkeys(wanted, 1)
    again = len(story.lines("read.txt")) - CASES  # both combinations share it
    assert again <= KILLS * WORKERS
    _, verdicts, _ = server.call("GET", "/batches/killed/compare?metric=exact_match")
    assert [row["finding"] for row in verdicts["items"]] == ["worse"]
    _, runs, _ = server.call("GET", "/executions?batch=killed&limit=500")
    assert Counter(run["status"] for run in runs["items"]) == {"completed": JOBS}


def stored(services: Services) -> list[tuple[str, int]]:
    """Return all events, in the order of the feed."""
    with services.storage.unit_of_work(readonly=True) as uow:
        return [(fed.event.stream, fed.event.sequence) for fed in uow.feed.read(START, limit=100_000).events]
