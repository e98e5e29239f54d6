"""Names with a slash are addressed with `%2F`: workflows, batches, baselines and checkpoints, also by the client."""

from __future__ import annotations

from typing import Any

import pytest

import wtb
from tests.api.client import TestClient
from tests.api.running_server import running
from wtb.api.parts import ServerParts
from wtb.bench import Bench
from wtb.bootstrap import Services
from wtb.client.connection import path_of
from wtb.domain.access import Role
from wtb.domain.errors import InvalidInput
from wtb.flow import Workflow

FLOW, BATCH, BASELINE, MARK = "team/support", "nightly/a b", "release/1.0", "before/after"


@pytest.fixture
def run(services: Services) -> str:
    """Store a run, a batch, a baseline and a checkpoint whose names have slashes; return the id of the run."""
    flow = Workflow(FLOW)

    @flow.node(start=True)
    def greet(state: Any, ctx: Any) -> dict[str, Any]:
        (ctx.workspace / "notes").mkdir(exist_ok=True)
        (ctx.workspace / "notes" / "a.txt").write_text("note")
        return {"text": "hello"}

    bench = Bench._over(services)
    made = bench.run(flow, {"topic": "x"}, run_id="one")
    made.checkpoint(MARK)
    result = bench.batch(flow, cases=[{"id": "a/1", "input": {"topic": "y"}}], name=BATCH, evaluators=[wtb.Steps()])
    services.baselines.save(BASELINE, [result.batch], None)
    return made.id


def test_a_slash_inside_a_name_is_written_percent_2f(run: str, viewer: TestClient) -> None:
    def shown(path: str) -> Any:
        answer = viewer.get(f"/api/v1/{path}")
        assert answer.status_code == 200, (path, answer.text)
        return answer.json()

    assert shown("workflows/team%2Fsupport")["name"] == FLOW
    assert len(shown("workflows/team%2fsupport/graph")["nodes"]) == 1
    assert shown("batches/nightly%2Fa%20b")["name"] == BATCH
    assert shown("batches/nightly%2Fa%20b/cases/a%2F1")["case"] == "a/1"
    assert shown("batches/nightly%2Fa%20b/cases/a/1")["case"] == "a/1"
    assert shown(f"executions/{run}/checkpoints/before%2Fafter")["name"] == MARK
    assert [each["path"] for each in shown(f"executions/{run}/checkpoints/before%2Fafter/files")["items"]] == [
        "notes",
        "notes/a.txt",
    ]
    for path in ("notes/a.txt", "notes%2Fa.txt"):
        assert viewer.get(f"/api/v1/executions/{run}/checkpoints/before%2Fafter/files/{path}").text == "note"


def test_a_slash_inside_a_name_leads_to_no_other_address(run: str, admin: TestClient) -> None:
    for method, path in (("POST", f"{run}%2Fstop"), ("GET", f"{run}%2Fstate"), ("DELETE", f"{run}%2F..")):
        answer = admin.request(method, f"/api/v1/executions/{path}")
        assert answer.status_code in (404, 405), (path, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
    assert admin.get(f"/api/v1/executions/{run}%2Fx").json()["detail"].startswith(f"no run '{run}/x'")
    assert admin.get(f"/api/v1%2Fexecutions/{run}").status_code == 404
    assert admin.get(f"/api/v1/executions/{run}").status_code == 200


def test_the_client_asks_for_names_with_slashes(run: str, services: Services) -> None:
    _, token = services.tokens.create("ci", Role.OPERATOR, by="tester")
    with running(ServerParts(services=services)) as server, wtb.Client(server.url, token) as client:
        assert client.batch_status(BATCH).name == BATCH
        assert client.case(BATCH, "a/1").case == "a/1"
        assert client.get_baseline(BASELINE).name == BASELINE
        assert client.workflow(FLOW).name == FLOW
        assert client.checkpoint_at(run, MARK).name == MARK
        assert client.read_file(run, "notes/a.txt", MARK) == b"note"
    for lost in ("..", ".", ""):
        with pytest.raises(InvalidInput, match="no name that a server can be asked for"):
            path_of("batches", lost)
