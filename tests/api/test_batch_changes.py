"""Batches are planned, run, resumed and retried over HTTP, and finished runs are scored, by real workers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.served_project import ServedProject, serving
from tests.crash.server_process import ServerProcess
from wtb.bootstrap import bootstrap
from wtb.domain.access import Role
from wtb.settings import ServerSettings, Settings

BATCH = """
from pathlib import Path

import wtb

flow = wtb.Workflow("answering")


@flow.node(start=True)
def answer(state):
    if Path(__file__).with_name("broken").exists() and state["question"] == "q1":
        raise ValueError("broken")
    return {"answer": state["question"]}


@flow.variant("answer", "bad")
def bad(state):
    return {"answer": "bad"}


flow.edge("answer", wtb.END)
cases = [{"id": f"c{n}", "input": {"question": f"q{n}"}, "expected": {"answer": f"q{n}"}} for n in range(6)]
batch = wtb.BatchTest(flow, name="configured", cases=cases, evaluators=[wtb.ExactMatch("answer")])
"""


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProject]:
    """A server that is configured with a batch, shared by the tests of this module: each command is a process."""
    folder = tmp_path_factory.mktemp("batches")
    (folder / "batch.py").write_text(BATCH)
    home = folder / ".wtb"
    home.mkdir(mode=0o700)
    server = ServerSettings(requests_per_minute=1_000_000, batches=("batch.py:batch",))
    if request.param == "sqlite":
        shutil.copyfile(request.getfixturevalue("sqlite_template"), home / "wtb.db")
        settings = Settings(folder=home, user="tester", server=server)
    else:
        url = request.getfixturevalue("migrated_url")
        settings = Settings(url=url, folder=home, user="tester", server=server)
    with serving(folder, settings, ("batch.py:flow",)) as project:
        yield project


@pytest.fixture(scope="module")
def migrated_url(postgres: Any) -> Iterator[str]:
    from wtb.infrastructure.sql import schema
    from wtb.infrastructure.sql.postgres import PostgresDatabase

    url = postgres.create_database("batches_api")
    database = PostgresDatabase(url, pool_size=1)
    schema.upgrade(database)
    database.close()
    yield url
    postgres.drop_database("batches_api")


def test_a_configured_batch_is_planned_run_retried_and_judged(project: ServedProject) -> None:
    planned = project.post("/batches/plan", {"batch": "configured"})
    assert planned.status_code == 200, planned.text
    assert (planned.json()["plan"]["jobs"], planned.json()["plan"]["run"]) == (12, 12)
    (project.folder / "broken").touch()
    ran = project.post("/batches", {"batch": "configured"})
    assert ran.status_code == 200, ran.text
    assert (ran.json()["batch"]["completed"], ran.json()["batch"]["failed"]) == (11, 1)
    assert ran.json()["command"]["created_by"] == "the operator"
    (project.folder / "broken").unlink()
    retried = project.post("/batches/configured/retry")
    assert (retried.json()["batch"]["status"], retried.json()["batch"]["failed"]) == ("completed", 0)
    again = project.post("/batches/configured/retry")
    assert (again.status_code, again.json()["code"]) == (422, "invalid-input")
    resumed = project.post("/batches/configured/resume")
    assert resumed.json()["batch"]["left"] == 0
    runs = project.viewer.get("/api/v1/executions", params={"batch": "configured"}).json()["items"]
    assert {run["created_by"] for run in runs} == {"the operator"}
    assert project.ask("/baselines", {"name": "main", "batches": ["configured"]}).status_code == 201
    gate = {"batch": "configured", "baseline": "main", "metric": "exact_match"}
    assert project.ask("/gates", gate).json()["outcome"] == "fine"
    assert project.ask("/gates", {**gate, "combination": "answer=bad"}).json()["outcome"] == "regression"


def test_inline_cases_run_over_a_served_workflow_and_go_on(project: ServedProject) -> None:
    body = {
        "workflow": "answering",
        "name": "inline",
        "cases": [{"id": "a", "input": {"question": "x"}, "expected": {"answer": "x"}}],
        "evaluators": ["latency_s", {"name": "exact_match", "key": "answer"}],
        "options": {"variants": "one_at_a_time", "repeats": 2},
    }
    ran = project.post("/batches", body, key="once")
    assert ran.status_code == 200, ran.text
    assert ran.json()["batch"]["completed"] == 4
    assert project.post("/batches", body, key="once").json()["command"]["id"] == ran.json()["command"]["id"]
    rows = project.viewer.get("/api/v1/batches/inline/results", params={"combination": "answer=bad"}).json()["items"]
    assert [row["scores"]["exact_match"] for row in rows] == [0, 0]
    assert project.post("/batches/inline/resume").json()["batch"]["completed"] == 4


def test_a_batch_goes_on_as_it_was_run_last_also_after_inline_cases_of_its_name(project: ServedProject) -> None:
    cases = [{"input": {"question": question}} for question in ("x", "y")]  # without ids
    inline = {"workflow": "answering", "name": "configured", "cases": cases, "evaluators": ["latency_s"]}
    assert project.post("/batches", inline).json()["batch"]["completed"] == 4
    kept = project.post("/batches/plan", {**inline, "cases": cases[1:]}).json()["plan"]
    assert (kept["kept"], kept["run"]) == (2, 0)  # a case has the same id each time
    assert project.post("/batches", {"batch": "configured"}).json()["batch"]["completed"] == 12
    assert project.post("/batches/configured/resume").json()["batch"]["completed"] == 12


def test_the_configured_batches_are_listed(project: ServedProject) -> None:
    (found,) = project.viewer.get("/api/v1/batch-tests").json()["items"]
    assert found == {"name": "configured", "workflow": "answering", "problem": None}


@pytest.mark.parametrize("reference", ["batch.py:batch", "batch.py"])
def test_a_batch_named_on_the_command_line_is_served_with_its_workflow(
    tmp_path: Path, sqlite_template: Path, reference: str
) -> None:
    (tmp_path / "batch.py").write_text(BATCH)
    home = tmp_path / ".wtb"
    home.mkdir(mode=0o700)
    shutil.copyfile(sqlite_template, home / "wtb.db")
    with bootstrap(Settings(folder=home)) as services:
        _, token = services.tokens.create("ci", Role.OPERATOR, by="tester")
    with ServerProcess(tmp_path, Settings(folder=home), token, references=(reference,)) as server:
        _, listed, _ = server.call("GET", "/batch-tests")
        assert [each["name"] for each in listed["items"]] == ["configured"]
        status, ran, _ = server.call("POST", "/batches?wait_s=60", {"batch": "configured"})
        assert (status, ran["batch"]["completed"]) == (200, 12)
        _, workflows, _ = server.call("GET", "/workflows")
        assert [(each["name"], each["served"], each["problem"]) for each in workflows["items"]] == [
            ("answering", True, None)
        ]
        body = {"workflow": "answering", "input": {"question": "x"}}
        status, started, _ = server.call("POST", "/executions?wait_s=60", body)
        assert (status, started["run"]["status"]) == (201, "completed")


SEARCHING = """
import wtb

