"""A batch never makes a call again that may have happened: its run waits for an answer, and is continued with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wtb
from wtb.batches import load_batch
from wtb.bench import Bench
from wtb.flow import Workflow

CASES = [{"id": "ann", "input": {"who": "ann"}, "expected": "ann"}]
PAYING = """
import time
from pathlib import Path

import wtb

flow = wtb.Workflow("paying")


@wtb.tool
def pay_slowly(ledger, who):
    with open(ledger, "a") as out:
        out.write(f"{who}\\n")
    time.sleep(0 if Path(ledger).with_name("quick").exists() else 60)
    return who


@flow.node(start=True)
def pay_node(state, ctx):
    return {"paid": ctx.tool(pay_slowly, state["ledger"], state["who"])}


batch = wtb.BatchTest(flow, evaluators=[wtb.ExactMatch("paid")])
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(folder=tmp_path / "wtb") as bench:
        yield bench


class Ledger(list[str]):
    """What was paid; no part of the functions that write to it."""

    def __wtb_fingerprint__(self) -> str:
        return "a ledger"


class Shop:
    """A workflow that pays, and is interrupted the first time while it pays."""

    def __init__(self) -> None:
        self.ledger = ledger = Ledger()

        def pay(who: str) -> str:
            ledger.append(who)
            if len(ledger) == 1:
                raise KeyboardInterrupt
            return who

        tool = wtb.tool(name="shop_pay")(pay)

        def buy(state: Any, ctx: Any) -> dict[str, Any]:
            ctx.usage(input_tokens=10)
            return {"paid": ctx.tool(tool, state["who"])}

        self.flow = Workflow("shop").add_node("buy", buy, start=True)

    def batch(self, bench: Bench, **options: Any) -> Any:
        return bench.batch(self.flow, cases=CASES, evaluators=[wtb.ExactMatch("paid")], workers=1, **options)


def interrupted(bench: Bench) -> Shop:
    """Return the shop after a batch was interrupted while it paid."""
    shop = Shop()
    with pytest.raises(KeyboardInterrupt):
        shop.batch(bench)
    return shop


def test_a_job_whose_call_is_in_doubt_stays_failed_until_somebody_answers(bench: Bench) -> None:
    shop = interrupted(bench)
    for _ in range(3):
        result = shop.batch(bench, retries=2)
        [job] = result.results
        assert (result.status, job.status, len(job.attempts)) == ("completed_with_errors", "failed", 1)
        assert "Did it happen?" in job.error["message"]
        assert f"`wtb resume {job.run_id} --answer" in job.error["message"]
    assert shop.ledger == ["ann"]


@pytest.mark.parametrize("answer", ["done", "again"])
def test_a_run_whose_question_was_answered_is_the_run_of_the_job(bench: Bench, answer: str) -> None:
    shop = interrupted(bench)
    [job] = shop.batch(bench).results
    given: Any = {"done": "ann"} if answer == "done" else "again"
    assert bench.resume(job.run_id, shop.flow, answer=given).state["paid"] == "ann"
    result = shop.batch(bench)
    assert result.status == "completed"
    [ended] = result.results
    assert (ended.run_id, ended.scores["exact_match"]) == (job.run_id, 1)
    assert shop.ledger == (["ann"] if answer == "done" else ["ann", "ann"])
    assert result.spent.tokens == 30, "the node began three times, and each is counted once"


def test_a_changed_node_runs_anew(bench: Bench) -> None:
    shop = interrupted(bench)
    shop.batch(bench)
    result = shop.batch(bench, fresh=True)
    assert result.status == "completed"
    assert shop.ledger == ["ann", "ann"]


def test_a_question_of_a_node_that_was_answered_meanwhile_completes_the_job(bench: Bench) -> None:
    flow = Workflow("asking").add_node("ask", lambda state, ctx: {"said": ctx.ask("Go on?")}, start=True)
    options: dict[str, Any] = {"cases": [{"id": "a", "input": {}}], "evaluators": ["steps"]}
    [job] = bench.batch(flow, **options).results
    assert job.status == "failed"
    bench.resume(str(job.run_id), flow, answer="yes")
    assert [each.run_id for each in bench.batch(flow, **options).results if each.status == "completed"] == [job.run_id]


@pytest.mark.usefixtures("no_registered_classes")
def test_a_worker_that_is_ended_in_the_middle_of_a_call_leaves_it_in_doubt(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "paying.py").write_text(PAYING)
    ledger = tmp_path / "ledger"
    batch = load_batch(f"{tmp_path / 'paying.py'}:batch")
    cases = [{"id": "ann", "input": {"who": "ann", "ledger": str(ledger)}, "expected": "ann"}]

    def run(**options: Any) -> Any:
        [job] = bench.batch(batch, cases=cases, runner="processes", workers=1, retries=1, **options).results
        return job

    late = run(job_timeout_s=1.5)
    assert (late.status, late.error["type"]) == ("failed", "JobTimeout")
    (tmp_path / "quick").touch()
    asked = run()
    assert (asked.status, asked.run_id) == ("failed", late.run_id)
    assert "Did it happen?" in asked.error["message"]
    assert ledger.read_text() == "ann\n"
    sys.modules.pop("paying", None)
