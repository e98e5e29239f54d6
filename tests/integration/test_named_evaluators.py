"""Evaluators by name: built in, and of packages that are installed beside WTB."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import wtb
from wtb.bench import Bench
from wtb.domain.errors import InvalidInput
from wtb.flow import Workflow
from wtb.infrastructure.evaluators.named import read_evaluators

MODULE = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Politeness:
    name: str = "politeness"
    worst: float = 0.0
    best: float = 1.0

    def evaluate(self, context):
        return "please" in context.state["answer"]

READY = Politeness(name="ready")

def made():
    return Politeness(name="made")

def broken():
    raise RuntimeError("no model here")
"""
ENTRY_POINTS = """
[wtb.evaluators]
politeness = polite_evals:Politeness
ready = polite_evals:READY
made = polite_evals:made
broken = polite_evals:broken
gone = polite_evals:Gone
number = polite_evals:__name__.__len__
"""


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package as pip leaves it: a module, and its dist-info with entry points."""
    (tmp_path / "polite_evals.py").write_text(MODULE)
    info = tmp_path / "polite_evals-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: polite-evals\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()


@pytest.mark.usefixtures("_installed")
def test_an_installed_evaluator_scores_a_batch_by_its_name() -> None:
    flow = Workflow("named")
    flow.add_node("answer", lambda state: {"answer": state["text"]}, start=True)
    cases = [{"id": "1", "input": {"text": "please wait"}}, {"id": "2", "input": {"text": "wait"}}]
    with Bench("memory://") as bench:
        result = bench.batch(flow, cases=cases, evaluators=["politeness", "ready", "made", "steps", wtb.Latency()])
    assert list(result.metrics) == ["politeness", "ready", "made", "steps", "latency_s"]
    assert {each.case_id: each.scores["politeness"] for each in result.results} == {"1": 1.0, "2": 0.0}


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("polite", r"there is no evaluator 'polite'; known names: latency_s, .*politeness \(of polite-evals\)"),
        ("broken", r"evaluator broken \(of polite-evals\) cannot be loaded: RuntimeError: no model here"),
        ("gone", r"evaluator gone \(of polite-evals\) cannot be loaded: AttributeError"),
        ("number", "int is not an evaluator: it needs a name and evaluate"),
    ],
)
def test_a_name_that_gives_no_evaluator_is_told_with_its_package(name: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        read_evaluators([name])


def shorter_than(limit: int) -> Any:
    def brief(context: Any) -> bool:
        return len(context.state["answer"]) < limit

    return brief


async def polite(context: Any) -> float:
    return 0.25


def test_a_function_scores_under_its_own_name_and_again_when_it_has_changed() -> None:
    flow = Workflow("answers")
    flow.add_node("answer", lambda state: {"answer": state["question"]}, start=True)
    cases = [{"id": text, "input": {"question": text}} for text in ("why", "wherefore")]
    with Bench("memory://") as bench:
        summaries = bench.batch(flow, cases=cases, evaluators=[shorter_than(5), polite]).matrix[0].summaries
        assert {name: each.mean for name, each in summaries.items()} == {"brief": 0.5, "polite": 0.25, "failed": 0.0}
        result = bench.batch(flow, cases=cases, evaluators=[shorter_than(50)])
        assert (result.matrix[0].summaries["brief"].mean, result.sharing["executed"]) == (1.0, 0)


def test_a_built_in_one_that_needs_no_settings_goes_by_the_name_of_its_metric() -> None:
    names = ("latency_s", "cost_usd", "tokens", "steps", "tool_errors")
    assert read_evaluators(names) == (wtb.Latency(), wtb.Cost(), wtb.Tokens(), wtb.Steps(), wtb.ToolErrors())
