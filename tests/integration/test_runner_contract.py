"""The contract of runners: a batch has the same results, however its jobs are run."""

from __future__ import annotations

import importlib
import os
import socket
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.conftest import RUNNERS
from tests.services import PostgresServer
from wtb.application.batches.attempt import Progress
from wtb.batches import load_batch
from wtb.bootstrap import bootstrap
from wtb.domain.ports.telemetry import Measure
from wtb.infrastructure.telemetry import MemoryTelemetry

STORY = """
import os
import time
from pathlib import Path

import wtb

flow = wtb.Workflow("story")


def note(state, word):
    with open(state["log"], "a") as log:
        log.write(f"{os.getpid()} {word} {state['case']}\\n")


class Counter:
    def __init__(self):
        self.calls = 0


counter = Counter()


@flow.node(start=True)
def prepare(state):
    note(state, "prepare")
    counter.calls += int(state["case"] == "counted")
    time.sleep(state.get("takes_s", 0))
    held = b"x" * 1_500_000_000 if state["case"] == "greedy" else b""
    while state["case"] in ("endless", "greedy") and not Path(state["log"]).with_name("go").exists():
        time.sleep(0.01)
    return {"text": state["case"].upper()}


@flow.node()
def answer(state, ctx):
    note(state, "answer")
    ctx.usage(input_tokens=10, cost_usd=0.0)
    if state["case"] == "broken":
        raise ValueError("no answer to this")
    if state["case"] == "leaving":
        raise SystemExit(0)
    if state["case"] == "flaky" and Path(state["log"]).read_text().count("answer flaky") < 2:
        raise ValueError("not now")
    return {"answer": state["text"]}


@flow.variant("answer", "loud")
def loud(state):
    note(state, "loud")
    return {"answer": state["text"] + "!"}


flow.edge("prepare", "answer")
flow.edge("answer", wtb.END)


@wtb.evaluator(worst=0, best=1)
def is_right(context):
    return context.state["answer"] == context.case.expected


batch = wtb.BatchTest(flow, evaluators=[is_right, wtb.ExactMatch(key="answer"), "steps"])
"""


class Project:
    """A project in a folder, and a bench that runs its batch."""

    def __init__(self, folder: Path, bench: wtb.Bench, runner: str) -> None:
        (folder / "story.py").write_text(STORY)
        self.batch = load_batch(f"{folder / 'story.py'}:batch")
        self.log = folder / "log"
        self.log.touch()
        self.bench = bench
        self.runner = runner

    def cases(self, *names: str, **more: Any) -> list[dict[str, Any]]:
        return [
            {"id": name, "input": {"case": name, "log": str(self.log), **more}, "expected": name.upper()}
            for name in names
        ]

    def run(self, **options: Any) -> Any:
        return self.bench.batch(self.batch, **{"runner": self.runner, "workers": 1, **options})

    def noted(self) -> Counter[str]:
        """Return how often each node has run on each case."""
        return Counter(line.partition(" ")[2] for line in self.log.read_text().splitlines())

    def processes(self) -> set[int]:
        return {int(line.partition(" ")[0]) for line in self.log.read_text().splitlines()}


pytestmark = pytest.mark.usefixtures("no_registered_classes")


@pytest.fixture(params=RUNNERS)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    with wtb.Bench(folder=tmp_path / "wtb") as bench:
        yield Project(tmp_path, bench, request.param)
    sys.modules.pop("story", None)


def test_jobs_are_scored_share_their_nodes_and_say_who_ran_them(project: Project) -> None:
    seen: list[Progress] = []
    cases = project.cases("ann", "bob", "broken")
    result = project.run(cases=cases, workers=2, on_progress=seen.append)
    assert result.status == "completed_with_errors"
    assert {(job.combination, job.case_id): job.scores.get("is_right") for job in result.results} == {
        ("baseline", "ann"): 1,
        ("baseline", "bob"): 1,
        ("baseline", "broken"): None,
        ("answer=loud", "ann"): 0,
        ("answer=loud", "bob"): 0,
        ("answer=loud", "broken"): 0,
    }
    [failed] = [job for job in result.results if job.status == "failed"]
    assert failed.error is not None
    assert (failed.error["type"], failed.error["node"]) == ("ValueError", "answer")
    nodes = project.noted()
    assert {word: nodes[word] for word in nodes if word.startswith("prepare")} == {
        "prepare ann": 1,
        "prepare bob": 1,
        "prepare broken": 1,
    }
    assert result.sharing["executed"] == sum(nodes.values())
    assert (seen[-1].completed, seen[-1].failed, seen[-1].failed_nodes) == (5, 1, 1)
    for job in result.results:
        [attempt] = job.attempts
        assert (job.host, attempt.end) == (socket.gethostname(), job.status)
        assert attempt.started is not None
        assert attempt.started <= attempt.ended
        assert int(attempt.pid) in project.processes()
    own = {os.getpid()}
    assert project.processes() & own == (own if project.runner == "threads" else set())
    project.run(cases=cases)
    assert project.noted() - nodes == Counter({"answer broken": 1}), "only what failed runs again"


