"""Every verb of the client is tried and every route is in its reach: a new one cannot be forgotten."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Match

import wtb
from wtb.client.run_changes import ShownPlan
from wtb.domain.errors import WTBError

LIVE = ("test_client_of_a_server.py", "test_client_verbs.py")
"""The tests that drive the client against a real server."""

WITHOUT_A_VERB = {
    "server_check_health": "for load balancers; `ready` says more",
    "session_create": "signs a browser in; a client sends its token with every request",
    "session_end": "signs a browser out; a client has a token, and no session",
    "checkpoints_list_files": "`files` takes `at`",
    "checkpoints_download_file": "`read_file` takes `at`",
    "executions_list_state_matches": "for the page; `state` returns everything",
}

GIVEN: dict[str, Any] = {"role": "viewer", "position": 1, "evaluators": ["latency_s"]}
"""What verbs get for the parameters that have to be given; for others than these, a text."""
INLINE: dict[str, Any] = {"workflow": "x", "cases": [{"input": {}}]}
MORE: dict[str, dict[str, Any]] = {
    "batch": INLINE,
    "start_batch": INLINE,
    "plan": INLINE,
    "evaluate": {"runs": "x"},
    "redo": {"version": 1},
    "rollback": {"expected": ShownPlan(data={}, tag='"1-x"')},
}
"""Without these, a verb sends nothing, or asks something else first."""


def verbs() -> Iterator[str]:
    """Yield all verbs but `events`, which come over a WebSocket, and `close`."""
    methods = (name for name, value in vars(wtb.Client).items() if inspect.isfunction(value))
    return (name for name in methods if not name.startswith("_") and name not in {"close", "events"})


def test_every_verb_is_driven_against_a_real_server() -> None:
    called = set()
    for name in LIVE:
        for node in ast.walk(ast.parse(Path(__file__).with_name(name).read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "client":
                called.add(node.attr)
    assert sorted({*verbs(), "events"} - called) == []


@pytest.mark.parametrize("server_settings", ["sqlite"], indirect=True)  # no database decides any of this
def test_every_route_has_a_verb_or_a_reason(app: FastAPI) -> None:
    routes = [route for route in app.routes if isinstance(route, APIRoute) and route.include_in_schema]
    reached = {_route_of(routes, request) for verb in verbs() for request in _sent_by(verb)}
    assert None not in reached
    assert {route.operation_id for route in routes} - reached == WITHOUT_A_VERB.keys()


def _sent_by(verb: str) -> list[httpx.Request]:
    """Return what a verb sends to a server that refuses everything."""
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(400)

    http = httpx.Client(transport=httpx.MockTransport(answer))
    with wtb.Client("http://127.0.0.1:8383", "x", http=http) as client:
        for more in ({}, MORE.get(verb, {})):
            with suppress(WTBError):
                _call(getattr(client, verb), more)
    return sent


def _call(method: Any, more: dict[str, Any]) -> None:
    parameters = inspect.signature(method).parameters.values()
    needed = [each.name for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
    found = method(**{name: GIVEN.get(name, "x") for name in needed}, **more)
    if inspect.isgenerator(found):
        next(found)


def _route_of(routes: list[APIRoute], request: httpx.Request) -> str | None:
    scope = {"type": "http", "method": request.method, "path": request.url.path, "headers": []}
    return next((route.operation_id for route in routes if route.matches(scope)[0] is Match.FULL), None)
