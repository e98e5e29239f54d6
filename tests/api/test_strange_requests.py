"""Texts that no database can hold, and cursors that nobody made, are problems of the caller."""

from __future__ import annotations

import json

from tests.api.client import TestClient
from wtb.application.queries.cursors import cursor_of

_STRANGE = [
    ("POST", "/executions", {"workflow": "a\x00b"}),
    ("POST", "/executions", {"workflow": "a\ud800"}),
    ("POST", "/executions/a%00b/resume", {}),
    ("POST", "/executions/a%00b/pause", None),
    ("POST", "/executions/a%ED%A0%80b/pause", None),
    ("POST", "/executions/%F0%9F%98%80/stop", None),
    ("POST", "/executions/x/checkpoints", {"name": "a\x00b"}),
    ("POST", "/executions/x/redo", None),
    ("GET", "/commands?cursor=2026-01-01T00:00:00", None),
    ("GET", "/commands?cursor=yesterday", None),
    ("GET", "/commands/%00", None),
    ("GET", "/workflows/%00", None),
    ("GET", "/workflows/%00/graph", None),
    ("DELETE", "/executions/%00", None),
    ("DELETE", "/executions/x/checkpoints/%00", None),
]


def test_strange_texts_are_refused_and_never_break_the_server(admin: TestClient) -> None:
    for method, path, body in _STRANGE:
        answer = admin.request(
            method,
            f"/api/v1{path}",
            content=None if body is None else json.dumps(body),
            headers={"Content-Type": "application/json"},
        )
        assert answer.status_code in (404, 422, 428), (method, path, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_cursor_may_lie_anywhere_in_time(admin: TestClient) -> None:
    for at_us in (0, (1 << 62) - 1):
        answer = admin.get(f"/api/v1/commands?cursor={cursor_of(at_us, 'x')}")
        assert answer.status_code in (200, 422), answer.text
