"""Batch tests over every storage: exact counts of what is run and shared, resumption, failures, budgets, bad input."""

from __future__ import annotations

import contextlib
import csv
import itertools
import math
import socket
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import wtb
from wtb.bench import Bench
from wtb.domain.errors import InvalidInput
from wtb.domain.variants import combinations, label, parse_label
from wtb.flow import Workflow
from wtb.infrastructure.runners.threads import ThreadRunner
from wtb.infrastructure.upkeep.garbage import SweptGarbage

CASES = [{"id": str(number), "input": {"q": number}, "expected": {"answer": "abc"}} for number in range(3)]
ANSWER = [wtb.ExactMatch("answer")]


class Tally(Counter[str]):
    """Counts what ran; what it counted so far is no part of the functions that count with it."""

    begun: threading.Event
    heard: threading.Event
    resumed: threading.Event
    ended: threading.Event

    def __wtb_fingerprint__(self) -> str:
        return "a tally"

    def noted(self, name: str, update: dict[str, Any]) -> dict[str, Any]:
        self[name] += 1
        return update


def chain(ran: Tally, nodes: str = "abc", variants: int = 2, **options: Any) -> Workflow:
    """A chain of nodes that each append their name, with variants that append another one."""
    flow = Workflow("chain")

    def make(name: str) -> Any:
        def node(state: Any) -> dict[str, Any]:
            ran[name] += 1
            return {"answer": state.get("answer", "") + name}

        return node

    for position, name in enumerate(nodes):
        flow.add_node(name, make(name), start=position == 0, **options)
        for number in range(1, variants + 1):
            flow.add_variant(name, f"{name}{number}", make(f"{name}{number}"))
    for one, other in itertools.pairwise(nodes):
        flow.edge(one, other)
    return flow


def answers(result: Any) -> dict[tuple[str, str, int], Any]:
    return {(each.combination, each.case_id, each.repeat): each.state for each in result.results}


def test_a_shared_beginning_runs_once_for_each_case(bench: Bench) -> None:
    ran = Tally()
    result = bench.batch(chain(ran), cases=CASES, evaluators=ANSWER, workers=4)
    assert (result.status, len(result.results)) == ("completed", 27 * 3)
    assert ran.total() == 39 * 3, "3 + 9 + 27 node runs a case, not 81"
    assert result.sharing == {"executed": 39 * 3, "shared": 42 * 3, "not_shareable": {}}
    assert {each.scores["exact_match"] for each in result.results if each.combination == "baseline"} == {1.0}


def test_sharing_changes_nothing_but_the_work(bench: Bench) -> None:
    shared = answers(bench.batch(chain(Tally()), name="shared", cases=CASES, evaluators=ANSWER))
    alone = bench.batch(chain(Tally()), name="alone", cases=CASES, evaluators=ANSWER, share=False)
    assert answers(alone) == shared
    assert alone.sharing == {"executed": 81 * 3, "shared": 0, "not_shareable": {}}


def test_repeats_are_runs_of_their_own(bench: Bench) -> None:
    ran = Tally()
    result = bench.batch(chain(ran, "a", 1), cases=CASES, evaluators=ANSWER, repeats=3)
    assert (len(result.results), ran) == (18, {"a": 9, "a1": 9})


def test_running_it_again_runs_nothing_and_what_is_new_only_what_is_new(bench: Bench) -> None:
    ran = Tally()
    flow = chain(ran, "ab", 1)
    bench.batch(flow, cases=CASES[:2], evaluators=ANSWER)
    assert ran.total() == 6 * 2
    bench.batch(flow, cases=CASES[:2], evaluators=ANSWER)
    assert ran.total() == 6 * 2
    bench.batch(flow, cases=CASES, evaluators=ANSWER)
    assert ran.total() == 6 * 3, "a case more: its own node runs"
    flow.add_variant("b", "b9", chain(ran, "b", 0).definition().nodes[0].function)
    result = bench.batch(flow, cases=CASES, evaluators=ANSWER)
    assert ran.total() == 6 * 3 + 2 * 3, "a variant of the last node: run once after each of two beginnings"
    assert len(result.results) == 6 * 3