def test_jobs_that_need_the_same_result_wait_for_it_and_go_on_in_any_worker(project: Project) -> None:
    result = project.run(cases=project.cases("ann", takes_s=1), workers=2)
    assert project.noted() == Counter({"prepare ann": 1, "answer ann": 1, "loud ann": 1})
    assert [len(job.attempts) for job in result.results] == [1, 1]
    assert (result.sharing["executed"], result.sharing["shared"]) == (3, 1)


def test_classes_of_states_that_only_the_running_program_imports_reach_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "money.py").write_text(
        "import dataclasses, wtb\n@wtb.serialisable\n@dataclasses.dataclass\nclass Money:\n    cents: int\n"
    )
    importlib.import_module("money")
    with wtb.Bench(folder=tmp_path / "wtb") as bench:
        project = Project(tmp_path, bench, "processes")
        assert project.run(cases=project.cases("ann")).status == "completed"
    for module in ("story", "money"):
        sys.modules.pop(module, None)


def test_processes_share_a_postgres_database(tmp_path: Path, postgres: PostgresServer, migrated_database: str) -> None:
    with wtb.Bench(postgres.url(migrated_database), folder=tmp_path / "wtb") as bench:
        project = Project(tmp_path, bench, "processes")
        result = project.run(cases=project.cases("ann", "bob"), workers=2)
        assert result.status == "completed"
        assert sum(project.noted().values()) == result.sharing["executed"] == 2 + 4
    sys.modules.pop("story", None)


def test_a_failed_job_is_tried_again_as_often_as_retries_says(project: Project) -> None:
    result = project.run(cases=project.cases("flaky", "broken", "leaving"), variants=[{}], retries=1)
    assert ends_of(result) == {
        "flaky": ["failed", "completed"],
        "broken": ["failed", "failed"],
        "leaving": ["failed", "failed"],
    }
    assert result.sharing["executed"] == sum(project.noted().values()) == 3 + 6, "each answer is tried twice"
    [left] = [job for job in result.results if job.case_id == "leaving"]
    assert left.error["type"] == "SystemExit", "a node that exits has failed, and ends neither worker nor batch"


def ends_of(result: Any) -> dict[str, list[str]]:
    return {job.case_id: [attempt.end for attempt in job.attempts] for job in result.results}


def test_a_job_over_its_time_fails_alone_and_is_tried_again_as_often_as_retries_says(project: Project) -> None:
    cases, retries = project.cases("ann", "endless", "bob"), 0 if project.runner == "ray" else 1  # Ray starts slowly
    result = project.run(cases=cases, variants=[{}], job_timeout_s=2.5, retries=retries)
    project.log.with_name("go").touch()  # a thread cannot be ended
    assert ends_of(result) == {"ann": ["completed"], "endless": ["failed"] * (1 + retries), "bob": ["completed"]}
    [failed] = [job for job in result.results if job.status == "failed"]
    assert failed.error is not None
    assert "took longer than" in failed.error["message"]
    assert "2.5 s" in failed.error["message"]
    assert failed.error["node"] == "prepare"
    assert failed.run.status in ("failed", "cancelled")
    assert not result.dead_letters


@pytest.mark.parametrize("project", [each for each in RUNNERS if each != "threads"], indirect=True)
def test_a_worker_that_takes_too_much_memory_is_ended_and_its_job_fails_alone(project: Project) -> None:
    cases = project.cases("ann", "greedy", "bob")
    result = project.run(cases=cases, variants=[{}], resources=wtb.Resources(memory_gb=1))
    assert ends_of(result) == {"ann": ["completed"], "greedy": ["failed"], "bob": ["completed"]}
    [failed] = [job for job in result.results if job.status == "failed"]
    assert failed.error is not None
    assert failed.error["type"] == "JobMemoryExceeded"
    assert "more than 1 GB, the limit of memory_gb, while it ran node `prepare`" in failed.error["message"]
    told = worker_events(project)
    started, ended = ([each for each in told if each.type == f"worker.{what}"] for what in ("started", "ended"))
    assert len(started) == len(ended) == len(told) / 2
    assert failed.worker in [each.data["pid"] for each in ended if "of memory" in each.data["reason"]]


