"""Background jobs, pruning and light checks over the API."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from tests.api.client import TestClient
from wtb.bench import Bench
from wtb.bootstrap import Services
from wtb.domain.events import EventType
from wtb.domain.execution import ABANDONED_AFTER, ExecutionStatus
from wtb.domain.ids import ExecutionId
from wtb.domain.retention import Reason
from wtb.flow import Workflow
from wtb.infrastructure.sql.unit_of_work import SqlStorage

JOBS = "/api/v1/background-jobs"


@pytest.fixture
def bench(services: Services) -> Iterator[Bench]:
    with Bench(services.settings.url, folder=services.settings.folder, retention={"keep_last": 0}) as bench:
        yield bench


def flow() -> Workflow:
    made = Workflow("short")
    made.add_node("first", lambda state: {"n": 1}, start=True)
    made.add_node("second", lambda state: {"n": 2})
    made.add_node("third", lambda state: {"n": 3})
    made.edge("first", "second")
    made.edge("second", "third")
    return made


def job(client: TestClient, name: str) -> dict[str, object]:
    found: dict[str, object] = next(each for each in client.get(JOBS).json()["items"] if each["name"] == name)
    return found


def until(is_so: Callable[[], object], timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def test_every_job_says_when_it_runs_next_and_runs_on_request(admin: TestClient, viewer: TestClient) -> None:
    until(lambda: all(each["next_at"] for each in viewer.get(JOBS).json()["items"]))
    names = [each["name"] for each in viewer.get(JOBS).json()["items"]]
    assert names == ["abandoned_runs", "doctor", "expired", "retention", "webhooks", "workspaces"]
    assert viewer.post(f"{JOBS}/retention/run").status_code == 403
    for name in set(names) - {"webhooks"}:
        assert job(viewer, name)["last_ended_at"] is None
        asked = admin.post(f"{JOBS}/{name}/run")
        assert (asked.status_code, asked.json()["is_requested"]) == (202, True)
        until(lambda name=name: job(viewer, name)["last_ended_at"])  # type: ignore[misc]  # the name of now
        assert job(viewer, name)["last_error"] is None
        assert job(viewer, name)["last_duration_s"] is not None
    unknown = admin.post(f"{JOBS}/nothing/run")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "background-job-not-found")


def test_the_light_doctor_tells_of_damage_and_its_route_shows_it(
    admin: TestClient, services: Services, bench: Bench
) -> None:
    bench.run(flow(), {})
    assert admin.post("/api/v1/upkeep/doctor", json={"seconds": 5}).json()["faults"] == []
    assert isinstance(services.storage, SqlStorage)
    database = services.storage.database
    with database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE wtb_events SET data = '{}' WHERE type = 'execution.completed'")
    checked = admin.post("/api/v1/upkeep/doctor", json={}).json()
    assert [fault["kind"] for fault in checked["faults"]] == ["event"]
    assert checked["is_complete"]
    admin.post(f"{JOBS}/doctor/run")
    until(lambda: job(admin, "doctor")["last_error"])
    assert "wtb doctor" in str(job(admin, "doctor")["last_error"])
    shown = admin.get("/api/v1/upkeep/doctor").json()
    assert (shown["rounds"], [fault["kind"] for fault in shown["faults"]]) == (1, ["event"])
    with services.storage.unit_of_work(readonly=True) as uow:
        assert uow.events.list_events(types=[EventType.BACKGROUND_FAILED])[0].data["figures"]["faults"] == 1


def test_pruning_is_a_dry_run_by_default_and_names_who_asked(
    admin: TestClient, operator: TestClient, services: Services, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bench.run(flow(), {})
    monkeypatch.setattr(services.retention, "_policy_for", bench.services.settings.retention.policy)
    assert operator.post("/api/v1/upkeep/prune", json={}).status_code == 403
    plan = admin.post("/api/v1/upkeep/prune").json()
    assert admin.post("/api/v1/upkeep/doctor").json()["faults"] == []
    assert (plan["dry_run"], plan["is_complete"], plan["runs"]) == (True, True, 1)
    assert plan["checkpoints"] == {Reason.BEYOND_LAST.value: 2}
    assert admin.post("/api/v1/upkeep/prune", json={"workflow": "other"}).json()["runs"] == 0
    done = admin.post("/api/v1/upkeep/prune", json={"dry_run": False, "run": run.id}).json()
    assert (done["dry_run"], done["checkpoints"]) == (False, {Reason.BEYOND_LAST.value: 2})
    with services.storage.unit_of_work(readonly=True) as uow:
        (told,) = uow.events.list_events(types=[EventType.CHECKPOINT_DELETED])
    assert told.data["by"] == "the admin"
    unknown = admin.post("/api/v1/upkeep/prune", json={"run": "none"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "execution-not-found")


def test_a_run_that_was_left_an_hour_ago_is_paused_by_the_background_job(
    admin: TestClient, services: Services, bench: Bench
) -> None:
    run = bench.run(flow(), {}, break_after=["first"])
    recent = bench.run(flow(), {}, break_after=["first"])
    for id, ago in ((run.id, ABANDONED_AFTER * 2), (recent.id, timedelta(minutes=5))):
        leave(services, ExecutionId(id), ago)
    admin.post(f"{JOBS}/abandoned_runs/run")
    until(lambda: job(admin, "abandoned_runs")["last_ended_at"])
    assert job(admin, "abandoned_runs")["figures"] == {"abandoned": 1}
    with services.storage.unit_of_work(readonly=True) as uow:
        assert uow.executions.get(ExecutionId(run.id)).status is ExecutionStatus.PAUSED
        assert uow.executions.get(ExecutionId(recent.id)).status is ExecutionStatus.RUNNING
        (told,) = uow.events.list_events(types=[EventType.EXECUTION_ABANDONED])
    assert (told.stream, told.data["by"]) == (run.id, "the admin")


def leave(services: Services, id: ExecutionId, ago: timedelta) -> None:
    """Let it look as if a process of another machine ran it until then."""
    with services.storage.unit_of_work() as uow:
        then = uow.now() - ago
        execution = uow.executions.get(id)
        uow.executions.save(
            execution.moved_to(ExecutionStatus.RUNNING, then).owned("elsewhere/1/1", then, timedelta(0))
        )
        uow.commit()
