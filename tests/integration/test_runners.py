"""Runners by name: a package or a file adds one, and batches run on it as on threads."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import wtb
from wtb.domain.runner import JobBroke, JobReport, RunJob

RUNNER = """
order = []

class Runner:
    '''Runs each job where it is submitted.'''

    def start(self, run, workers, report):
        self.run, self.report = run, report

    def submit(self, number):
        order.append(number)
        self.report(self.run(number))

    def close(self):
        order.append("closed")
"""


def flow() -> wtb.Workflow:
    made = wtb.Workflow("greeting")
    made.add_node("greet", lambda state: {"answer": f"hello {state['name']}"}, start=True)
    made.add_variant("greet", "polite", lambda state: {"answer": f"good day {state['name']}"})
    return made


CASES = [{"id": name, "input": {"name": name}, "expected": f"hello {name}"} for name in ("ann", "bob")]


def test_a_runner_of_ones_own_runs_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy_runner.py").write_text(RUNNER)
    monkeypatch.syspath_prepend(str(tmp_path))
    with wtb.Bench("memory://") as bench:
        result = bench.batch(flow(), cases=CASES, evaluators=[wtb.ExactMatch("answer")], runner="toy_runner:Runner")
    import toy_runner  # type: ignore[import-not-found]

    assert result.status == "completed"
    assert [row.summaries["exact_match"].mean for row in result.matrix] == [1.0, 0.0]
    assert (sorted(toy_runner.order[:-1]), toy_runner.order[-1]) == ([0, 1, 2, 3], "closed")


def test_an_installed_package_offers_a_runner_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "offered_runner.py").write_text(RUNNER)
    monkeypatch.syspath_prepend(str(tmp_path))
    offered = EntryPoint(name="toy", value="offered_runner:Runner", group="wtb.runners")
    monkeypatch.setattr("wtb.runners.entry_points", lambda group: [offered])
    with wtb.Bench("memory://") as bench:
        result = bench.batch(flow(), cases=CASES, evaluators=[wtb.ExactMatch("answer")], runner="toy")
        assert result.status == "completed"
        with pytest.raises(wtb.InvalidInput, match="no runner 'dask'; there are processes, ray, threads, toy;"):
            bench.batch(flow(), cases=CASES, evaluators=[wtb.ExactMatch("answer")], runner="dask")


def test_what_is_no_runner_is_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "half.py").write_text("class Runner:\n    def start(self, run, workers, report): ...\n")
    with wtb.Bench("memory://") as bench, pytest.raises(wtb.InvalidInput, match="has no submit, close"):
        bench.batch(flow(), cases=CASES, evaluators=[wtb.ExactMatch("answer")], runner=f"{tmp_path}/half.py:Runner")


class Breaking:
    """A runner whose workers are lost."""

    def start(self, run: RunJob, workers: int, report: Callable[[JobReport], None]) -> None:
        self.report = report

    def submit(self, number: int) -> None:
        self.report(JobBroke(number, RuntimeError("the cluster is gone")))

    def close(self) -> None:
        pass


def test_a_runner_that_breaks_stops_the_batch_with_its_error_and_the_batch_can_go_on() -> None:
    options: dict[str, Any] = {"cases": CASES, "evaluators": [wtb.ExactMatch("answer")]}
    with wtb.Bench("memory://") as bench:
        with pytest.raises(RuntimeError, match="the cluster is gone"):
            bench.batch(flow(), runner=f"{__name__}:Breaking", **options)
        assert bench.get_batch("greeting").status == "cancelled"
        assert bench.batch(flow(), **options).status == "completed"
