"""Follow events over HTTP: pages, WebSocket and Server-Sent Events, without a gap, a double or a stranger."""

from __future__ import annotations

import json
import random
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection

from tests.api.running_server import WAIT_S, RunningServer, running
from tests.services import free_port
from wtb.api import feed as api_feed
from wtb.api.parts import ServerParts
from wtb.application.server.feed import LiveFeed
from wtb.bootstrap import Services, bootstrap
from wtb.domain.access import Role
from wtb.domain.events import Event, EventType
from wtb.domain.feed import START
from wtb.settings import ServerSettings, Settings

STRANGE = {"n": 1, "text": "ü\n\ud800", "big": 2**80}


@pytest.fixture
def settings(server_settings: Settings) -> Settings:
    return server_settings.model_copy(update={"server": ServerSettings(port=free_port(), requests_per_minute=100_000)})


@pytest.fixture
def services(settings: Settings) -> Iterator[Services]:
    with bootstrap(settings) as services:
        yield services


@pytest.fixture
def token(services: Services) -> str:
    return services.tokens.create("watcher", Role.VIEWER, by="tester")[1]


@pytest.fixture
def server(services: Services, token: str) -> Iterator[RunningServer]:
    with running(ServerParts(services=services), token) as server:
        yield server


def record(services: Services, stream: str, count: int = 1, type: EventType = EventType.NODE_LOGGED) -> None:
    with services.storage.unit_of_work() as uow:
        uow.events.append(*[Event(type=type, stream=stream, at=datetime.now(UTC), data=STRANGE) for _ in range(count)])
        uow.commit()


def stored(services: Services) -> list[tuple[str, int]]:
    """Return the stream and number of every event, in the order of the feed."""
    with services.storage.unit_of_work(readonly=True) as uow:
        return [(fed.event.stream, fed.event.sequence) for fed in uow.feed.read(START, limit=100_000).events]


def places(messages: list[Any]) -> list[tuple[str, int]]:
    return [(message["stream"], message["sequence"]) for message in messages]


def receive(socket: ClientConnection, count: int) -> list[Any]:
    """Receive at least this many events; heartbeats have none."""
    found: list[Any] = []
    end = time.monotonic() + WAIT_S
    while len(found) < count:
        assert time.monotonic() < end, f"only {len(found)} of {count} events came"
        message = json.loads(socket.recv(WAIT_S))
        found += message["events"]
        assert not message["events"] or message["events"][-1]["cursor"] == message["cursor"]
    return found


def wait_for_clients(services: Services, count: int) -> None:
    end = time.monotonic() + WAIT_S
    while services.feed.status().clients != count:
        assert time.monotonic() < end, f"{services.feed.status().clients} of {count} clients came"
        time.sleep(0.01)


def sse(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    """Yield the messages of a stream of Server-Sent Events."""
    message: dict[str, str] = {}
    for line in lines:
        if line:
            field, _, value = line.partition(": ")
            message[field] = value
        else:
            yield message
            message = {}


def test_pages_go_from_the_start_to_the_end_and_on(server: RunningServer, services: Services) -> None:
    record(services, "a", 5)
    record(services, "b", 2, EventType.NODE_FAILED)
    with server.http() as http:
        first = http.get("/api/v1/events", params={"limit": 3}).raise_for_status().json()
        rest = http.get("/api/v1/events", params={"since": first["next"]}).raise_for_status().json()
        assert places(first["items"] + rest["items"]) == stored(services)
        assert (rest["next"], rest["cursor"]) == (None, rest["items"][-1]["cursor"])
        record(services, "a")
        later = http.get("/api/v1/events", params={"since": rest["cursor"]}).raise_for_status().json()
        assert places(later["items"]) == [("a", 6)]
        failed = http.get("/api/v1/events", params={"type": "node.failed", "severity": "error"}).json()
        assert places(failed["items"]) == [("b", 1), ("b", 2)]
        for filters in ({"run": "b"}, {"batch": "b"}, {"type": ["node.failed", "token"], "run": "b"}):
            assert places(http.get("/api/v1/events", params=filters).json()["items"]) == [("b", 1), ("b", 2)]
        [item] = http.get("/api/v1/events", params={"run": "a", "limit": 1}).json()["items"]
        assert item["data"] == STRANGE
        assert (item["type"], item["severity"]) == ("node.logged", "info")


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ({"since": "nonsense"}, 410, "cursor-gone"),
        ({"since": "MC4xLjAwMDAwMDAwMDAwMDAwMDAu"}, 410, "cursor-gone"),
        ({"type": "node.exploded"}, 422, "invalid-input"),
        ({"severity": "loud"}, 422, "invalid-input"),
        ({"sinse": "start"}, 422, "invalid-input"),
    ],
)
def test_what_cannot_be_served_is_a_problem_on_every_way(
    server: RunningServer, query: dict[str, str], status: int, code: str
) -> None:
    with server.http() as http:
        for headers in ({}, {"Accept": "text/event-stream"}):
            answer = http.get("/api/v1/events", params=query, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (status, code)
    with pytest.raises(InvalidStatus) as refused:
        server.socket("&".join(f"{key}={value}" for key, value in query.items()))
    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body or b"")["code"] == code


