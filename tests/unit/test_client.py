"""The client of a server: what it sends, what it sends again, and what it makes of answers."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import httpx
import pytest

import wtb
from wtb.api.problems import code_of, problem_of
from wtb.client import AsyncClient, Client
from wtb.client.blocking import finished
from wtb.client.feed import follow
from wtb.client.problems import classes, error_of
from wtb.client.sockets import SocketClosed
from wtb.client.values import read_value, write_value
from wtb.domain import errors
from wtb.domain.errors import (
    Conflict,
    ExecutionNotFound,
    InvalidInput,
    InvalidWorkflow,
    NotFinished,
    ServerAway,
    StorageUnavailable,
    VersionMismatch,
    WorkflowNotServed,
    WTBError,
)

URL = "http://127.0.0.1:8383"
Answering = Callable[[httpx.Request], httpx.Response]


def client_of(answer: Answering, **options: Any) -> Client:
    return Client(URL, "wtb_secret", http=httpx.Client(transport=httpx.MockTransport(answer)), **options)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wtb.client.transports.pause_before", lambda tries: 0.0)


def told(status: int, data: Any) -> httpx.Response:
    return httpx.Response(status, json=data)


def problem(error: WTBError) -> httpx.Response:
    found = problem_of(error)
    return told(found.status, found.model_dump(exclude_none=True))


VERSION = {"version": "1", "schema_revision": None}
COMMAND = {
    "id": "c1",
    "kind": "run.checkpoint",
    "subject": "r1",
    "status": "running",
    "created_by": "ci",
    "created_at": "2026-01-01T00:00:00Z",
    "attempts": 1,
}


def test_every_problem_of_a_server_becomes_the_error_with_this_code() -> None:
    public = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, WTBError)}
    assert {code_of(kind) for kind in public} == classes().keys()
    for code, kind in classes().items():
        found = error_of(json.dumps({"code": code, "status": 400, "detail": "so it is"}).encode(), 400)
        assert type(found) is kind
        assert str(found) == "so it is"


def test_a_problem_keeps_its_faults_and_its_command() -> None:
    with pytest.raises(InvalidWorkflow) as invalid:
        client_of(lambda _: problem(InvalidWorkflow("flow", ["no start", "no end"]))).version()
    assert list(invalid.value.faults) == ["no start", "no end"]
    with pytest.raises(WorkflowNotServed) as not_served:
        client_of(lambda _: problem(WorkflowNotServed("not here", "wtb resume r1"))).version()
    assert not_served.value.command == "wtb resume r1"


def test_a_problem_that_this_version_does_not_know_is_still_an_error_with_its_sentence() -> None:
    unknown = {"code": "quite-new", "status": 409, "detail": "this is new"}
    with pytest.raises(InvalidInput, match="this is new"):
        client_of(lambda _: told(409, unknown)).version()
    with pytest.raises(WTBError, match="status 502"):
        client_of(lambda _: httpx.Response(502, text="<html>bad gateway</html>")).version()
    with pytest.raises(WTBError, match="check that the address is that of a WTB server"):
        client_of(lambda _: httpx.Response(200, text="<html>hello</html>")).version()


def test_a_request_carries_the_token_and_names_are_quoted() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return problem(ExecutionNotFound("a b?c"))

    with pytest.raises(ExecutionNotFound):
        client_of(answer).get("a b?c")
    assert seen[0].headers["Authorization"] == "Bearer wtb_secret"
    assert seen[0].url.raw_path == b"/api/v1/executions/a%20b%3Fc"


@pytest.mark.parametrize("name", ["..", ".", ""])
def test_a_name_that_would_be_another_address_is_refused_before_anything_is_sent(name: str) -> None:
    client = client_of(lambda request: pytest.fail(f"sent to {request.url}"))
    with pytest.raises(InvalidInput):  # it once deleted the run
        client.delete_checkpoint("r1", name)
    with pytest.raises(InvalidInput):
        client.delete(name)
    for path in (name, f"a/{name}/b"):
        with pytest.raises(InvalidInput):
            client.read_file("r1", path)


@pytest.mark.parametrize("name", ["a/../b", "run/checkpoints/1"])
def test_a_slash_in_a_name_begins_no_new_part_of_an_address(name: str) -> None:
    seen: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.raw_path)
        return problem(ExecutionNotFound(name))

    with pytest.raises(ExecutionNotFound):
        client_of(answer).delete_checkpoint("r1", name)
    assert seen == [f"/api/v1/executions/r1/checkpoints/{name.replace('/', '%2F')}".encode()]


def lost_after(count: int, error: Exception | httpx.Response, then: Answering) -> tuple[Answering, list[httpx.Request]]:
    """Return a server that fails so often before it answers, and the requests that it got."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if len(seen) > count:
            return then(request)
        if isinstance(error, httpx.Response):
            return error
        raise error

    return answer, seen


