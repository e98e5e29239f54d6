"""A whole journey with a client that is made of the OpenAPI file alone, on SQLite and Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.api.openapi_client import OpenApiClient
from tests.api.served_address import served_address
from wtb.settings import Settings

WAIT_S = 60


@pytest.fixture
def api(server_settings: Settings) -> Iterator[OpenApiClient]:
    """A client of a running server that serves one workflow; nothing but the file tells it what the server can do."""
    folder = server_settings.folder.parent
    with served_address(folder, server_settings) as served, served.up():
        headers = {"Authorization": f"Bearer {served.token}"}
        with httpx.Client(base_url=served.url, headers=headers, timeout=WAIT_S + 30) as http:
            yield OpenApiClient(http, http.get("/openapi.json").json())


def test_start_break_edit_resume_diff_rollback_redo_fork_answer(api: OpenApiClient) -> None:
    (flow,) = api.done("workflows_list")["items"]
    body = {"workflow": flow["name"], "input": {"topic": "asked"}, "options": {"break_before": ["deliver"]}}
    started = api.call("executions_create", body, wait_s=WAIT_S, idempotency_key="the first")
    run = started.json()["run"]
    assert (started.status_code, run["status"], run["pause"]["kind"]) == (201, "paused", "break_before")
    again = api.call("executions_create", body, wait_s=WAIT_S, idempotency_key="the first")
    assert again.json()["run"]["id"] == run["id"]
    at: dict[str, Any] = {"execution_id": run["id"]}

    edit = {"update": {"set": [{"path": ["plan"], "value": "edited"}]}}
    assert api.call("executions_resume", edit, **at).status_code == 428
    resumed = api.call("executions_resume", edit, **at, wait_s=WAIT_S, if_match=started.headers["etag"]).json()["run"]
    assert (resumed["status"], resumed["pause"]["kind"]) == ("paused", "question")
    assert api.call("executions_resume", edit, **at, if_match=started.headers["etag"]).status_code == 412

    done = api.done("executions_resume", {"answer": "yes"}, **at, wait_s=WAIT_S)
    assert done["run"]["status"] == "completed"
    changed = {item["path"]: item for item in api.done("checkpoints_diff", **at, **{"from": 1})["state"]}
    assert (changed["state.plan"]["new"], changed["state.review"]["new"]) == ("edited", "yes")

    planned = api.call("executions_plan_rollback", {"target": 1}, **at, wait_s=WAIT_S)
    assert [call["tool"] for call in planned.json()["plan"]["reverse"]] == ["send"]
    back = api.call("executions_rollback", {"target": 1}, **at, wait_s=WAIT_S, if_match=planned.headers["etag"])
    assert back.json()["run"]["status"] == "paused", back.text
    state = api.done("executions_get_state", **at, whole="true")["value"]
    assert "sent" not in state
    redone = api.done("executions_redo", **at, wait_s=WAIT_S, if_match=back.headers["etag"])
    assert redone["run"]["version"] > back.json()["run"]["version"]
    assert api.done("executions_get_state", **at, whole="true")["value"]["review"] == "yes"

    forked = api.done("executions_fork", {"target": 1, "variants": {"plan": "short"}}, **at, wait_s=WAIT_S)
    fork = {"execution_id": forked["run"]["id"]}
    assert forked["forked_from"]["run"] == run["id"]
    api.done("executions_resume", {}, **fork, wait_s=WAIT_S)
    api.done("executions_resume", {"answer": "no"}, **fork, wait_s=WAIT_S)
    assert api.done("executions_get", **fork)["status"] == "completed"
    assert len(api.done("executions_list")["items"]) == 2


def test_a_batch_runs_to_its_verdict_and_a_gate_judges_it(api: OpenApiClient) -> None:
    cases = [{"id": f"c{number}", "input": {"topic": f"t{number}"}, "expected": "none"} for number in range(6)]
    body = {
        "workflow": "agent",
        "name": "by file",
        "cases": cases,
        "evaluators": [{"name": "exact_match", "key": "review"}],
        "options": {"variants": "one_at_a_time", "workers": 2, "external": "run"},
    }
    plan = api.done("batches_plan", body, wait_s=WAIT_S)["plan"]
    assert plan["run"] == 12
    ended = api.done("batches_create", body, wait_s=WAIT_S)
    while ended["command"]["status"] in ("pending", "running"):  # a busy machine takes longer than one wait
        ended = {"command": api.done("commands_get", command_id=ended["command"]["id"], wait_s=WAIT_S)}
    assert ended["command"]["status"] == "completed"
    batch = {"batch_id": "by file"}
    assert api.done("batches_get", **batch)["completed"] == 12
    matrix = api.done("batches_get_matrix", **batch)
    assert len(matrix["matrix"]) == 2
    verdicts = api.done("batches_compare", **batch)["items"]
    assert [(row["metric"], row["finding"]) for row in verdicts if row["metric"] == "exact_match"]
    api.done("baselines_set", {"name": "main", "batches": ["by file"]})
    gate = api.done("gates_judge", {"batch": "by file", "baseline": "main", "metric": "exact_match"})
    assert gate["outcome"] == "fine"
