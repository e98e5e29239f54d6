"""The live feed under load: 200 clients and 20 writers for a minute, and what 20 watchers cost a worker.

Server, clients, writers and worker are processes of their own, on the loopback interface. This file is all of them:
`python -m benchmarks.feed` starts the others, tells them what to do in lines of text, and reads what they found.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import uvicorn
from websockets.asyncio.client import ClientConnection, connect

import wtb
from benchmarks.report import Figure, measure
from tests.services import PostgresServer, free_port
from wtb.api.app import create_app
from wtb.api.parts import ServerParts
from wtb.bootstrap import bootstrap
from wtb.domain.access import Role
from wtb.domain.events import Event, EventType
from wtb.infrastructure.sql import schema
from wtb.settings import ServerSettings, Settings
from wtb.storage_bootstrap import open_database

CLIENTS, CLIENT_PROCESSES = 200, 2
WRITERS, WRITER_PROCESSES = 20, 2
SECONDS = float(os.environ.get("SECONDS_OF_LOAD", "60"))
PAUSE_S = 1.0
"""How long a writer waits between two events: 20 a second for 200 clients are 4,000 messages a second."""
WATCHERS, ROUNDS, STEPS = 20, 15, 1_000


class Child:
    """A process of this file that answers lines with lines of JSON."""

    def __init__(self, part: str, settings: Settings, *arguments: str) -> None:
        data = settings.model_dump(mode="json", include={"url", "folder", "user", "server"}, exclude_none=True)
        given = [part, json.dumps(data), *arguments]
        command = [sys.executable, "-m", "benchmarks.feed", *given]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, line: str) -> None:
        """Send a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        """Wait for a line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a process of the benchmark has ended")
        return json.loads(line)

    def ask(self, line: str) -> Any:
        """Send a line and wait for the answer."""
        self.tell(line)
        return self.hear()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.terminate()
        self._process.wait()


def say(value: Any) -> None:
    """Answer the process that started this one."""
    sys.stdout.write(f"{json.dumps(value)}\n")
    sys.stdout.flush()


# The parts


def serve(settings: Settings) -> None:
    """Serve until the end."""
    with bootstrap(settings) as services:
        app = create_app(ServerParts(services=services))
        config = uvicorn.Config(app, host="127.0.0.1", port=settings.server.port, log_level="error")
        server = uvicorn.Server(config)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(_say_when_started, server)
            server.run()


def _say_when_started(server: uvicorn.Server) -> None:
    while not server.started:
        time.sleep(0.01)
    say("ready")


def write(settings: Settings, first: str, count: str) -> None:
    """Record events, each thread in its own stream, and say how many."""
    with bootstrap(settings) as services, ThreadPoolExecutor(int(count)) as pool:
        sys.stdin.readline()
        end = time.time() + SECONDS

        def record(number: int) -> tuple[str, int]:
            stream, done = f"writer-{number}", 0
            time.sleep(PAUSE_S * number / WRITERS)  # one after the other, as in real life
            while time.time() < end:
                with services.storage.unit_of_work() as uow:
                    event = Event(
                        type=EventType.NODE_LOGGED, stream=stream, at=datetime.now(UTC), data={"sent": time.time()}
                    )
                    uow.events.append(event)
                    uow.commit()
                done += 1
                time.sleep(PAUSE_S)
            return stream, done

        say(dict(pool.map(record, range(int(first), int(first) + int(count)))))


class Watcher:
    """One client of the feed."""

    def __init__(self, settings: Settings, token: str) -> None:
        self._address = f"ws://127.0.0.1:{settings.server.port}/api/v1/events"
        self._headers = {"Authorization": f"Bearer {token}"}
        self.seen: Counter[tuple[str, int]] = Counter()
        self.latencies: list[float] = []
        self.ready = asyncio.Event()

    async def follow(self) -> None:
        """Follow until cancelled."""
        async with connect(self._address, additional_headers=self._headers, compression=None) as connection:
            await self._receive(connection)

    async def _receive(self, connection: ClientConnection) -> None:
        async for message in connection:
            self.ready.set()
            for event in json.loads(message)["events"]:
                if "sent" in event["data"]:
                    self.latencies.append(time.time() - event["data"]["sent"])
                    self.seen[event["stream"], event["sequence"]] += 1


def watch(settings: Settings, token: str, count: str) -> None:
    """Follow with many clients when told to; compare with what was written, and say what was lost and doubled."""
    asyncio.run(_watch(settings, token, int(count)))


async def _watch(settings: Settings, token: str, count: int) -> None:
    loop = asyncio.get_running_loop()
    watchers: list[Watcher] = []
    tasks: list[asyncio.Task[None]] = []
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        if line.strip() == "connect":
            watchers = [Watcher(settings, token) for _ in range(count)]
            tasks = [asyncio.create_task(watcher.follow()) for watcher in watchers]
            await asyncio.gather(*(watcher.ready.wait() for watcher in watchers))
            say("ready")
        elif line.strip() == "leave":
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            say("left")
        else:
            say(await _compare(watchers, json.loads(line)))


async def _compare(watchers: list[Watcher], written: dict[str, int]) -> dict[str, Any]:
    expected = {(stream, number) for stream, count in written.items() for number in range(1, count + 1)}
    end = time.monotonic() + 30
    # The clients only count what they get, and tell nobody.
    while time.monotonic() < end and any(len(watcher.seen) < len(expected) for watcher in watchers):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    return {
        "lost": sum(len(expected - watcher.seen.keys()) for watcher in watchers),
        "doubled": sum(count - 1 for watcher in watchers for count in watcher.seen.values()),
        "latencies": [latency for watcher in watchers for latency in watcher.latencies],
    }


def work(settings: Settings) -> None:
    """Run a workflow whenever told to; say the processor time of a step."""

    def count(state: dict[str, Any]) -> dict[str, Any]:
        return {"n": state["n"] + 1}

    flow = wtb.Workflow("counting")
    flow.add_node("count", count, start=True)
    flow.edge("count", "count", when=f"n < {STEPS}")
    flow.edge("count", wtb.END, otherwise=True)
    with wtb.Bench(url=settings.url, folder=settings.folder) as bench:
        while sys.stdin.readline():
            began = time.process_time()
            bench.run(flow, {"n": 0}, max_steps=STEPS + 1)
            say((time.process_time() - began) / STEPS * 1e6)


# The measurements


def load(settings: Settings, token: str, name: str) -> list[Figure]:
    """Let many write and many follow, for a minute."""
    with ExitStack() as stack:
        each = CLIENTS // CLIENT_PROCESSES
        clients = [stack.enter_context(Child("watch", settings, token, str(each))) for _ in range(CLIENT_PROCESSES)]
        for child in clients:
            child.ask("connect")
        share = WRITERS // WRITER_PROCESSES
        writers = [
            stack.enter_context(Child("write", settings, str(number * share), str(share)))
            for number in range(WRITER_PROCESSES)
        ]
        for child in writers:
            child.tell("go")
        written: dict[str, int] = {}
        for child in writers:
            written |= child.hear()
        found = [child.ask(json.dumps(written)) for child in clients]
    latencies: list[float] = sorted(latency * 1000 for each_found in found for latency in each_found["latencies"])
    detail = f"{sum(written.values())} events, {CLIENTS} clients, {WRITERS} writers, {SECONDS:g} s"

    def percentile(part: float) -> float:
        return latencies[min(len(latencies) - 1, int(len(latencies) * part))]

    return [
        Figure(name=f"{name}: events lost", value=sum(each_found["lost"] for each_found in found), unit="", bar=0),
        Figure(
            name=f"{name}: events doubled", value=sum(each_found["doubled"] for each_found in found), unit="", bar=0
        ),
        Figure(name=f"{name}: delivered", value=len(latencies), unit="", detail=detail),
        *(
            Figure(name=f"{name}: commit to client, {label}", value=percentile(part), unit="ms")
            for label, part in (("median", 0.5), ("95 %", 0.95), ("99 %", 0.99), ("longest", 1.0))
        ),
    ]


def watched_step(settings: Settings, token: str, name: str) -> list[Figure]:
    """Compare a step's processor time in the worker with watchers and without, in turns."""
    with Child("work", settings) as worker, Child("watch", settings, token, str(WATCHERS)) as watchers:
        worker.ask("warm up")
        alone: list[float] = []
        watched: list[float] = []
        for _ in range(ROUNDS):
            alone.append(worker.ask("run"))
            watchers.ask("connect")
            watched.append(worker.ask("run"))
            watchers.ask("leave")
    # The quickest quarter: whatever else a machine does makes steps slower, and differs from round to round.
    quick, quick_watched = (quantiles(each, n=4)[0] for each in (alone, watched))
    more = (quick_watched / quick - 1) * 100
    medians = (median(watched) / median(alone) - 1) * 100
    detail = f"{quick:.0f} µs alone, {quick_watched:.0f} µs watched; medians {medians:+.1f} %"
    return [
        Figure(name=f"{name}: a step with {WATCHERS} watchers costs more", value=more, unit="%", bar=3, detail=detail)
    ]


