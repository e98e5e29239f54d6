"""Scores without running again: evaluators that come later or change, corrected answers, `bench.evaluate`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pytest

import wtb
from wtb.bench import Bench
from wtb.domain.errors import InvalidInput
from wtb.flow import Workflow

CASES = [{"id": str(number), "input": {"q": number}, "expected": str(number % 2)} for number in range(4)]


class Log(list[str]):
    """What ran; no part of the functions that write into it."""

    def __wtb_fingerprint__(self) -> str:
        return "a log"


def parity(ran: Log) -> Workflow:
    """A workflow whose node may not be shared: running it again would be seen."""
    flow = Workflow("parity")

    def answer(state: Any) -> dict[str, Any]:
        ran.append(str(state["q"]))
        return {"answer": str(state["q"] % 2)}

    flow.add_node("answer", answer, start=True, cache=False)
    return flow


@dataclass(frozen=True)
class Share:
    """Scores what it is told to."""

    value: float
    name: str = "share"

    def evaluate(self, context: Any) -> float:
        return self.value


@dataclass(frozen=True)
class Wanted:
    """Says whether the answer is what was expected, and the case is not tagged as bad."""

    name: str = "wanted"

    async def evaluate(self, context: Any) -> bool:
        return bool(context.state["answer"] == context.expected and "bad" not in context.case.tags)


@dataclass(frozen=True)
class Asked:
    """Gives back the number that was asked about."""

    name: str = "asked"

    def evaluate(self, context: Any) -> float:
        return float(context.case.input["q"])


def scores(result: Any, metric: str) -> list[Any]:
    return [each.scores.get(metric) for each in sorted(result.results, key=lambda each: str(each.case_id))]


def test_a_new_evaluator_scores_what_has_run(bench: Bench) -> None:
    ran = Log()
    first = bench.batch(parity(ran), cases=CASES, evaluators=[Share(0.5)])
    result = bench.batch(parity(ran), cases=CASES, evaluators=[Share(0.5), Wanted()])
    assert (len(ran), result.status) == (4, "completed")
    assert (scores(result, "share"), scores(result, "wanted")) == ([0.5] * 4, [1.0] * 4)
    assert {each.run_id for each in result.results} == {each.run_id for each in first.results}


def test_a_changed_evaluator_and_a_corrected_answer_score_anew(bench: Bench) -> None:
    ran = Log()
    bench.batch(parity(ran), cases=CASES, evaluators=[Share(0.5), Wanted()])
    corrected = [{**CASES[0], "expected": "odd"}, {**CASES[1], "tags": ["bad"]}, *CASES[2:]]
    result = bench.batch(parity(ran), cases=corrected, evaluators=[Share(0.75), Wanted()])
    assert (scores(result, "share"), scores(result, "wanted")) == ([0.75] * 4, [0.0, 0.0, 1.0, 1.0])
    assert len(ran) == 4


def test_a_job_whose_run_was_deleted_is_run_again_to_be_scored(bench: Bench) -> None:
    ran = Log()
    result = bench.batch(parity(ran), cases=CASES, evaluators=[Share(0.5)])
    result.results[0].run.delete()
    again = bench.batch(parity(ran), cases=CASES, evaluators=[Share(0.5), Wanted()])
    assert (len(ran), again.status, scores(again, "wanted")) == (5, "completed", [1.0] * 4)


def test_a_batch_is_evaluated_afterwards_with_what_its_cases_expected(bench: Bench) -> None:
    ran = Log()
    bench.batch(parity(ran), cases=CASES, evaluators=[Share(0.5)])
    result = bench.evaluate("parity", [Wanted(), "steps"])
    assert list(result.metrics) == ["share", "wanted", "steps"]
    assert (scores(result, "wanted"), scores(result, "steps")) == ([1.0] * 4, [1.0] * 4)
    assert bench.get_batch("parity").matrix[0].summaries["wanted"].mean == 1.0
    asked = bench.evaluate(result, [Asked()])
    assert scores(asked, "asked") == [0.0, 1.0, 2.0, 3.0], "the input is what the run began with"
    with pytest.raises(InvalidInput, match=r"\(0\): expected.other is missing; ExactMatch needs it"):
        bench.evaluate(result, [wtb.ExactMatch("other")], cases=[{**case, "expected": {}} for case in CASES])
    others = [{**case, "expected": "0"} for case in CASES]
    assert scores(bench.evaluate(result, [Wanted()], cases=others), "wanted") == [1.0, 0.0, 1.0, 0.0]
    with pytest.raises(InvalidInput, match="case '1' of batch 'parity' is not among the cases"):
        bench.evaluate(result, [Wanted()], cases=CASES[:1])
    assert len(ran) == 4


def test_a_narrower_look_is_evaluated_as_it_is_seen(bench: Bench) -> None:
    bench.batch(parity(Log()), cases=CASES, evaluators=[Share(0.5)])
    bench.batch(parity(Log()), cases=CASES[:2], evaluators=[Share(0.5)])
    assert scores(bench.evaluate("parity", [Wanted()]), "wanted") == [1.0, 1.0]


def test_a_run_is_evaluated_alone(bench: Bench) -> None:
    ran = Log()
    result = bench.batch(parity(ran), cases=CASES, evaluators=[Share(0.5)])
    assert bench.evaluate(result.results[0].run, [Wanted()]) == {"wanted": 1.0}, "the case is that of the batch"
    run = bench.run(parity(ran), {"q": 3})
    assert bench.evaluate(run, [Wanted()], expected="1") == {"wanted": 1.0}
    found = bench.evaluate(run.id, [wtb.ExactMatch("answer"), "latency_s"])
    assert found["exact_match"] == {
        "error": "evaluator exact_match: InvalidInput: expected is missing; ExactMatch needs it"
    }
    assert found["latency_s"] > 0


def test_weights_make_an_overall_score_that_is_compared_like_any_other(bench: Bench) -> None:
    flow = parity(Log())
    flow.add_variant("answer", "wrong", lambda state: {"answer": "?"})
    evaluators, weights = [Wanted(), wtb.Steps()], {"wanted": 3, "steps": 1}
    result = bench.batch(flow, cases=CASES, evaluators=evaluators, weights=weights)
    assert list(result.metrics) == ["wanted", "steps", "overall"]
    assert {(each.combination, each.scores["overall"]) for each in result.results} == {
        ("baseline", 0.75),
        ("answer=wrong", 0.0),
    }
    (verdict,) = result.compare("overall")
    assert verdict.comparison.difference == -0.75
    assert result.rows()[0]["overall"] == 0.75
    other = bench.get_batch("parity").weighted({"wanted": 1})
    assert other.matrix[0].summaries["overall"].mean == 1.0
    assert result.weights == bench.get_batch("parity").weights == weights


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        ({"speed": 1}, "weights: there is no metric 'speed'; there are wanted"),
        ({"wanted": 0}, "the weight of 'wanted' must be a positive number, not 0"),
    ],
)
def test_weights_that_make_no_score_are_refused(bench: Bench, weights: dict[str, float], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        bench.batch(parity(Log()), cases=CASES, evaluators=[Wanted()], weights=weights)
    assert bench.list_batches() == ()


def test_two_batches_are_compared_by_case_and_combination(bench: Bench) -> None:
    flow = parity(Log())
    flow.add_variant("answer", "wrong", lambda state: {"answer": "?"})
    cases = [{"id": str(number), "input": {"q": number}, "expected": str(number % 2)} for number in range(12)]
    before = bench.batch(flow, name="before", cases=cases[:10], evaluators=[Wanted(), wtb.Steps()])
    flow = Workflow("parity")
    flow.add_node("answer", lambda state: {"answer": "?"}, start=True)
    after = bench.batch(flow, name="after", cases=cases[2:], evaluators=[Wanted()])
    verdict, failed = after.compare(before=before)
    assert failed.comparison.metric.name == "failed"
    found = verdict.comparison
    assert (found.candidate, found.baseline, found.metric.name) == ("after:baseline", "before:baseline", "wanted")
    assert (verdict.finding, found.pairs, found.dropped, found.losses) == ("worse", 8, 4, 8)
    with pytest.raises(InvalidInput, match="before:baseline is the same on both sides"):
        before.compare(before=before)
    with pytest.raises(InvalidInput, match="there is no metric 'steps'; this batch has wanted"):
        after.compare("steps", before=before)


def test_more_jobs_at_a_time_than_cores_are_flagged(bench: Bench) -> None:
    cores = os.cpu_count() or 1
    options: dict[str, Any] = {"cases": CASES, "evaluators": [wtb.Latency()]}
    assert bench.batch(parity(Log()), **options, workers=cores + 1).crowding == (cores + 1, cores)
    assert bench.batch(parity(Log()), name="quiet", **options, workers=1).crowding is None


def test_on_ray_only_workers_that_had_jobs_count_as_jobs_at_a_time(bench: Bench) -> None:
    ran = bench.batch(parity(Log()), cases=CASES, evaluators=[wtb.Latency()])
    on_ray = ran.batch.noted(runner="ray", workers=50, cores=1)
    assert wtb.BatchResult(bench, on_ray, ran._all).crowding is None, "all jobs ran in this one process"


def test_what_cannot_be_evaluated_is_refused(bench: Bench) -> None:
    paused = bench.run(parity(Log()), {"q": 1}, break_before=["answer"])
    with pytest.raises(InvalidInput, match="is paused; only one that completed can be scored"):
        bench.evaluate(paused, [Wanted()])
    with pytest.raises(InvalidInput, match="name at least one evaluator"):
        bench.evaluate(paused, [])
    with pytest.raises(wtb.NotFound):
        bench.evaluate("nothing", [Wanted()])