flow = wtb.Workflow("{name}")

@wtb.tool(effects="none")
def search(query):
    return "found by {name}"

@flow.node(start=True)
def find(state, ctx):
    return {{"found": ctx.tool("search", query="x")}}

batch = wtb.BatchTest(flow, cases=[{{"id": "a", "input": {{}}, "expected": "found by {name}"}}],
                      evaluators=[wtb.ExactMatch("found")], name="of {name}")
"""


def test_files_that_name_a_tool_alike_are_served_together(tmp_path: Path, sqlite_template: Path) -> None:
    home = tmp_path / ".wtb"
    home.mkdir(mode=0o700)
    shutil.copyfile(sqlite_template, home / "wtb.db")
    with bootstrap(Settings(folder=home)) as services:
        _, token = services.tokens.create("ci", Role.OPERATOR, by="tester")
    for name in ("shop", "bank"):
        (tmp_path / f"{name}.py").write_text(SEARCHING.format(name=name))
    with ServerProcess(tmp_path, Settings(folder=home), token, references=("shop.py", "bank.py")) as server:
        for name in ("shop", "bank"):
            status, ran, _ = server.call("POST", "/executions?wait_s=60", {"workflow": name})
            assert (status, ran["run"]["status"]) == (201, "completed")
            status, ran, _ = server.call("POST", "/batches?wait_s=60", {"batch": f"of {name}"})
            assert (status, ran["batch"]["completed"]) == (200, 1)
        _, workflows, _ = server.call("GET", "/workflows")
        assert [each["problem"] for each in workflows["items"]] == [None, None]


def test_a_batch_that_the_server_does_not_have_is_refused(project: ServedProject) -> None:
    assert project.post("/batches", {"batch": "nope"}).json()["code"] == "batch-not-found"
    assert project.post("/batches", {"batch": "batch.py:batch"}).json()["code"] == "batch-not-found"
    assert (
        project.post("/batches", {"workflow": "nope", "cases": [{"input": {}}]}).json()["code"] == "workflow-not-found"
    )
    assert project.post("/batches", {"workflow": "answering", "cases": "cases.jsonl"}).status_code == 422
    assert project.post("/batches", {"workflow": "answering", "batch": "configured"}).status_code == 422
    refused = project.viewer.post("/api/v1/batches", json={"batch": "configured"})
    assert refused.json()["code"] == "forbidden"
    unknown = {"workflow": "answering", "cases": [{"id": "a", "input": {"question": "x"}}], "evaluators": ["nope"]}
    assert "nope" in project.post("/batches", unknown).json()["detail"]


def test_finished_runs_are_scored_by_name(project: ServedProject) -> None:
    made = project.post("/executions", {"workflow": "answering", "input": {"question": "x"}}).json()["run"]["id"]
    body = {"runs": [made], "evaluators": [{"name": "exact_match", "key": "answer"}], "expected": {"answer": "x"}}
    scored = project.post("/evaluations", body)
    assert scored.status_code == 200, scored.text
    assert scored.json()["scores"] == {made: {"exact_match": 1.0}}
    (score,) = project.viewer.get(f"/api/v1/executions/{made}/scores").json()["items"]
    assert (score["metric"], score["score"], score["created_by"]) == ("exact_match", 1.0, "the operator")
    assert project.post("/evaluations", {**body, "runs": ["nope"]}).json()["code"] == "execution-not-found"
    assert project.post("/evaluations", {**body, "batch": "inline"}).status_code == 422
