"""The matrix of roles, made from the routes: a new one cannot be forgotten."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocketDisconnect

from tests.api.client import TestClient
from tests.api.conftest import Sign
from wtb.api.access import PUBLIC
from wtb.api.app import create_app
from wtb.api.openapi import role_of
from wtb.api.parts import ServerParts
from wtb.domain.access import Role

pytestmark = pytest.mark.parametrize("server_settings", ["sqlite"], indirect=True)  # no database decides any of this

READING = {"GET", "HEAD"}

LANGGRAPH_READS = (
    "assistants/search",
    "assistants/count",
    "threads/search",
    "threads/count",
    "threads/{thread_id}/state/checkpoint",
    "threads/{thread_id}/history",
)
VIEWERS_MAY = {
    ("POST", "/api/v1/session"),
    ("DELETE", "/api/v1/session"),
    ("POST", "/api/v1/gates"),
    *(("POST", f"/langgraph/{path}") for path in LANGGRAPH_READS),
    *((method, "/langgraph/{path:path}") for method in ("POST", "PUT", "PATCH", "DELETE")),
}
"""What a viewer may do although its method is one that changes something. A gate only compares stored scores; clients
of LangGraph search with POST, and the last route only says what is not offered.
"""


@pytest.fixture
def app(parts: ServerParts) -> FastAPI:
    """The app of a server that serves everything that can be turned on."""
    server = parts.server.model_copy(update={"langgraph": True})
    services = replace(parts.services, settings=parts.settings.model_copy(update={"server": server}))
    return create_app(replace(parts, services=services))


def calls(app: FastAPI) -> Iterator[tuple[str, str, Role | None]]:
    """Yield every method and path with the role that it needs."""
    for route in app.routes:
        if isinstance(route, APIRoute):
            for method in sorted(route.methods or ()):
                yield method, route.path, role_of(route)


def filled(path: str) -> str:
    """Return a path with something for each of its parameters."""
    return re.sub(r"\{[^}]*\}", "x", path)


def test_every_route_declares_a_role_or_is_public(app: FastAPI) -> None:
    forgotten = [
        path for route in app.routes if (path := getattr(route, "path", "")) not in PUBLIC and not role_of(route)
    ]
    assert forgotten == []
    assert [path for _, path, role in calls(app) if role is not None and path in PUBLIC] == []


def test_viewers_change_nothing(app: FastAPI) -> None:
    changing = {(method, path) for method, path, role in calls(app) if role is Role.VIEWER and method not in READING}
    assert changing == VIEWERS_MAY


def test_a_stranger_gets_401_everywhere(app: FastAPI, stranger: TestClient) -> None:
    found = {
        (method, path): stranger.request(method, filled(path)).status_code
        for method, path, role in calls(app)
        if role is not None
    }
    assert len(found) > 5
    assert set(found.values()) == {401}, found


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_a_role_gets_403_for_what_needs_a_higher_one(app: FastAPI, client: Sign, role: Role) -> None:
    caller = client(role)
    found = {
        (method, path): caller.request(method, filled(path)).status_code
        for method, path, needed in calls(app)
        if needed is not None and not role.includes(needed)
    }
    assert found
    assert set(found.values()) == {403}, found


def test_the_routes_for_langgraph_are_there_only_if_they_are_turned_on(app: FastAPI, parts: ServerParts) -> None:
    assert any(path.startswith("/langgraph/") for _, path, _ in calls(app))
    assert not any(path.startswith("/langgraph") for _, path, _ in calls(create_app(parts)))
    assert app.openapi_schema == create_app(parts).openapi_schema


def test_a_stranger_opens_no_websocket(app: FastAPI, stranger: TestClient) -> None:
    for route in app.routes:
        if isinstance(route, WebSocketRoute):
            with pytest.raises(WebSocketDisconnect), stranger.websocket_connect(filled(route.path)):
                pass