def test_reads_say_what_a_node_depends_on(bench: Bench) -> None:
    ran = Tally()
    flow = Workflow("reads")
    flow.add_node("noise", lambda state: {"noise": 1}, start=True)
    flow.add_variant("noise", "other", lambda state: {"noise": 2})
    flow.add_node("answer", lambda state: ran.noted("answer", {"answer": state["q"]}), reads=["q"])
    flow.edge("noise", "answer")
    bench.batch(flow, cases=CASES, evaluators=ANSWER)
    assert ran["answer"] == 3, "the two beginnings differ only in what it does not read"


def test_loops_diamonds_and_conditions_share_too(bench: Bench) -> None:
    ran = Tally()
    flow = Workflow("shapes")
    flow.add_node("start", lambda state: {"n": 0}, start=True)
    flow.add_node("loop", lambda state: ran.noted("loop", {"n": state["n"] + 1}))
    for name in ("left", "right"):
        flow.add_node(name, lambda state, name=name: ran.noted(name, {name: state["n"]}))
    flow.add_node("end", lambda state: ran.noted("end", {"answer": f"{state['left']}{state['right']}"}))
    flow.add_variant("end", "other", lambda state: ran.noted("other", {"answer": "abc"}))
    flow.edge("start", "loop")
    flow.edge("loop", "loop", when="n < 3")
    flow.edge("loop", "fan", otherwise=True)
    flow.add_node("fan", lambda state: None)
    flow.edge("fan", "left")
    flow.edge("fan", "right")
    flow.edge(["left", "right"], "end")
    result = bench.batch(flow, cases=CASES, evaluators=ANSWER, workers=4)
    assert result.status == "completed"
    assert ran == {"loop": 9, "left": 3, "right": 3, "end": 3, "other": 3}


def shape_of(kind: str, ran: Tally) -> Workflow:
    """A workflow whose nodes have two implementations each, except `start` and `fan`."""
    flow = Workflow(kind)

    def add(name: str, update: Any, *, variants: bool = True, **options: Any) -> None:
        def make(label: str) -> Any:
            return lambda state: ran.noted(name, update(state, label))

        flow.add_node(name, make(name), **options)
        if variants:
            flow.add_variant(name, "other", make(f"other {name}"))

    match kind:
        case "diamond":
            add("fan", lambda state, label: {}, variants=False, start=True)
            add("left", lambda state, label: {"left": label})
            add("right", lambda state, label: {"right": label})
            add("join", lambda state, label: {"join": label})
            flow.edge("fan", "left").edge("fan", "right").edge(["left", "right"], "join")
        case "loop":
            add("start", lambda state, label: {"n": 0}, variants=False, start=True)
            add("body", lambda state, label: {"n": state["n"] + 1, "body": label})
            add("end", lambda state, label: {"end": label})
            flow.edge("start", "body").edge("body", "body", when="n < 3").edge("body", "end", otherwise=True)
        case "condition":
            add("ask", lambda state, label: {"topic": label}, start=True)
            add("this", lambda state, label: {"this": label})
            add("that", lambda state, label: {"that": label})
            flow.edge("ask", "this", when="topic == 'ask'").edge("ask", "that", otherwise=True)
        case "reads":
            add("noise", lambda state, label: {"noise": label}, start=True)
            add("middle", lambda state, label: {"middle": [state["q"], label]}, reads=["q"])
            add("end", lambda state, label: {"end": label})
            flow.edge("noise", "middle").edge("middle", "end")
    return flow


@pytest.mark.parametrize(
    ("kind", "each", "without"),
    [
        ("diamond", {"fan": 1, "left": 2, "right": 2, "join": 8}, 8 * 4),
        ("loop", {"start": 1, "body": 2 * 3, "end": 4}, 4 * 5),
        ("condition", {"ask": 2, "this": 2, "that": 2}, 8 * 2),
        ("reads", {"noise": 2, "middle": 2, "end": 8}, 8 * 3),
    ],
)
def test_every_shape_executes_exactly_what_is_distinct(
    bench: Bench, kind: str, each: dict[str, int], without: int
) -> None:
    ran = Tally()
    result = bench.batch(shape_of(kind, ran), cases=CASES, evaluators=[wtb.Steps()], workers=4)
    assert result.status == "completed"
    assert ran == {name: 3 * times for name, times in each.items()}
    executed = 3 * sum(each.values())
    assert result.sharing == {"executed": executed, "shared": 3 * without - executed, "not_shareable": {}}