def test_what_workers_measure_reaches_the_telemetry_of_the_driver(project: Project) -> None:
    telemetry = MemoryTelemetry()
    settings = project.bench.services.settings
    project.bench.services.close()
    project.bench.services = bootstrap(settings, telemetry=telemetry)
    project.run(cases=project.cases("ann", "broken"), variants=[{}])

    def counts(measure: Measure) -> dict[str, int]:
        return {name: found.count for name, found in telemetry.by_name(measure).items()}

    assert counts(Measure.NODE) == {"prepare": 2, "answer": 2}
    assert telemetry.by_name(Measure.NODE)["answer"].raised == 1
    assert telemetry.total(Measure.NODE).total_s > 0
    assert counts(Measure.JOB) == {"baseline": 2}
    assert (counts(Measure.COMPLETED), counts(Measure.FAILED)) == ({"baseline": 1}, {"baseline": 1})
    assert telemetry.total(Measure.WORKERS).count == 0, "all that started have ended"
    assert counts(Measure.SAVE)["story"] > 0
    assert counts(Measure.CHECKPOINT_BYTES)["story"] > 0
    assert counts(Measure.BATCH_FAILED) == {"story": 1}


def worker_events(project: Project) -> list[Any]:
    queries = project.bench.services.queries
    found = queries.event_page(stream=queries.batch("story").batch.id, limit=1_000).events
    return [each for each in found if each.type.startswith("worker.")]


def test_a_batch_stops_at_its_budget_and_goes_on_with_a_larger_one(project: Project) -> None:
    cases = project.cases("a", "b", "c", "d")
    result = project.run(cases=cases, variants=[{}], budget={"tokens": 15})
    assert (result.status, result.left, result.spent.tokens) == ("cancelled", 2, 20)
    assert project.run(cases=cases, variants=[{}], budget={"tokens": 100}).left == 0
    assert sum(project.noted().values()) == 8


@pytest.mark.parametrize("how", ["stop", "cancel"])
def test_a_batch_that_is_stopped_or_cancelled_elsewhere_finishes_what_it_has_begun(project: Project, how: str) -> None:
    cases = project.cases(*(f"case{number}" for number in range(40)), takes_s=0.1)
    stop = threading.Event()

    def told(progress: Progress) -> None:
        if how == "stop":
            stop.set()
        elif not progress.is_cancelled and progress.completed == 1:
            with wtb.Bench(folder=project.bench.services.settings.folder) as other:
                other.cancel_batch("story")

    result = project.run(cases=cases, variants=[{}], stop=stop, on_progress=told)
    assert result.status == "cancelled"
    assert 0 < result.left < 40
    assert sum(project.noted().values()) == 2 * (40 - result.left)


def test_a_value_that_runs_change_is_named_and_makes_nothing_run_again(project: Project) -> None:
    cases = project.cases("counted")
    [changing] = project.run(cases=cases).batch.record.changing
    assert changing.startswith("`counter.calls` in ")
    before = project.noted()
    project.run(cases=cases)
    assert project.noted() == before


def test_fresh_ignores_earlier_results_and_shares_the_new_ones(project: Project) -> None:
    cases = project.cases("ann", "bob")
    project.run(cases=cases)
    before = project.noted()
    project.run(cases=cases, fresh=True, workers=2)
    assert project.noted() == before + before


def test_a_batch_whose_nodes_compute_in_threads_says_how_much_quicker_processes_would_be(tmp_path: Path) -> None:
    with wtb.Bench(folder=tmp_path / "wtb") as bench:
        project = Project(tmp_path, bench, "threads")
        result = project.run(cases=project.cases("ann"))

        with bench.services.storage.unit_of_work(readonly=True) as uow:
            jobs = uow.batches.list_jobs(result.batch.id)

        def quicker(nodes_s: float = 240.0, **measured: Any) -> float | None:
            batch = replace(result.batch.noted(**{"workers": 8, "cores": 4, **measured}), spent_s=60.0)
            long_jobs = [job.noted(latency_s=nodes_s / len(jobs)) for job in jobs]
            return wtb.BatchResult(bench, batch, long_jobs).quicker_in_processes

        assert result.batch.record.cores_used is not None
        assert result.is_short
        assert quicker(cores_used=0.9) == 4
        assert quicker(cores_used=0.9, nodes_s=1.0) is None, "WTB itself kept the core busy"
        assert quicker(cores_used=2.0) == 2, "computed in C, outside of Python's lock"
        assert quicker(cores_used=0.3) is None, "the nodes wait"
        assert quicker(cores_used=None) is None, "it ran in processes"
        assert quicker(cores_used=0.9, workers=1) is None
        assert quicker(cores_used=0.9, cores=1) is None
    sys.modules.pop("story", None)
