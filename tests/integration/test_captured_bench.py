"""A node that holds a bench or a run does not depend on all that these hold; what users made of WTB's parts counts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wtb
from wtb.application.tool_registry import TOOLS
from wtb.bench import Bench
from wtb.flow import Workflow

CASES = [{"id": "one", "input": {"q": 1}}, {"id": "two", "input": {"q": 2}}]


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench("memory://") as opened:
        yield opened


@pytest.fixture
def register_tool() -> Iterator[Callable[[], None]]:
    """Registers a tool that no node knows of."""
    name = "a_tool_that_comes_later"

    def register() -> None:
        wtb.tool(effects="none", name=name)(lambda text: text)

    yield register
    TOOLS._tools.pop(name, None)


def holding(held: Any) -> Workflow:
    """A workflow whose node holds a value."""
    flow = Workflow("holding")
    flow.add_node("look", lambda state: {"seen": held is not None}, start=True)
    return flow


def run(bench: Bench, flow: Workflow) -> Any:
    return bench.batch(flow, cases=CASES, evaluators=[wtb.Steps()])


def inner_run(bench: Bench) -> Any:
    return bench.run(holding(None), {"q": 0})


HANDLES: dict[str, Callable[[Bench], Any]] = {
    "a bench": lambda bench: bench,
    "its services": lambda bench: bench.services,
    "a service": lambda bench: bench.services.queries,
    "its storage": lambda bench: bench.services.storage,
    "a method of it": lambda bench: bench.get,
    "a run": inner_run,
    "a result": lambda bench: bench.batch(holding(None), name="other", cases=CASES, evaluators=[wtb.Steps()]),
    "a list of them": lambda bench: [bench, {"run": inner_run(bench)}],
    "a partial with one": lambda bench: functools.partial(print, bench),
}


@pytest.mark.parametrize("what", HANDLES)
def test_what_a_captured_handle_holds_does_not_count(
    bench: Bench, register_tool: Callable[[], None], what: str
) -> None:
    flow = holding(HANDLES[what](bench))
    run(bench, flow)
    bench.run(holding(None), {"q": 5})
    register_tool()
    plan = bench.plan(flow, cases=CASES, evaluators=[wtb.Steps()])
    assert (plan.kept, plan.run, plan.changes, plan.coarse) == (2, 0, {}, {})


def made(number: int) -> Callable[[Any], dict[str, Any]]:
    return lambda state: {"n": number}


def workflow(number: int) -> Workflow:
    flow = Workflow("inner")
    flow.add_node("n", made(number), start=True)
    return flow


def workflow_with_variant(number: int) -> Workflow:
    flow = workflow(0)
    flow.add_variant("n", "other", made(number))
    return flow


class BenchOfMine(Bench):
    """A bench with something of the user's."""

    def __init__(self, number: int) -> None:
        super().__init__("memory://")
        self.number = number


VALUES: dict[str, Callable[[int], Any]] = {
    "a workflow": workflow,
    "a workflow with a variant": workflow_with_variant,
    "a batch test": lambda number: wtb.BatchTest(workflow(number), cases=CASES, evaluators=[wtb.Steps()]),
    "an evaluator": lambda number: wtb.NumericMatch("answer", absolute=number),
    "a function as an evaluator": lambda number: wtb.evaluator(name="mine")(lambda context: number),
    "a retry policy": lambda number: wtb.RetryPolicy(times=number),
    "a tool": lambda number: wtb.tool(effects="none", name="a_tool_that_comes_later")(lambda text: number),
}


@pytest.mark.parametrize("what", VALUES)
def test_what_a_user_made_of_the_parts_of_wtb_counts(
    bench: Bench, register_tool: Callable[[], None], what: str
) -> None:
    run(bench, holding(VALUES[what](1)))
    again = bench.plan(holding(VALUES[what](1)), cases=CASES, evaluators=[wtb.Steps()])
    assert (again.kept, again.run) == (2, 0)
    other = bench.plan(holding(VALUES[what](2)), cases=CASES, evaluators=[wtb.Steps()])
    assert (other.kept, other.run) == (0, 2)


def test_what_a_user_adds_to_a_bench_of_their_own_counts(bench: Bench) -> None:
    with BenchOfMine(1) as mine, BenchOfMine(1) as same, BenchOfMine(2) as other:
        run(bench, holding(mine))
        plans = [bench.plan(holding(each), cases=CASES, evaluators=[wtb.Steps()]) for each in (same, other)]
    assert [(plan.kept, plan.run) for plan in plans] == [(2, 0), (0, 2)]