def test_a_change_of_an_edge_a_reducer_or_the_seed_runs_the_jobs_anew(bench: Bench) -> None:
    ran = Tally()

    def flow(limit: int = 1, *, reducer: Any = wtb.append) -> Workflow:
        made = Workflow("edited")
        made.add_node("count", lambda state: ran.noted("count", {"n": state.get("n", 0) + 1, "log": [1]}), start=True)
        made.edge("count", "count", when=f"n < {limit}").edge("count", wtb.END, otherwise=True)
        made.reducer("log", reducer)
        return made

    def batch(flow: Workflow, seed: int = 0) -> list[Any]:
        found = bench.batch(flow, cases=CASES[:1], evaluators=[wtb.Steps()], seed=seed).results
        return [each.state for each in found]

    assert batch(flow()) == batch(flow()) == [{"q": 0, "n": 1, "log": [1]}]
    assert ran["count"] == 1
    assert batch(flow(limit=2)) == [{"q": 0, "n": 2, "log": [1, 1]}]
    assert ran["count"] == 2, "the first visit is the same"
    assert batch(flow(limit=2, reducer=lambda old, new: [*new, "!", *(old or [])])) != batch(flow(limit=2))
    assert ran["count"] == 2, "reducers run again on what is shared"
    batch(flow(limit=2), seed=1)
    assert ran["count"] == 4, "a node may ask for the seed"


def test_an_evaluator_more_scores_the_runs_that_are_there(bench: Bench) -> None:
    flow = chain(Tally(), "ab", 1)
    before = bench.batch(flow, cases=CASES, evaluators=ANSWER)
    after = bench.batch(flow, cases=CASES, evaluators=[*ANSWER, wtb.Steps()])
    assert {each.run_id for each in after.results} == {each.run_id for each in before.results}
    assert {each.scores["steps"] for each in after.results} == {2.0}
    assert (before.sharing["executed"], after.sharing["executed"]) == (18, 0), "each run of the batch counts its own"


def test_failed_calls_count_for_everybody_who_shares_the_result(bench: Bench) -> None:
    def broken() -> None:
        raise OSError("no network")

    ask = wtb.tool(name="batch-broken", effects="none")(broken)

    def first(state: Any, ctx: Any) -> None:
        with contextlib.suppress(OSError):
            ctx.tool(ask)

    flow = Workflow("errors")
    flow.add_node("first", first, start=True)
    flow.add_node("last", lambda state: None)
    flow.add_variant("last", "other", lambda state: {})
    flow.edge("first", "last")
    result = bench.batch(flow, cases=CASES, evaluators=[wtb.ToolErrors()])
    assert (result.sharing["executed"], {each.scores["tool_errors"] for each in result.results}) == (9, {1.0})


def test_what_cannot_be_looked_into_is_named_and_shared_while_the_code_around_it_is_the_same(bench: Bench) -> None:
    ran, lock, client = Tally(), threading.Lock(), socket.socket()
    client.close()

    def first(state: Any) -> dict[str, Any]:
        with lock:
            return ran.noted("first", {"fileno": client.fileno()})

    flow = Workflow("unseen")
    flow.add_node("first", first, start=True)
    flow.add_node("last", lambda state: None)
    flow.add_variant("last", "other", lambda state: {})
    flow.edge("first", "last")
    for name in ("one", "two"):
        (why,) = bench.plan(flow, name=name, cases=CASES[:1], evaluators=[wtb.Steps()]).coarse["first"]
        assert why.startswith("a socket.socket cannot be looked into: the code of ")
        bench.batch(flow, name=name, cases=CASES[:1], evaluators=[wtb.Steps()])
        assert ran["first"] == 1


