"""Health, readiness and version; problems of requests that no route takes; every route has a role."""

from __future__ import annotations

import pytest
from fastapi import FastAPI

from tests.api.client import TestClient
from wtb.api.access import PUBLIC
from wtb.api.openapi import role_of
from wtb.api.problems import code_of, status_of
from wtb.domain import errors
from wtb.domain.errors import WTBError


def test_anybody_may_ask_whether_the_server_lives_and_is_ready(stranger: TestClient) -> None:
    assert stranger.get("/healthz").json() == {"status": "ok"}
    assert stranger.get("/readyz").json() == {"status": "ready"}


def test_the_version_is_for_those_who_may_read(stranger: TestClient, viewer: TestClient) -> None:
    assert viewer.get("/api/v1/version").json()["schema_revision"] == "0021"
    refused = stranger.get("/api/v1/version")
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["code"] == "unauthenticated"
    assert "wtb token create" in refused.json()["detail"]


def test_a_stranger_does_not_learn_which_addresses_exist(stranger: TestClient) -> None:
    assert stranger.get("/api/v1/nothing").status_code == 401


def test_unknown_addresses_and_methods_are_problems(viewer: TestClient) -> None:
    missing = viewer.get("/api/v1/nothing")
    assert (missing.status_code, missing.json()["code"]) == (404, "not-found")
    wrong = viewer.post("/api/v1/version")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method-not-allowed")
    assert wrong.headers["allow"] == "GET"


def test_every_route_has_a_role_or_is_public(app: FastAPI) -> None:
    forgotten = [
        path for route in app.routes if (path := getattr(route, "path", "")) not in PUBLIC and not role_of(route)
    ]
    assert forgotten == []


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        (errors.ExecutionNotFound, 404, "execution-not-found"),
        (errors.InvalidInput, 422, "invalid-input"),
        (errors.AlreadyExists, 409, "already-exists"),
        (errors.VersionMismatch, 412, "version-mismatch"),
        (errors.PreconditionRequired, 428, "precondition-required"),
        (errors.IdempotencyMismatch, 422, "idempotency-mismatch"),
        (errors.WorkflowNotServed, 409, "workflow-not-served"),
        (errors.CursorGone, 410, "cursor-gone"),
        (errors.DatabaseAway, 503, "database-away"),
        (errors.DamagedData, 500, "damaged-data"),
    ],
)
def test_an_error_has_its_status_and_its_stable_code(kind: type[WTBError], status: int, code: str) -> None:
    assert (status_of(kind), code_of(kind)) == (status, code)
