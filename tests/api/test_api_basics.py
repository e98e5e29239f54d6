"""Health, readiness and version; problems of requests that no route takes."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from functools import partial

import pytest

from tests.api.client import TestClient
from wtb.api.problems import code_of, status_of
from wtb.api.readiness import Readiness
from wtb.bench import Bench
from wtb.bootstrap import Services
from wtb.domain import errors
from wtb.domain.commands import CommandKind
from wtb.domain.errors import WTBError
from wtb.flow import Workflow
from wtb.infrastructure.sql import schema


def test_anybody_may_ask_whether_the_server_lives_and_is_ready(stranger: TestClient) -> None:
    assert stranger.get("/healthz").json() == {"status": "ok"}
    assert stranger.get("/readyz").json() == {"status": "ready"}


def test_the_version_is_for_those_who_may_read(stranger: TestClient, viewer: TestClient) -> None:
    assert viewer.get("/api/v1/version").json()["schema_revision"] == schema.HEAD
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


def test_a_server_is_not_ready_when_its_tables_change_under_it(
    stranger: TestClient, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Readiness, "fresh_s", 0)
    database = services.storage.database  # type: ignore[union-attr]  # it is no memory
    for revision, code in (("9999", "schema-too-new"), ("0016", "schema-outdated")):
        with closing(database.begin()) as transaction:
            transaction.run("UPDATE wtb_schema SET version_num = ?", (revision,))
            transaction.commit()
        refused = stranger.get("/readyz")
        assert (refused.status_code, refused.json()["code"]) == (503, code)
    with closing(database.begin()) as transaction:
        transaction.run("UPDATE wtb_schema SET version_num = ?", (schema.HEAD,))
        transaction.commit()
    assert stranger.get("/readyz").status_code == 200


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


def test_readiness_asks_the_database_once_a_second_and_does_not_wait_long(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, may_answer = [], threading.Event()

    def check() -> None:
        asked.append(1)
        may_answer.wait(30)

    readiness = Readiness(check)
    monkeypatch.setattr("wtb.api.readiness.PATIENCE_S", 0.01)
    silent = threading.Thread(target=readiness.require)
    silent.start()
    while not asked:
        time.sleep(0.001)
    with pytest.raises(errors.StorageUnavailable, match="does not answer"):
        readiness.require()
    may_answer.set()
    silent.join(30)
    readiness.require()
    assert len(asked) == 1


def test_what_was_accepted_and_has_not_begun_says_which_command_will_make_it(
    operator: TestClient, services: Services
) -> None:
    accept = partial(services.commands.accept, by="the operator")
    elsewhere = {"reference": "/elsewhere/batch.py:batch"}  # waits for a server that has it
    batch = accept(CommandKind.BATCH_START, subject="nightly", arguments=elsewhere)
    refused = operator.post("/api/v1/batches/nightly/cancel")
    assert (refused.status_code, refused.json()["code"]) == (404, "batch-not-found")
    assert f"'nightly' has not begun: command {batch.id} is pending" in refused.json()["detail"]
    with Bench._over(services) as bench:
        bench.run(Workflow("away").add_node("one", lambda state: {}, start=True), {}, run_id="old")
    run = accept(CommandKind.RUN_START, subject="r1", arguments={"workflow": "away"})
    for method, path in (("GET", ""), ("GET", "/state"), ("POST", "/pause"), ("POST", "/resume")):
        refused = operator.request(method, f"/api/v1/executions/r1{path}")
        assert (refused.status_code, refused.json()["code"]) == (404, "execution-not-found")
        assert f"'r1' has not begun: command {run.id} is pending" in refused.json()["detail"]
    operator.post(f"/api/v1/commands/{run.id}/cancel")
    assert "has not begun" not in operator.get("/api/v1/executions/r1").json()["detail"]