@pytest.mark.parametrize(
    "error", [httpx.ConnectError("refused"), httpx.ReadError("lost"), httpx.Response(503), httpx.Response(429)]
)
def test_a_request_that_creates_is_sent_again_with_the_same_key(error: Exception | httpx.Response) -> None:
    answer, seen = lost_after(2, error, lambda _: told(202, {"command": COMMAND}))
    assert client_of(answer).start("flow", {"a": 1}).subject == "r1"
    assert len(seen) == 3
    assert len({(each.headers["Idempotency-Key"], each.content) for each in seen}) == 1


def test_another_request_has_another_key() -> None:
    answer, seen = lost_after(0, httpx.ReadError("lost"), lambda _: told(202, {"command": COMMAND}))
    client = client_of(answer)
    client.start("flow")
    client.start("flow")
    assert len({each.headers["Idempotency-Key"] for each in seen}) == 2


def test_a_delete_is_sent_again_only_if_it_did_not_reach_the_server() -> None:
    answer, seen = lost_after(1, httpx.ReadError("lost"), lambda _: httpx.Response(204))
    with pytest.raises(ServerAway):
        client_of(answer).delete("r1")
    assert len(seen) == 1
    answer, seen = lost_after(1, httpx.ConnectError("refused"), lambda _: httpx.Response(204))
    client_of(answer).delete("r1")
    assert len(seen) == 2


def test_a_server_that_stays_away_is_an_error_that_says_what_to_do() -> None:
    answer, seen = lost_after(99, httpx.ConnectError("refused"), lambda _: told(200, VERSION))
    with pytest.raises(ServerAway, match=r"refused.*wtb serve") as away:
        client_of(answer, retries=3).version()
    assert isinstance(away.value, ConnectionError)
    assert len(seen) == 4
    answer, seen = lost_after(99, problem(StorageUnavailable("the disk is full")), lambda _: told(200, VERSION))
    with pytest.raises(StorageUnavailable, match="disk is full"):
        client_of(answer, retries=1).version()


def test_a_list_is_read_page_by_page_as_far_as_it_is_wanted() -> None:
    asked: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        cursor = request.url.params.get("cursor")
        asked.append(cursor)
        number = int(cursor or 0)
        rows = [{**COMMAND, "id": f"c{number}{letter}"} for letter in "ab"]
        return told(200, {"items": rows, "next": None if number == 2 else str(number + 1)})

    client = client_of(answer)
    assert [each.id for each in client.list_commands()] == ["c0a", "c0b", "c1a", "c1b", "c2a", "c2b"]
    asked.clear()
    assert next(client.list_commands()).id == "c0a"
    assert asked == [None]


def test_a_command_is_waited_for_and_its_error_raised() -> None:
    ended = {**COMMAND, "status": "failed", "problem": problem_of(Conflict("somebody was first")).model_dump()}
    answers = [told(202, {"command": COMMAND}), told(200, COMMAND), told(200, ended)]
    with pytest.raises(Conflict, match="somebody was first"):
        client_of(lambda _: answers.pop(0)).checkpoint("r1", "here")
    assert answers == []


def test_waiting_ends_in_time_and_says_that_the_command_goes_on() -> None:
    with pytest.raises(NotFinished, match=r"goes on.*wait_for\('c1'\)"):
        client_of(lambda _: told(200, COMMAND)).wait_for("c1", wait_s=0)


def test_an_option_that_does_not_exist_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(InvalidInput, match="brake_before"):
        client_of(lambda _: pytest.fail("sent")).start("flow", brake_before=["a"])
    with pytest.raises(InvalidInput, match=r"127\.0\.0\.1"):
        Client("localhost:8383")