def test_a_batch_that_somebody_cancels_begins_no_more_jobs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wtb.application.batches.attempt._CANCELLED_S", 0.0)
    ran = Tally()
    ran.begun, ran.heard = threading.Event(), threading.Event()

    def slow(state: Any) -> dict[str, Any]:
        if ran["slow"] == 0:
            ran.begun.set()
            assert ran.heard.wait(60)
        return ran.noted("slow", {})

    def told(progress: Any) -> None:
        if progress.is_cancelled:
            ran.heard.set()

    def cancel() -> None:
        assert ran.begun.wait(60)
        bench.cancel_batch("cancelled")

    flow = Workflow("slow")
    flow.add_node("slow", slow, start=True)
    options: dict[str, Any] = {"name": "cancelled", "cases": CASES, "evaluators": [wtb.Steps()], "workers": 1}
    somebody = threading.Thread(target=cancel)
    somebody.start()
    assert bench.batch(flow, **options, told=told).status == "cancelled"
    somebody.join()
    assert ran["slow"] == 1, "what has begun is finished"
    again = bench.batch(flow, **options)
    assert (again.status, ran["slow"]) == ("completed", 3), again.batch.record.changes


def test_a_batch_that_is_resumed_while_a_job_from_before_its_cancellation_ends_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wtb.application.batches.attempt._CANCELLED_S", 0.0)
    monkeypatch.setattr("wtb.application.batches.attempt._LOOK_S", 0.001)
    ran = Tally()
    ran.begun, ran.heard, ran.resumed, ran.ended = (threading.Event() for _ in range(4))

    def slow(state: Any) -> dict[str, Any]:
        if ran["slow"] == 0:
            ran.noted("slow", {})
            ran.begun.set()
            assert ran.resumed.wait(60)
        else:
            ran.resumed.set()
            assert ran.ended.wait(60)
        return ran.noted("slow", {})

    def told(progress: Any) -> None:
        if progress.is_cancelled:
            ran.heard.set()

    flow = Workflow("slow")
    flow.add_node("slow", slow, start=True)
    cases = [{"id": str(number), "input": {"q": number}} for number in range(12)]
    options: dict[str, Any] = {"name": "resumed", "cases": cases, "evaluators": [wtb.Steps()], "workers": 1}
    with Bench(folder=tmp_path / "wtb") as one, Bench(folder=tmp_path / "wtb") as other:

        def first() -> None:
            one.batch(flow, **options, told=told)
            ran.ended.set()

        thread = threading.Thread(target=first)
        thread.start()
        assert ran.begun.wait(60)
        other.cancel_batch("resumed")
        assert ran.heard.wait(60)
        result = other.batch(flow, **options)
        thread.join()
        assert (result.status, len(result.results)) == ("completed", 12)
        assert other.get_batch("resumed").status == "completed"


