"""The audit trail over HTTP: who changed what, counts, tools, and a log that somebody has changed."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from tests.api.client import TestClient
from wtb.bootstrap import Services
from wtb.domain.access import Role
from wtb.domain.events import Event, EventType
from wtb.infrastructure.sql.unit_of_work import SqlStorage

START = datetime(2026, 1, 1, tzinfo=UTC)


def record(services: Services, *types: EventType, stream: str = "a", **data: object) -> None:
    with services.storage.unit_of_work() as uow:
        for number, type in enumerate(types):
            uow.events.append(Event(type=type, stream=stream, at=START + timedelta(hours=number), data=data))
        uow.commit()


def test_changes_are_listed_with_who_made_them(admin: TestClient, services: Services) -> None:
    services.tokens.create("ci", Role.OPERATOR, by="ada")
    services.tokens.revoke("ci", by="bob")
    record(services, EventType.NODE_LOGGED, text="\ud800")
    found = admin.get("/api/v1/audit", params={"type": "token"}).json()
    assert [(item["by"], item["type"]) for item in found["items"][:2]] == [
        ("bob", "token.revoked"),
        ("ada", "token.created"),
    ]
    assert found["faults"] == []
    [only] = admin.get("/api/v1/audit", params={"by": "ada"}).json()["items"]
    assert only["data"]["name"] == "ci"
    assert "node.logged" not in {item["type"] for item in admin.get("/api/v1/audit").json()["items"]}
    assert "node.logged" in {item["type"] for item in admin.get("/api/v1/audit?everything=true").json()["items"]}


def test_the_work_that_follows_from_a_decision_is_left_out(admin: TestClient, services: Services) -> None:
    record(services, EventType.EXECUTION_CREATED, EventType.NODE_COMPLETED, EventType.ROLLBACK_STARTED, by="ada")

    def types(query: str) -> list[str]:
        return [item["type"] for item in admin.get(f"/api/v1/audit?by=ada{query}").json()["items"]]

    assert types("") == ["rollback.started", "execution.created"]
    assert types("&type=node") == ["node.completed"]
    assert types("&everything=true") == ["rollback.started", "node.completed", "execution.created"]


def test_errors_tools_and_times_are_filters_and_pages_follow_each_other(viewer: TestClient, services: Services) -> None:
    record(services, EventType.NODE_FAILED, EventType.TOOL_FAILED, EventType.TOOL_COMPLETED)

    def types(**query: str | bool) -> list[str]:
        return [item["type"] for item in viewer.get("/api/v1/audit", params=query).json()["items"]]

    assert types(errors=True) == ["tool.failed", "node.failed"]
    assert types(tools=True) == ["tool.completed", "tool.failed"]
    assert types(tools=True, errors=True) == ["tool.failed"]
    assert types(everything=True, until="2026-01-01T01:00:00Z") == ["node.failed"]
    assert types(tools=True, since="2026-01-01T02:00:00Z") == ["tool.completed"]
    first = viewer.get("/api/v1/audit", params={"tools": True, "limit": 1}).json()
    rest = viewer.get("/api/v1/audit", params={"tools": True, "limit": 1, "cursor": first["next"]}).json()
    assert [item["type"] for item in first["items"] + rest["items"]] == ["tool.completed", "tool.failed"]
    assert viewer.get("/api/v1/audit", params={"tools": True, "type": "node"}).status_code == 422
    assert viewer.get("/api/v1/audit", params={"cursor": "x"}).status_code == 422


def test_a_summary_counts_what_happened_and_who_caused_it(viewer: TestClient, services: Services) -> None:
    record(services, EventType.NODE_FAILED, EventType.NODE_LOGGED, EventType.NODE_LOGGED)
    summary = viewer.get("/api/v1/audit/summary").json()
    assert summary["types"] == {"node.logged": 2, "node.failed": 1, "token.created": 1}
    assert summary["severities"] == {"info": 3, "error": 1}
    assert summary["people"] == {"tester": 1}
    assert viewer.get("/api/v1/audit/summary", params={"until": "2026-01-01T00:30:00Z"}).json()["events"] == 1
    assert viewer.get("/api/v1/audit/tools").json()["items"] == []


def test_a_changed_log_is_noticed_and_the_check_goes_on_where_it_was(viewer: TestClient, services: Services) -> None:
    record(services, *[EventType.NODE_LOGGED] * 4, text="true")
    sound = viewer.get("/api/v1/audit/verify").json()
    assert (sound["checked"], sound["faults"], sound["next"]) == (5, [], None)
    assert isinstance(services.storage, SqlStorage)
    with services.storage.database.engine.begin() as connection:
        change = "UPDATE wtb_events SET data = '{\"text\":\"false\"}' WHERE stream = 'a' AND sequence = 2"
        connection.execute(sa.text(change))
        connection.execute(sa.text("DELETE FROM wtb_events WHERE stream = 'a' AND sequence = 3"))
    first = viewer.get("/api/v1/audit/verify", params={"stream": "a", "limit": 2}).json()
    assert (first["checked"], first["next"]) == (2, "2")
    assert "event 2 of 'a' is damaged" in first["faults"][0]
    rest = viewer.get("/api/v1/audit/verify", params={"stream": "a", "cursor": first["next"]}).json()
    assert (rest["checked"], rest["faults"], rest["next"]) == (1, ["event 3 of 'a' is missing"], None)
    assert len(viewer.get("/api/v1/audit/verify").json()["faults"]) == 2
    page = viewer.get("/api/v1/audit", params={"everything": True, "run": "a"}).json()
    assert [item["sequence"] for item in page["items"]] == [1]
    assert len(page["faults"]) == 2


def test_strangers_audit_nothing(stranger: TestClient) -> None:
    for path in ("", "/summary", "/tools", "/verify"):
        assert stranger.get(f"/api/v1/audit{path}").status_code == 401


def test_strange_filters_are_answered_and_never_a_failure_of_the_server(viewer: TestClient) -> None:
    huge = urlsafe_b64encode(b"9999999999999999999.9999999999999999999.00.").decode().rstrip("=")
    assert viewer.get("/api/v1/events", params={"since": huge}).json()["code"] == "cursor-gone"
    for query in (
        {"run": "a\x00b"},
        {"run": "\U0001f600" * 50},
        {"since": "0001-01-01T00:00:00+14:00", "until": "9999-12-31T23:59:59-14:00"},
        {"cursor": "99999999999999999999"},
        {"by": "\x00"},
    ):
        for path in ("/api/v1/audit", "/api/v1/audit/summary", "/api/v1/audit/tools", "/api/v1/audit/verify"):
            assert viewer.get(path, params=query).status_code in {200, 422}, (path, query)
    assert viewer.get("/api/v1/audit/verify", params={"stream": "\x00"}).status_code in {200, 422}
    assert viewer.get("/api/v1/events", params={"run": "\x00"}).status_code in {200, 422}