def test_a_rollback_carries_out_the_plan_that_was_shown() -> None:
    sent: list[tuple[str, str | None]] = []
    result = {"plan": {"reverse": []}, "version": 7, "digest": "ab"}

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append((request.url.path.rpartition("/")[2], request.headers.get("If-Match")))
        if request.url.path.endswith("rollback"):
            return problem(VersionMismatch("the plan has changed"))
        return told(200, {"command": {**COMMAND, "status": "completed", "result": result}})

    client = client_of(answer)
    plan = client.rollback("r1", 1, dry_run=True)
    assert (plan.data, sent) == ({"reverse": []}, [("plan", None)])
    with pytest.raises(VersionMismatch):
        client.rollback("r1", 1, expected=plan)
    assert sent[1:] == [("rollback", '"7-ab"')]


def test_values_go_there_and_back_and_objects_stay_as_data() -> None:
    value = {
        "big": 1 << 70,
        "at": datetime(2026, 1, 1, tzinfo=UTC),
        "parts": (1, {"a"}, b"x", [None, True, 1.5]),
        "id": UUID(int=1),
        "price": Decimal("1.10"),
        "by number": {1: "one"},
        "api_key": "sk-1234567890abcdefghijkl",
    }
    assert read_value(json.loads(json.dumps(write_value(value)))) == value
    shown = {
        "place": {"$type": "class", "name": "agent.Place", "value": {"at": "home"}},
        "key": {"$type": "masked", "value": "***"},
        "lock": {"$type": "opaque", "name": "Lock", "text": "<lock>"},
    }
    assert read_value(shown) == shown
    assert write_value(read_value(shown)) == shown


def test_both_clients_have_the_same_verbs_and_explain_them() -> None:
    verbs = {name for name, _ in inspect.getmembers(AsyncClient, inspect.isfunction) if not name.startswith("_")}
    assert verbs == {name for name, _ in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")}
    for name in verbs:
        assert inspect.getdoc(getattr(Client, name)), name
        given = inspect.signature(getattr(AsyncClient, name)).parameters
        assert list(inspect.signature(getattr(Client, name)).parameters) == list(given)


def test_the_async_client_does_the_same_on_an_event_loop() -> None:
    answer, seen = lost_after(1, httpx.ConnectError("refused"), lambda _: told(200, VERSION))

    async def ask() -> str:
        http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
        async with AsyncClient(URL, http=http) as client:
            return (await client.version()).version

    assert asyncio.run(ask()) == "1"
    assert len(seen) == 2


def test_the_token_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WTB_TOKEN", "wtb_other")
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["Authorization"])
        return told(200, VERSION)

    Client(URL, http=httpx.Client(transport=httpx.MockTransport(answer))).version()
    assert seen == ["Bearer wtb_other"]


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.modules['fastapi'] = sys.modules['starlette'] = sys.modules['uvicorn'] = None\n"
        "import wtb; wtb.Client, wtb.AsyncClient",
        "import sys, wtb; assert not {'httpx', 'websockets', 'wtb.client'} & sys.modules.keys()",
    ],
    ids=["the client needs no library of a server", "import wtb imports no library of a client"],
)
def test_libraries_are_imported_only_where_they_are_used(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_its_libraries_the_client_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("wtb.client")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(wtb, "client", raising=False)
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(wtb.WTBError, match=r"httpx.*\[client\]"):
        _ = wtb.Client


class GreetingServer:
    """A transport to a server that greets, and fails at once, every time."""

    def __init__(self) -> None:
        self.now = 0.0

    async def connect(self, path: str, query: str) -> GreetingServer:
        self.greeted = False
        return self

    async def receive(self, timeout_s: float) -> str:
        if self.greeted:
            raise SocketClosed(1011, "the store is damaged")
        self.greeted = True
        return '{"events": [], "cursor": "1-1-00"}'

    async def sleep(self, seconds: float) -> None:
        self.now += 1

    async def send(self, request: Any) -> Any:
        raise AssertionError("nothing is sent")

    async def close(self) -> None:
        pass


def test_a_feed_that_greets_and_fails_again_and_again_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    server = GreetingServer()
    monkeypatch.setattr("wtb.client.feed.time", SimpleNamespace(monotonic=lambda: server.now))
    with pytest.raises(ServerAway, match="the store is damaged"):
        finished(anext(follow(server, "now", {}, patience_s=10)))
    assert 10 < server.now < 15


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_a_file_that_is_no_certificate_is_refused_before_anything_is_sent(tmp_path: Path, text: str | None) -> None:
    certificate = tmp_path / "certificate.pem"
    if text is not None:
        certificate.write_text(text)
    with pytest.raises(wtb.InvalidInput, match=r"certificate\.pem cannot be used as a certificate"):
        wtb.Client("https://127.0.0.1:1", "x", certificate=certificate)