def test_two_benches_at_the_same_batch_divide_its_jobs(tmp_path: Path) -> None:
    ran, guard = Tally(), threading.Lock()

    def slow(state: Any) -> dict[str, Any]:
        with guard:
            ran[f"{state['q']}"] += 1
        threading.Event().wait(0.01)
        return {"answer": "abc"}

    flow = Workflow("divided")
    flow.add_node("slow", slow, start=True, cache=False)
    cases = [{"id": str(number), "input": {"q": number}} for number in range(30)]
    found: list[Any] = []
    with Bench(folder=tmp_path / "wtb") as one, Bench(folder=tmp_path / "wtb") as other:
        threads = [
            threading.Thread(
                target=lambda bench=bench: found.append(bench.batch(flow, cases=cases, evaluators=[wtb.Steps()]))
            )
            for bench in (one, other)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [(result.id, result.status, len(result.results)) for result in found] == [
            (found[0].id, "completed", 30)
        ] * 2
        assert len(one.list_runs(limit=100)) == 30
    assert set(ran.values()) == {1}


def test_files_come_with_a_shared_result(bench: Bench) -> None:
    flow = Workflow("files")

    def write(state: Any, ctx: Any) -> None:
        (ctx.workspace / "notes").write_text(f"for {state['q']}")

    flow.add_node("write", write, start=True)
    flow.add_node("read", lambda state, ctx: {"answer": (ctx.workspace / "notes").read_text()})
    flow.add_variant("read", "loud", lambda state, ctx: {"answer": (ctx.workspace / "notes").read_text().upper()})
    flow.edge("write", "read")
    result = bench.batch(flow, cases=CASES, evaluators=ANSWER)
    assert result.sharing["executed"] == 3 + 6
    assert {each.state["answer"] for each in result.results} == {
        f"{text} {number}" for text in ("for", "FOR") for number in range(3)
    }


@pytest.mark.parametrize("why", ["cache", "ask", "external"])
def test_what_must_not_be_shared_is_not_and_the_result_says_why(bench: Bench, why: str) -> None:
    ran = Tally()
    send = wtb.tool(name=f"batch-send-{why}")(lambda: ran.update(["sent"]))

    def first(state: Any, ctx: Any) -> None:
        ran["first"] += 1
        if why == "external":
            ctx.tool(send)
        if why == "ask":
            ctx.ask("Really?")

    flow = Workflow("unshared")
    flow.add_node("first", first, start=True, cache=why != "cache")
    flow.add_node("answer", lambda state: {"answer": "abc"})
    flow.add_variant("answer", "other", lambda state: {"answer": "x"})
    flow.edge("first", "answer")
    result = bench.batch(flow, cases=CASES[:1], evaluators=ANSWER, workers=1)
    assert ran["first"] == 2
    if why == "ask":
        assert result.status == "completed_with_errors"
        assert "a batch has nobody to answer" in str(result.results[0].error)
    else:
        assert list(result.sharing["not_shareable"]) == ["first"]


def test_a_failure_is_recorded_and_the_batch_goes_on(bench: Bench) -> None:
    ran = Tally()

    def fragile(state: Any) -> dict[str, Any]:
        ran["fragile"] += 1
        if state["q"] == 1:
            raise ValueError("no answer for 1")
        return {"answer": "abc"}

    flow = Workflow("failing")
    flow.add_node("fragile", fragile, start=True)
    flow.add_node("end", lambda state: None)
    flow.add_variant("end", "other", lambda state: {})
    flow.edge("fragile", "end")
    result = bench.batch(flow, cases=CASES, evaluators=ANSWER)
    assert result.status == "completed_with_errors"
    failed = [each for each in result.results if each.error]
    assert {(each.case_id, each.error["type"]) for each in failed if each.error} == {("1", "ValueError")}
    assert "no answer for 1" in str(failed[0].error)
    assert ran["fragile"] == 3, "a failure is shared within the attempt"
    summary = result.matrix[0].summaries["exact_match"]
    assert summary.errors == 1
    assert summary.mean == pytest.approx(2 / 3), "an error scores worst"
    bench.batch(flow, cases=CASES, evaluators=ANSWER)
    assert ran["fragile"] == 4, "only what failed is tried again"


def test_a_flaky_job_is_tried_again_when_that_is_asked_for(bench: Bench) -> None:
    ran = Tally()

    def flaky(state: Any) -> dict[str, Any]:
        ran["flaky"] += 1
        if ran["flaky"] == 1:
            raise OSError("not yet")
        return {"answer": "abc"}

    flow = Workflow("flaky")
    flow.add_node("flaky", flaky, start=True)
    assert bench.batch(flow, cases=CASES[:1], evaluators=ANSWER, retries=1).status == "completed"


def test_a_budget_stops_new_work_and_the_batch_goes_on_later(bench: Bench) -> None:
    flow = Workflow("dear")

    def node(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.usage(model="m", input_tokens=10, cost_usd=1.0)
        return {"answer": "abc"}

    flow.add_node("node", node, start=True)
    cases = [{"id": str(number), "input": {"q": number}, "expected": "abc"} for number in range(10)]
    result = bench.batch(flow, cases=cases, evaluators=[*ANSWER, wtb.Cost()], budget={"usd": 3}, workers=1)
    assert (result.status, len(result.results)) == ("cancelled", 3)
    result = bench.batch(flow, cases=cases, evaluators=[*ANSWER, wtb.Cost()])
    assert (result.status, len(result.results)) == ("completed", 10)
    assert result.matrix[0].summaries["cost_usd"].mean == 1.0


def test_a_batch_that_is_stopped_goes_on_where_it_was(bench: Bench) -> None:
    ran = Tally()
    stop = threading.Event()

    def node(state: Any) -> dict[str, Any]:
        ran["node"] += 1
        if ran["node"] == 4:
            stop.set()
        return {"answer": "abc"}

    flow = Workflow("stopped")
    flow.add_node("node", node, start=True)
    cases = [{"id": str(number), "input": {"q": number}, "expected": "abc"} for number in range(20)]
    assert bench.batch(flow, cases=cases, evaluators=ANSWER, workers=1, stop=stop).status == "cancelled"
    assert bench.batch(flow, cases=cases, evaluators=ANSWER, workers=1).status == "completed"
    assert ran["node"] == 20


def test_evaluators_that_fail_or_give_no_number_are_recorded(bench: Bench) -> None:
    class Bad:
        name = "bad"

        def evaluate(self, context: Any) -> float:
            raise KeyError("nothing")

    class NaN:
        name = "nan"

        async def evaluate(self, context: Any) -> float:
            return float("nan")

    class Slow:
        name = "slow"

        async def evaluate(self, context: Any) -> bool:
            return bool(context.expected["answer"] == "abc")

    flow = chain(Tally(), "a", 0)
    result = bench.batch(flow, cases=CASES[:1], evaluators=[Bad(), NaN(), Slow()])
    scores = result.results[0].scores
    assert scores["slow"] == 1.0
    assert scores["bad"]["error"].startswith("evaluator bad: KeyError: 'nothing' (")
    assert "test_batch.py:" in scores["bad"]["error"], "where the user's own code raised it"
    assert scores["bad"]["error"].endswith(", in evaluate)")
    assert scores["nan"]["error"] == "evaluator nan: it gave nan, which is not a score; return a finite number"
    assert result.matrix[0].summaries["bad"].errors == 1
    assert result.status == "completed_with_errors"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"cases": []}, "there are no cases"),
        ({"cases": [{"input": {}}]}, "case 1 has no id"),
        ({"cases": [{"id": "a", "input": {}}, {"id": "a", "input": {}}]}, "case 2 has the same id 'a' as case 1"),
        ({"cases": [{"id": "a", "input": 5}]}, "case 1: input must be a mapping of keys to values, not 5"),
        ({"cases": [{"id": "a", "input": {}, "expect": 1}]}, "case 1 has an unknown field expect"),
        ({"cases": "missing.jsonl"}, r"there is no file /.*missing\.jsonl with cases"),
        ({"variants": "some"}, "variants='some': give all"),
        ({"variants": [{"a": "zzz"}]}, "node 'a' has no variant 'zzz'"),
        ({"baseline": {"x": "y"}}, "there is no node 'x'"),
        ({"evaluators": []}, "a batch needs at least one evaluator"),
        ({"evaluators": [wtb.Latency]}, r"Latency is a class; make one: Latency\(…\)"),
        (
            {"evaluators": ["contains"]},
            r"'contains' needs a key of the state: 'contains:KEY', or wtb\.Contains\('KEY', …\)",
        ),
        ({"evaluators": [lambda context: 1]}, "a lambda has no name for its metric; write a function"),
        ({"baseline": "polite"}, r"baseline='polite' is not a combination; give \{'NODE': 'VARIANT'\}"),
        ({"evaluators": [wtb.Latency(), wtb.Latency()]}, "two evaluators are called 'latency_s'"),
        ({"evaluators": [object()]}, "object is not an evaluator"),
        ({"repeats": 0}, "repeats must be a whole number of at least 1, not 0"),
        ({"retries": -1}, "retries must be a whole number of at least 0, not -1"),
        ({"workers": 0}, "workers must be a whole number from 1 to 256, not 0"),
        ({"workers": "two"}, "workers must be a whole number from 1 to 256, not 'two'"),
        ({"job_timeout_s": "x"}, "job_timeout_s must be a finite number above 0, not 'x'"),
        ({"job_timeout_s": math.inf}, "job_timeout_s must be a finite number above 0, not inf"),
        ({"runner": ThreadRunner}, "give the name of a runner, such as 'processes'"),
        ({"runner": "tasks"}, "there is no runner 'tasks'; there are processes, ray, threads; name your own"),
        ({"budget": {"eur": 5}}, "budget={'eur': 5}: give a mapping such as {'usd': 5}, with any of usd, tokens, s"),
        ({"budget": {"usd": -1}}, "budget: usd must be 0 or more, not -1"),
        ({"cases": [{"id": "a", "input": {}}]}, r"case 1 \(a\): expected is missing; ExactMatch needs it"),
        ({"evaluators": ["latency_s", "nope"]}, "there is no evaluator 'nope'; known names: latency_s, cost_usd,"),
        ({"evaluators": "latency_s"}, "evaluators must be a list"),
    ],
)
def test_bad_input_is_told_before_anything_runs(bench: Bench, options: dict[str, Any], told: str) -> None:
    ran = Tally()
    given = {"cases": CASES, "evaluators": ANSWER, **options}
    with pytest.raises(InvalidInput, match=told):
        bench.batch(chain(ran, "a", 1), **given)
    assert (ran.total(), bench.list_runs(), bench.list_batches()) == (0, (), ())