@contextmanager
def served(settings: Settings) -> Iterator[str]:
    """Serve a store in another process; gives a token."""
    with bootstrap(settings) as services:
        _, token = services.tokens.create("watcher", Role.VIEWER, by="benchmark")
    with Child("serve", settings) as server:
        server.hear()
        yield token


def figures(url: str | None, name: str) -> Sequence[Figure]:
    """Measure everything on one store."""
    with tempfile.TemporaryDirectory(prefix="wtb-feed-") as folder:
        server = ServerSettings(port=free_port(), requests_per_minute=1_000_000, feeds_per_caller=1_000)
        settings = Settings(url=url, folder=Path(folder) / ".wtb", user="benchmark", server=server)
        if url is not None:
            database = open_database(settings)
            schema.upgrade(database)
            database.close()
        with served(settings) as token:
            return [*load(settings, token, name), *watched_step(settings, token, name)]


def main() -> None:
    """Measure on SQLite and on Postgres, or be one of the processes."""
    if len(sys.argv) > 1:
        part, data, *arguments = sys.argv[1:]
        settings = Settings.model_validate_json(data)
        parts: dict[str, Callable[..., None]] = {"serve": serve, "watch": watch, "write": write, "work": work}
        parts[part](settings, *arguments)
        return
    with PostgresServer(parent=Path(tempfile.gettempdir())) as postgres:
        url = postgres.create_database("feed")
        measure(
            "The live feed",
            Path("build/benchmarks/feed.json"),
            [
                ("SQLite", lambda: figures(None, "SQLite")),
                ("Postgres", lambda: figures(url, "Postgres")),
            ],
        )


if __name__ == "__main__":
    main()