def test_strangers_follow_nothing_and_fill_no_log(server: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    stranger = replace(server, token="wtb_nobody")
    with stranger.http() as http:
        assert http.get("/api/v1/events", headers={"Accept": "text/event-stream"}).status_code == 401
        assert http.get("/api/v1/events/health").status_code == 401
    with pytest.raises(InvalidStatus) as refused:
        stranger.socket()
    assert refused.value.response.status_code == 401
    assert [record.getMessage() for record in caplog.records if record.name.startswith("uvicorn")] == []


def test_a_caller_follows_only_so_many_feeds_at_once(services: Services, token: str) -> None:
    _, other = services.tokens.create("another", Role.VIEWER, by="tester")
    with running(ServerParts(services=services), token, feeds_per_caller=2) as server, server.http() as http:
        with server.socket() as first, server.socket():
            with pytest.raises(InvalidStatus) as refused:
                server.socket()
            assert refused.value.response.status_code == 429
            streamed = http.get("/api/v1/events", headers={"Accept": "text/event-stream"})
            assert (streamed.status_code, "retry-after" in streamed.headers) == (429, True)
            assert "follows 2 feeds already" in streamed.json()["detail"]
            with replace(server, token=other).socket() as of_another:
                of_another.recv(WAIT_S)
            first.close()
            assert http.get("/api/v1/events", params={"since": "nonsense"}).status_code == 410
            end = time.monotonic() + WAIT_S
            while not follows(server):  # the server notices within moments that the first has gone
                assert time.monotonic() < end
        assert follows(server)


def follows(server: RunningServer) -> bool:
    try:
        with server.socket() as connection:
            connection.recv(WAIT_S)
    except InvalidStatus:
        return False
    return True


def test_a_socket_gets_the_past_and_then_what_comes(server: RunningServer, services: Services) -> None:
    record(services, "a", 3)
    with server.socket("since=start") as follower:
        record(services, "b", 600)
        assert places(receive(follower, len(stored(services)))) == stored(services)
        with server.socket() as newcomer:
            assert json.loads(newcomer.recv(WAIT_S))["events"] == []
            record(services, "c")
            assert places(receive(newcomer, 1)) == places(receive(follower, 1)) == [("c", 1)]


def test_server_sent_events_go_on_from_the_last_id(server: RunningServer, services: Services) -> None:
    record(services, "a", 4)
    accept = {"Accept": "text/event-stream"}
    with server.http() as http:
        with http.stream("GET", "/api/v1/events?since=start&run=a", headers=accept) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            messages = sse(answer.iter_lines())
            first = [next(messages) for _ in range(2)]
        kept = first[-1]["id"]
        with http.stream("GET", "/api/v1/events?since=now&run=a", headers={**accept, "Last-Event-ID": kept}) as answer:
            messages = sse(answer.iter_lines())
            rest = [next(messages) for _ in range(2)]
            record(services, "a")
            rest.append(next(messages))
    found = [json.loads(message["data"]) for message in first + rest]
    assert places(found) == [("a", number) for number in range(1, 6)]
    assert [message["id"] for message in first + rest] == [event["cursor"] for event in found]


def test_a_silent_stream_has_heartbeats_whose_cursor_goes_on(
    server: RunningServer, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_feed, "HEARTBEAT_S", 0.05)
    with server.socket("run=quiet") as follower:
        first = json.loads(follower.recv(WAIT_S))
        record(services, "loud", 3)
        end = time.monotonic() + WAIT_S
        while (beat := json.loads(follower.recv(WAIT_S)))["cursor"] == first["cursor"]:
            assert time.monotonic() < end
        assert beat["events"] == []
        with server.http() as http:
            page = http.get("/api/v1/events", params={"since": beat["cursor"]}).json()
            assert len(page["items"]) < 3
            assert page["cursor"] == str(services.feed.end())


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_a_token_that_ends_closes_the_streams_of_its_owner(
    server: RunningServer, services: Services, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(api_feed, "CHECK_S", 0.1)
    lasts = timedelta(seconds=2) if how == "expired" else None
    _, secret = services.tokens.create("guest", Role.VIEWER, by="tester", lasts=lasts)
    guest = replace(server, token=secret)
    with guest.socket() as follower, guest.http() as http:
        follower.recv(WAIT_S)
        with http.stream("GET", "/api/v1/events", headers={"Accept": "text/event-stream"}) as answer:
            messages = sse(answer.iter_lines())
            assert next(messages)["event"] == "heartbeat"
            if how == "revoked":
                services.tokens.revoke("guest", by="tester")
            ended = [message for message in messages if message.get("event") == "closed"]
        assert json.loads(ended[0]["data"])["code"] == "unauthenticated"
        with pytest.raises(ConnectionClosed) as closed:
            receive(follower, 1_000)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4401
    assert "sign in again" in closed.value.rcvd.reason


def test_a_client_that_does_not_read_is_dropped_and_delays_nobody(
    settings: Settings, token: str, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_feed, "SEND_S", 0.5)
    services = replace(services, feed=LiveFeed(services.storage, services.bus, queue_size=2_000))
    with running(ServerParts(services=services), token, port=settings.server.port) as server:
        with ExitStack() as open_until_the_end:
            address = ("127.0.0.1", settings.server.port)
            plain = open_until_the_end.enter_context(socket.create_connection(address))
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            request = "GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
            plain.sendall(f"{request}Authorization: Bearer {token}\r\n\r\n".encode())
            wait_for_clients(services, 1)
            quick = open_until_the_end.enter_context(server.socket(max_queue=None))
            wait_for_clients(services, 2)
            end, written = time.monotonic() + WAIT_S, 0
            while services.feed.status().clients == 2:
                assert time.monotonic() < end
                record(services, "a", 500)
                written += 500
                receive(quick, 500)
        with server.http() as http:
            health = http.get("/api/v1/events/health").raise_for_status().json()
    assert health["held_back_by"] is None
    assert written > 500
    services.feed.close()


def test_clients_that_reconnect_at_random_get_everything_once_over_restarts_of_the_server(
    settings: Settings, token: str
) -> None:
    done = threading.Event()
    results: list[list[tuple[str, int]]] = []
    port = settings.server.port

    def write(stream: str) -> None:
        with bootstrap(settings) as own:
            for number in range(60):
                record(own, stream, 1 + number % 3)
                time.sleep(0.005)

    def follow(seed: int) -> None:
        choose, cursor, mine = random.Random(seed), "start", list[Any]()
        follower = RunningServer(url=f"http://127.0.0.1:{port}", token=token)
        while True:
            finished = done.is_set()
            try:
                with follower.socket(f"since={cursor}") as connection:
                    for _ in range(choose.randint(1, 40)):
                        message = json.loads(connection.recv(1.0 if finished else 0.2))
                        cursor = message["cursor"]
                        mine += message["events"]
            except TimeoutError:
                if finished:
                    results.append(places(mine))
                    return
            except (OSError, ConnectionClosed, InvalidHandshake) as error:  # the server is away
                if isinstance(error, InvalidStatus) and error.response.status_code < 500:
                    raise
                time.sleep(0.05)

    writers = [threading.Thread(target=write, args=(stream,)) for stream in "abc"]
    readers = [threading.Thread(target=follow, args=(seed,)) for seed in range(4)]
    for thread in (*writers, *readers):
        thread.start()
    for _ in range(2):  # two servers, one after the other
        with bootstrap(settings) as own, running(ServerParts(services=own), token, port=port):
            time.sleep(0.7)
    with bootstrap(settings) as own, running(ServerParts(services=own), token, port=port):
        for thread in writers:
            thread.join(WAIT_S)
        done.set()
        for thread in readers:
            thread.join(WAIT_S)
        expected = stored(own)
    assert len(results) == 4
    assert all(result == expected for result in results)


def test_the_example_of_the_documentation_follows_over_a_restart(
    settings: Settings, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_feed, "CHECK_S", 0.1)
    page = (Path(__file__).parents[2] / "docs" / "live-events.md").read_text()
    [example] = re.findall(r"^```py\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(compile(example, "live-events.md", "exec"), names)  # noqa: S102  our own page
    port, seen = settings.server.port, list[Any]()
    events = names["follow"](f"ws://127.0.0.1:{port}", token, since="start")
    for number in range(2):
        with bootstrap(settings) as own, running(ServerParts(services=own), token, port=port):
            record(own, "a", 2)
            while len(seen) < len(stored(own)):
                seen.append(next(events))
            assert places(seen) == stored(own)
            if number == 1:
                own.tokens.revoke("watcher", by="tester")
                with pytest.raises(ConnectionClosed, match="sign in again"):
                    list(events)