def test_a_workflow_that_cannot_run_is_told_before_anything_runs(bench: Bench) -> None:
    ran = Tally()
    flow = chain(ran, "a", 1)
    flow.add_variant("a", "two words", config={"x": 1})
    with pytest.raises(InvalidInput, match=r"variant 'two words' of node 'a': choose another name.* white space"):
        bench.batch(flow, cases=CASES, evaluators=ANSWER)
    assert (ran.total(), bench.list_runs(), bench.list_batches()) == (0, (), ())


def test_cases_come_from_files(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text("id,input.q,expected.answer,tags\n1,x,a,easy new\n2,y,b,\n")
    (tmp_path / "cases.jsonl").write_text('{"id": "1", "input": {"q": "x"}}\n\n{"id": "2", "input": {\n')
    flow = chain(Tally(), "a", 0)
    result = bench.batch(flow, cases=tmp_path / "cases.csv", evaluators=ANSWER)
    assert [each.scores["exact_match"] for each in result.results] == [1.0, 0.0]
    with pytest.raises(InvalidInput, match=r"cases\.jsonl line 3 is not valid JSON"):
        bench.batch(flow, cases=tmp_path / "cases.jsonl", evaluators=ANSWER)


def test_combinations_are_chosen_as_is_said() -> None:
    choices = {"a": ["1", "2"], "b": ["1"], "c": ["1", "2", "3"]}
    assert len(combinations(choices, "all", baseline={})) == 24
    assert [label(each) for each in combinations(choices, "one_at_a_time", baseline={"b": "1"})][:3] == [
        "b=1",
        "a=1, b=1",
        "a=2, b=1",
    ]
    assert len(combinations(choices, "random:5", baseline={})) in (5, 6)
    pairs = combinations(choices, "pairwise", baseline={})
    assert len(pairs) < 16
    for (one, first), (other, second) in itertools.combinations(
        [(node, name) for node, names in choices.items() for name in ("baseline", *names)], 2
    ):
        if one != other:
            assert any((each.get(one, "baseline"), each.get(other, "baseline")) == (first, second) for each in pairs), (
                one,
                first,
                other,
                second,
            )
    assert parse_label("a=1, b=2") == {"a": "1", "b": "2"}
    assert parse_label("baseline") == {}
    with pytest.raises(InvalidInput, match="is not a combination"):
        parse_label("a")


def test_pairwise_with_one_varied_node_takes_every_variant() -> None:
    found = combinations({"a": ["1", "2"]}, "pairwise", baseline={})
    assert [label(each) for each in found] == ["baseline", "a=1", "a=2"]
    assert combinations({}, "pairwise", baseline={}) == [{}]


def test_two_processes_share_what_they_need_at_the_same_time(tmp_path: Path) -> None:
    """Two benches on one database, as two processes have them: a result that one makes the other waits for."""
    ran = Tally()
    ran.begun = begun = threading.Event()

    def slow(state: Any) -> dict[str, Any]:
        ran["slow"] += 1
        ran.begun.set()
        threading.Event().wait(0.3)
        return {"answer": "abc"}

    flow = Workflow("slow")
    flow.add_node("slow", slow, start=True)
    flow.add_node("end", lambda state: None)
    flow.edge("slow", "end")
    with Bench(folder=tmp_path / "wtb") as one, Bench(folder=tmp_path / "wtb") as other:
        options: dict[str, Any] = {"cases": CASES[:1], "evaluators": ANSWER}
        first = threading.Thread(target=lambda: one.batch(flow, name="one", **options))
        first.start()
        assert begun.wait(60)
        result = other.batch(flow, name="other", **options)
        first.join()
    assert (result.status, ran["slow"]) == ("completed", 1)


def test_verdicts_are_those_of_paired_statistics(bench: Bench) -> None:
    flow = Workflow("verdicts")
    flow.add_node("answer", lambda state: {"answer": "abc" if state["q"] % 2 else "x"}, start=True)
    flow.add_variant("answer", "better", lambda state: {"answer": "abc"})
    flow.add_variant("answer", "same", lambda state: {"answer": "abc" if state["q"] % 2 else "y"})
    cases = [{"id": str(number), "input": {"q": number}, "expected": {"answer": "abc"}} for number in range(40)]
    result = bench.batch(flow, cases=cases, evaluators=ANSWER)
    found = {each.comparison.candidate: each.finding for each in result.compare("exact_match")}
    assert found == {"answer=better": "better", "answer=same": "no evidence"}
    assert result.pareto("exact_match") == ("answer=better",)
    assert len(result.different("exact_match")) == 20
    with pytest.raises(InvalidInput, match="there is no metric 'f1'"):
        result.compare("f1")


def test_results_are_a_table_for_files_and_for_pandas(bench: Bench, tmp_path: Path) -> None:
    flow = Workflow("table")

    def answer(state: Any) -> dict[str, Any]:
        return {"answer": {0: "abc", 1: "x"}[state["q"]]}

    flow.add_node("answer", answer, start=True)
    result = bench.batch(flow, cases=CASES, evaluators=ANSWER)
    result.to_csv(tmp_path / "table.csv")
    with (tmp_path / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    frame = result.to_pandas()
    assert list(frame.columns) == list(rows[0])
    assert list(frame["run"]) == [row["run"] for row in rows] == [each.run_id for each in result.results]
    scores = frame.set_index("case")["exact_match"]
    assert (scores["0"], scores["1"], math.isnan(scores["2"])) == (1.0, 0.0, True)
    assert [(row["case"], row["status"], row["error"]) for row in rows] == [
        ("0", "completed", ""),
        ("1", "completed", ""),
        ("2", "failed", "KeyError: 2"),
    ]


def test_a_sweep_keeps_the_files_of_results_that_can_still_be_shared(bench: Bench) -> None:
    ran = Tally()
    flow = Workflow("swept")

    def write(state: Any, ctx: Any) -> dict[str, Any]:
        (ctx.workspace / "notes").write_text("kept" * 100)
        return ran.noted("write", {})

    flow.add_node("write", write, start=True)
    flow.add_node("read", lambda state, ctx: {"answer": (ctx.workspace / "notes").read_text()[:4]})
    flow.edge("write", "read")
    cases = [{"id": "1", "input": {"q": 1}, "expected": {"answer": "kept"}}]
    bench.batch(flow, name="first", cases=cases, evaluators=ANSWER)
    for run in bench.list_runs():
        run.delete()
    services: Any = bench.services
    garbage = SweptGarbage(services.storage, services.objects, codec=services.codec, clock=services.clock)
    garbage.sweep(timedelta(0))
    result = bench.batch(flow, name="second", cases=cases, evaluators=ANSWER)
    assert (result.status, ran["write"], result.results[0].scores["exact_match"]) == ("completed", 1, 1.0)


@pytest.mark.parametrize("workers", [-1, 10**30])
def test_more_workers_than_a_machine_can_hold_are_refused(workers: int) -> None:
    with wtb.Bench("memory://") as bench, pytest.raises(InvalidInput, match="workers must be a whole number from 1"):
        bench.batch(chain(Tally()), cases=CASES, evaluators=ANSWER, workers=workers)
