"""Runs are started, edited, resumed, rolled back, redone and forked over HTTP, by real workers."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

import wtb
from tests.api.served_project import FLOW, ServedProject, serving
from tests.services import PostgresServer
from wtb.bench import Bench
from wtb.infrastructure.sql import schema
from wtb.infrastructure.sql.postgres import PostgresDatabase
from wtb.settings import ServerSettings, Settings

_SERVER = ServerSettings(requests_per_minute=1_000_000)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProject]:
    """A server over each database in turn, shared by the tests of this module: each command is a process."""
    folder = tmp_path_factory.mktemp("project")
    home = folder / ".wtb"
    home.mkdir(mode=0o700)
    if request.param == "sqlite":
        shutil.copyfile(request.getfixturevalue("sqlite_template"), home / "wtb.db")
        settings = Settings(folder=home, user="tester", server=_SERVER)
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.create_database(f"commands_{folder.name}")
        database = PostgresDatabase(url, pool_size=1)
        schema.upgrade(database)
        database.close()
        settings = Settings(url=url, folder=home, user="tester", server=_SERVER)
    with serving(folder, settings) as project:
        yield project


def _code(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json().get("code")


def test_a_run_is_created_without_being_started(project: ServedProject) -> None:
    body = {"workflow": "agent", "input": {"topic": "created"}, "start": False}
    created = project.post("/executions", body, key="created once")
    assert (created.status_code, created.json()["run"]["status"]) == (201, "pending")
    path = f"/executions/{created.json()['run']['id']}"
    assert project.post("/executions", body, key="created once").json()["run"] == created.json()["run"]
    edit = {"update": {"set": [{"path": ["topic"], "value": "changed"}]}}
    resumed = project.post(f"{path}/resume", edit, etag=created.headers["etag"])
    assert resumed.json()["run"]["status"] == "completed", resumed.text
    assert project.viewer.get(f"/api/v1{path}/state").json()["value"]["plan"] == "about changed"


def test_a_run_is_broken_edited_resumed_rolled_back_redone_and_forked(project: ServedProject) -> None:
    started = project.start("journey", break_before=["deliver"])
    run = started.json()["run"]
    assert (run["status"], run["pause"]["kind"]) == ("paused", "break_before")
    path = f"/executions/{run['id']}"

    edit = {
        "set": [
            {"path": ["plan"], "value": "edited"},
            {"path": ["place", "street"], "value": "Side"},
            {"path": ["seen"], "value": {"$type": "tuple", "value": [1]}},
        ]
    }
    resumed = project.post(f"{path}/resume", {"update": edit}, etag=started.headers["etag"])
    assert resumed.status_code == 200, resumed.text
    assert resumed.json()["run"]["status"] == "completed"
    state = project.services.queries.state(run["id"])[1]
    assert (state["plan"], state["seen"]) == ("edited", (1,))
    assert str(state["place"]) == "{'class': 'agent.Place', 'street': 'Side'}"
    assert project.world(run["id"]) == ["+"]

    planned = project.post(f"{path}/rollback/plan", {"target": 1})
    assert [call["tool"] for call in planned.json()["plan"]["reverse"]] == ["send"]
    back = project.post(f"{path}/rollback", {"target": 1}, etag=planned.headers["etag"])
    assert back.json()["run"]["status"] == "paused", back.text
    assert project.world(run["id"]) == ["+", "-"]

    redone = project.post(f"{path}/redo", etag=back.headers["etag"])
    assert redone.json()["run"]["status"] == "paused", redone.text
    assert project.world(run["id"]) == ["+", "-", "+"]

    changes = [{"path": ["plan"], "value": "forked"}, {"path": ["topic"], "value": None}]
    fork = {"target": 1, "update": {"set": changes}, "variants": {"plan": "short"}}
    forked = project.post(f"{path}/fork", fork)
    assert forked.status_code == 201, forked.text
    assert forked.json()["forked_from"]["run"] == run["id"]
    new = forked.json()["run"]["id"]
    state = project.services.queries.state(new)[1]
    assert (state["plan"], state["topic"]) == ("forked", None)
    assert project.services.queries.execution(new).created_by == "the operator"


def test_a_question_is_answered(project: ServedProject) -> None:
    run = project.start("asked").json()["run"]
    assert run["pause"]["question"]["question"] == "good?"
    wrong = project.post(f"/executions/{run['id']}/resume", {"answer": "maybe"})
    assert _code(wrong) == (422, "invalid-input")
    answered = project.post(f"/executions/{run['id']}/resume", {"answer": "yes"})
    assert answered.json()["run"]["status"] == "completed"
    assert project.services.queries.state(run["id"])[1]["review"] == "yes"
    events = project.services.queries.list_events(run["id"], types=["question.answered"])
    assert events[0].data["by"] == "the operator"


def test_a_change_names_the_version_that_it_changes(project: ServedProject) -> None:
    started = project.start("versions", break_before=["deliver"])
    path = f"/executions/{started.json()['run']['id']}"
    update = {"update": {"set": [{"path": ["plan"], "value": 1}]}}
    assert _code(project.post(f"{path}/resume", update)) == (428, "precondition-required")
    assert _code(project.post(f"{path}/redo")) == (428, "precondition-required")
    assert _code(project.post(f"{path}/rollback", {"target": 0})) == (428, "precondition-required")
    assert _code(project.post(f"{path}/rollback", {"target": 0}, etag=started.headers["etag"]))[0] == 428
    for tag in ('"0"', '"999"', "*", "W/1", '"1-zz"', ""):
        assert _code(project.post(f"{path}/resume", update, etag=tag)) == (412, "version-mismatch"), tag
    unquoted = project.post(f"{path}/resume", update, etag=started.headers["etag"].strip('"'))
    assert unquoted.json()["detail"].endswith("send it with its double quotes")
    planned = project.post(f"{path}/rollback/plan", {"target": 0})
    other = planned.headers["etag"].replace("-", "-0")[:-2] + '"'
    assert _code(project.post(f"{path}/rollback", {"target": 0}, etag=other)) == (412, "version-mismatch")
    assert project.ask(f"{path}/stop").status_code == 202
    assert _code(project.post(f"{path}/rollback", {"target": 0}, etag=planned.headers["etag"]))[0] == 412


def test_the_same_key_is_carried_out_once_for_each_caller(project: ServedProject) -> None:
    body = {"workflow": "agent", "input": {"topic": "once"}}
    first = project.post("/executions", body, key="k1")
    again = project.post("/executions", body, key="k1")
    assert again.json() == first.json()
    assert again.status_code == first.status_code == 201
    other = project.post("/executions", {**body, "input": {"topic": "else"}}, key="k1")
    assert _code(other) == (422, "idempotency-mismatch")
    by_admin = project.admin.post("/api/v1/executions", json=body, headers={"Idempotency-Key": "k1"})
    assert by_admin.json()["command"]["id"] != first.json()["command"]["id"]
    run = first.json()["run"]["id"]
    planned = project.post(f"/executions/{run}/rollback/plan", {"target": 1})
    back = [
        project.post(f"/executions/{run}/rollback", {"target": 1}, etag=planned.headers["etag"], key="k2")
        for _ in range(2)
    ]
    assert back[0].json() == back[1].json()  # the repeated one is not refused, although the version has changed
    assert project.world(run) == ["+", "-"]


def test_a_caller_chooses_the_id_of_a_run_and_a_taken_one_is_a_conflict(project: ServedProject) -> None:
    body = {"workflow": "agent", "input": {"topic": "own id"}, "run_id": "nightly.1"}
    started = project.post("/executions", body, key="own id")
    assert (started.status_code, started.json()["run"]["id"]) == (201, "nightly.1")
    assert project.post("/executions", body, key="own id").json() == started.json()
    taken = project.post("/executions", body)
    assert _code(taken) == (409, "already-exists")
    assert "there is already a run 'nightly.1'" in taken.json()["detail"]
    assert _code(project.post("/executions/nightly.1/fork", {"target": 1, "run_id": "nightly.1"}))[0] == 409
    forked = project.post("/executions/nightly.1/fork", {"target": 1, "run_id": "nightly.2"})
    assert (forked.status_code, forked.json()["run"]["id"]) == (201, "nightly.2")
    for wrong in ("a/b", "a b", "..", "", "x" * 201):
        assert _code(project.post("/executions", {**body, "run_id": wrong})) == (422, "invalid-input"), wrong
    assert project.world("nightly.1") == ["+"]


def test_of_two_starts_with_one_id_at_the_same_time_one_is_refused(project: ServedProject) -> None:
    gate = project.folder / "gate-twice"
    gate.touch()
    body = {"workflow": "agent", "input": {"topic": "twice"}, "run_id": "twice"}
    try:
        answers = [project.operator.post("/api/v1/executions", json=body) for _ in range(2)]
        assert sorted(answer.status_code for answer in answers) == [202, 409]
    finally:
        gate.unlink()
    command = next(answer.json()["command"]["id"] for answer in answers if answer.status_code == 202)
    ended = project.operator.get(f"/api/v1/commands/{command}", params={"wait_s": 60}).json()
    assert (ended["status"], project.world("twice")) == ("completed", ["+"])


def test_a_fork_refuses_variants_that_do_not_exist_and_names_those_that_do(project: ServedProject) -> None:
    path = f"/executions/{project.start('variants').json()['run']['id']}/fork"
    wrong = project.post(path, {"target": 1, "variants": {"plan": "long"}})
    assert _code(wrong) == (422, "invalid-input")
    assert wrong.json()["detail"] == "node 'plan' has no variant 'long'; it has baseline, short"
    nowhere = project.post(path, {"target": 1, "variants": {"plant": "short"}})
    assert nowhere.json()["detail"] == "there is no node 'plant'; nodes are plan, deliver, review"
    assert project.post(path, {"target": 1, "variants": {"plan": "short"}}).status_code == 201


def test_whoever_does_not_wait_asks_for_the_command(project: ServedProject) -> None:
    accepted = project.operator.post("/api/v1/executions", json={"workflow": "agent", "input": {"topic": "later"}})
    assert accepted.status_code == 202
    place = accepted.headers["location"]
    command = accepted.json()["command"]
    assert place == f"/api/v1/commands/{command['id']}"
    project.services.commands.wait_for(command["id"], 60)
    ended = project.viewer.get(place).json()
    assert (ended["status"], ended["created_by"]) == ("completed", "the operator")
    assert ended["result"]["run"]["id"] == command["subject"]
    page = project.viewer.get("/api/v1/commands", params={"limit": 1}).json()
    rest = project.viewer.get(f"/api/v1/commands?limit=1&cursor={page['next']}").json()
    assert page["items"][0]["id"] != rest["items"][0]["id"]
    found = project.viewer.get("/api/v1/commands", params={"subject": command["subject"]}).json()["items"]
    assert [each["id"] for each in found] == [command["id"]]


def test_a_running_run_is_paused_and_stopped_by_the_caller(project: ServedProject) -> None:
    gate = project.folder / "gate-held"
    gate.touch()
    accepted = project.operator.post("/api/v1/executions", json={"workflow": "agent", "input": {"topic": "held"}})
    command = accepted.json()["command"]
    run = command["subject"]
    _wait_until(lambda: project.world(run) == ["+"])
    assert project.ask(f"/executions/{run}/pause").json() == {"id": run, "requested": "pause"}
    gate.unlink()
    ended = project.services.commands.wait_for(command["id"], 60)
    assert ended.result is not None
    assert ended.result["run"]["status"] == "paused"
    paused = project.services.queries.list_events(run, types=["execution.paused"])
    assert paused[-1].data["by"] == "the operator"
    project.ask(f"/executions/{run}/stop")
    assert project.services.queries.execution(run).status == "cancelled"
    assert _code(project.ask(f"/executions/{run}/pause")) == (409, "invalid-transition")


def test_positions_are_named_and_runs_and_checkpoints_deleted(project: ServedProject) -> None:
    run = project.start("named").json()["run"]["id"]
    named = project.post(f"/executions/{run}/checkpoints", {"name": "end", "description": "all done"})
    assert named.status_code == 201, named.text
    assert named.json()["checkpoint"]["name"] == "end"
    assert _code(project.post(f"/executions/{run}/checkpoints", {"name": "end"})) == (409, "already-exists")
    assert project.operator.delete(f"/api/v1/executions/{run}").status_code == 403
    assert project.admin.delete(f"/api/v1/executions/{run}/checkpoints/1").status_code == 204
    assert project.admin.delete(f"/api/v1/executions/{run}").status_code == 204
    assert _code(project.admin.delete(f"/api/v1/executions/{run}")) == (404, "execution-not-found")
    events = project.services.queries.list_events(run, types=["execution.deleted"])
    assert events[0].data["by"] == "the admin"


def test_workflows_are_listed_drawn_and_checked(project: ServedProject) -> None:
    listed = project.viewer.get("/api/v1/workflows").json()["items"]
    assert [each["name"] for each in listed if each["served"]] == ["agent"]
    graph = project.viewer.get("/api/v1/workflows/agent/graph").json()
    assert [(node["name"], node["is_start"], node["variants"]) for node in graph["nodes"]] == [
        ("plan", True, ["short"]),
        ("deliver", False, []),
        ("review", False, []),
    ]
    assert [(edge["sources"], edge["target"]) for edge in graph["edges"]] == [
        (["plan"], "deliver"),
        (["deliver"], "review"),
    ]
    assert project.viewer.get("/api/v1/workflows/agent").json()["definition"]["name"] == "agent"
    assert project.ask("/workflows/agent/check").json() == {"workflow": "agent", "faults": []}
    assert _code(project.viewer.get("/api/v1/workflows/nobody")) == (404, "workflow-not-found")


def test_an_edited_file_is_used_by_the_next_command_and_a_broken_one_is_a_clear_problem(
    project: ServedProject,
) -> None:
    file = project.folder / "agent.py"
    try:
        file.write_text(FLOW.replace("about {", "edited, about {"))
        run = project.start("edits").json()["run"]["id"]
        assert project.services.queries.state(run)[1]["plan"] == "edited, about edits"
        file.write_text("import nowhere_to_be_found\n")
        broken = project.post("/executions", {"workflow": "agent", "input": {"topic": "x"}})
        assert _code(broken) == (422, "invalid-input")
        assert "agent.py cannot be imported: ModuleNotFoundError in line 1" in broken.json()["detail"]
        assert "Traceback" not in broken.text
        assert project.viewer.get("/api/v1/workflows").json()["items"][0]["problem"]["code"] == "invalid-input"
        resumed = project.post(f"/executions/{run}/rollback/plan", {"target": 1})
        assert "cannot be imported" in resumed.json()["detail"]
    finally:
        file.write_text(FLOW)


def test_the_server_itself_never_loads_the_code_that_it_serves(
    project: ServedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "agent", raising=False)  # of a test that was its own worker
    started = project.start("own", break_before=["deliver"])
    run, edit = started.json()["run"]["id"], {"set": [{"path": ["place", "street"], "value": "Side"}]}
    resumed = project.post(f"/executions/{run}/resume", {"update": edit}, etag=started.headers["etag"])
    assert resumed.json()["run"]["status"] == "completed"
    assert project.post(f"/executions/{run}/rollback/plan", {"target": 1}).status_code == 200
    for path in ("workflows/agent/graph", f"executions/{run}/state", f"executions/{run}/calls"):
        assert project.viewer.get(f"/api/v1/{path}").status_code == 200, path
    assert "Side" in project.viewer.get(f"/api/v1/executions/{run}/diff", params={"from": 1}).text
    assert project.admin.post("/api/v1/upkeep/prune", json={"dry_run": False}).json()["is_complete"]
    assert project.admin.post("/api/v1/upkeep/doctor").json()["faults"] == []
    assert "agent" not in sys.modules


def test_a_worker_that_dies_three_times_fails_its_command_with_what_is_known(project: ServedProject) -> None:
    failed = project.post("/executions", {"workflow": "agent", "input": {"topic": "deadly"}})
    assert _code(failed) == (500, "worker-failed")
    assert "was ended by signal SIGKILL" in failed.json()["detail"]
    command = project.viewer.get(failed.headers.get("location") or "/api/v1/commands").json()["items"][0]
    assert (command["status"], command["attempts"]) == ("failed", 3)
    assert project.world(command["subject"]) == ["+"]  # the tool was called once: later workers asked whether it was


def test_a_run_whose_workflow_is_not_served_can_be_looked_at_and_stopped(project: ServedProject) -> None:
    other = wtb.Workflow("other")
    other.add_node("only", lambda state: {}, start=True)
    run = Bench._over(project.services).run(other, break_before=["only"])
    refused = project.post(f"/executions/{run.id}/resume")
    assert _code(refused) == (409, "workflow-not-served")
    assert refused.json()["command"] == f"wtb resume {run.id}"
    etag = f'"{run.execution.version}"'
    assert _code(project.post(f"/executions/{run.id}/redo", etag=etag)) == (409, "workflow-not-served")
    plan = project.post(f"/executions/{run.id}/rollback/plan", {"target": 0})
    assert plan.json()["command"] == f"wtb rollback {run.id}"
    assert _code(project.post("/executions", {"workflow": "other"})) == (409, "workflow-not-served")
    assert project.viewer.get("/api/v1/workflows/other/graph").json()["served"] is False
    assert project.post(f"/executions/{run.id}/fork").status_code == 201  # it needs no code
    assert project.ask(f"/executions/{run.id}/stop").status_code == 202
    assert project.services.queries.execution(run.id).status == "cancelled"


def test_secrets_stay_masked(project: ServedProject) -> None:
    started = project.start("secrets", break_after=["plan"])
    assert "sk-123" not in started.text
    failed = project.post(
        "/executions", {"workflow": "agent", "input": {"topic": {"$type": "sk-1234567890abcdefghijkl"}}}
    )
    assert failed.status_code == 422
    assert "sk-123" not in failed.text
    path = f"/executions/{started.json()['run']['id']}"
    update = {"update": {"set": [{"path": ["api_key"], "value": {"$type": "masked", "value": "***"}}]}}
    project.post(f"{path}/resume", update, etag=started.headers["etag"])
    assert project.services.queries.state(started.json()["run"]["id"])[1]["api_key"] == "sk-1234567890abcdefghijkl"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/executions", {"workflow": "agent", "input": {"topic": {"$type": "class", "name": "os:system"}}}),
        ("/executions", {"workflow": "agent", "input": [1]}),
        ("/executions", {"workflow": "agent", "input": {"$type": "int", "value": "5"}}),
        ("/executions", {"workflow": "/etc/passwd"}),
        ("/executions", {"workflow": "agent.py:flow"}),
        ("/executions", {"workflow": "agent", "reference": "other.py:flow"}),
        ("/executions", {"workflow": "agent", "options": {"break_before": ["nowhere"]}}),
        ("/executions", {"workflow": "agent", "options": {"variants": {"plan": "nope"}}}),
        ("/executions", {"workflow": "agent", "options": {"max_steps": 0}}),
        ("/executions/../../x/resume", {}),
        ("/executions/no-such-run/resume", {}),
        ("/executions/no-such-run/fork", {"target": -1}),
        ("/executions/no-such-run/rollback/plan", {"target": 1}),
    ],
)
def test_hostile_and_wrong_requests_are_refused(project: ServedProject, path: str, body: Any) -> None:
    answer = project.post(path, body)
    assert answer.status_code in (404, 409, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def _wait_until(check: Any) -> None:
    import time

    until = time.monotonic() + 60
    while not check():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_command_whose_code_hangs_is_cancelled_and_its_run_can_be_stopped(project: ServedProject) -> None:
    gate = project.folder / "gate-hung"
    gate.touch()
    body = {"workflow": "agent", "input": {"topic": "hung"}}
    command = project.operator.post("/api/v1/executions", json=body).json()["command"]
    path, run = f"/api/v1/commands/{command['id']}", command["subject"]
    while not project.world(run):
        time.sleep(0.05)
    assert project.viewer.post(f"{path}/cancel").status_code == 403
    cancelled = project.operator.post(f"{path}/cancel").json()
    assert (cancelled["status"], cancelled["problem"]["code"]) == ("failed", "command-cancelled")
    assert "was cancelled by the operator" in cancelled["problem"]["detail"]
    assert _code(project.operator.post(f"{path}/cancel")) == (409, "conflict")
    assert project.operator.post(f"/api/v1/executions/{run}/stop").status_code == 202
    assert project.viewer.get(f"/api/v1/executions/{run}").json()["status"] == "cancelled"
    gate.unlink()


def test_secrets_in_the_metadata_of_a_run_are_masked(project: ServedProject) -> None:
    metadata = {"ticket": 7, "api_key": "unmistakable", "note": "with sk-1234567890abcdefghijkl"}
    body = {"workflow": "agent", "input": {"topic": "noted"}, "metadata": metadata}
    run = project.post("/executions", body).json()["run"]["id"]
    shown = project.viewer.get(f"/api/v1/executions/{run}").json()["metadata"]
    assert shown == {"ticket": 7, "api_key": "***", "note": "with ***"}
