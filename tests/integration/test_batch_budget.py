"""Budgets: what is spent counts over all the times that a batch is run, what is shared counts once."""

from __future__ import annotations

from typing import Any

import pytest

import wtb
from wtb.bench import Bench
from wtb.flow import Workflow

CASES = [{"id": str(number), "input": {"q": number}} for number in range(10)]


def dear(variants: int = 0, *, fails: bool = False) -> Workflow:
    """A node that costs a dollar and 10 tokens, and one behind it that costs nothing, with variants."""
    flow = Workflow("dear")

    def ask(state: Any, ctx: Any) -> None:
        ctx.usage(model="m", input_tokens=9, output_tokens=1, cost_usd=1.0)
        if fails:
            raise ValueError("nothing came back")

    flow.add_node("ask", ask, start=True)
    flow.add_node("answer", lambda state: {"answer": 0})
    for number in range(1, variants + 1):
        flow.add_variant("answer", str(number), lambda state, number=number: {"answer": number})
    flow.edge("ask", "answer")
    return flow


def run(bench: Bench, flow: Workflow, **options: Any) -> Any:
    return bench.batch(flow, **{"cases": CASES, "evaluators": [wtb.Cost()], "workers": 1, **options})


@pytest.mark.parametrize("budget", [{"usd": 3}, {"tokens": 30}, {"usd": 99, "tokens": 25}])
def test_a_budget_is_for_all_the_times_that_a_batch_is_run(bench: Bench, budget: dict[str, float]) -> None:
    first = run(bench, dear(), budget=budget)
    assert (first.status, len(first.results)) == ("cancelled", 3)
    again = run(bench, dear(), budget=budget)
    assert (len(again.results), again.spent.usd, again.spent.tokens) == (3, 3.0, 30)
    more = run(bench, dear(), budget={"usd": 5})
    assert (len(more.results), more.spent.usd) == (5, 5.0)
    assert run(bench, dear()).status == "completed"


def test_shared_work_is_spent_once_and_charged_to_every_combination(bench: Bench) -> None:
    result = run(bench, dear(variants=3), workers=4)
    assert (result.spent.usd, result.spent.tokens) == (10.0, 100)
    assert {row.summaries["cost_usd"].mean for row in result.matrix} == {1.0}


def test_what_failed_was_spent_too_and_so_was_what_is_run_again(bench: Bench) -> None:
    assert run(bench, dear(fails=True), cases=CASES[:2]).spent.usd == 2.0
    assert run(bench, dear(), cases=CASES[:2]).spent.usd == 4.0


def test_attempts_that_failed_are_spent(bench: Bench) -> None:
    flow = Workflow("retried")

    def ask(state: Any, ctx: Any) -> None:
        ctx.usage(model="m", cost_usd=1.0)
        if ctx.run.attempt < 3:
            raise ValueError("not yet")

    flow.add_node("ask", ask, start=True, retry=wtb.RetryPolicy(times=3, wait_s=0.0))
    result = run(bench, flow, cases=CASES[:1])
    assert (result.status, result.spent.usd) == ("completed", 3.0)


def test_no_time_begins_nothing_and_more_time_goes_on(bench: Bench) -> None:
    assert run(bench, dear(), budget={"s": 0}).results == []
    done = run(bench, dear(), budget={"s": 600})
    assert done.status == "completed"
    assert 0 < done.spent.s < 600
    assert run(bench, dear(), budget={"s": 600}).spent.s > done.spent.s


def test_scores_can_be_had_when_the_budget_is_used_up(bench: Bench) -> None:
    run(bench, dear(), cases=CASES[:3], budget={"usd": 3})
    result = run(bench, dear(), cases=CASES[:3], budget={"usd": 3}, evaluators=[wtb.Cost(), wtb.Steps()])
    assert (result.status, {each.scores["steps"] for each in result.results}) == ("completed", {2.0})


def test_node_runs_are_counted_without_sharing_too(bench: Bench) -> None:
    result = run(bench, dear(variants=1), cases=CASES[:2], share=False)
    assert result.sharing == {"executed": 8, "shared": 0, "not_shareable": {}}
    assert result.spent.usd == 4.0
