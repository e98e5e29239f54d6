"""Gates over real batches: errors never pass, baselines of several batches, and baselines that are deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import wtb
from tests.integration.quiz import CASES, batch, quiz
from wtb.bench import Bench
from wtb.bootstrap import bootstrap
from wtb.cli import main
from wtb.cli.views.batch_tables import print_measured_apart
from wtb.domain.errors import BaselineNotFound, InvalidInput
from wtb.flow import Workflow
from wtb.gate_text import said
from wtb.settings import load_settings
from wtb.testing.fakes import FakeClock


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench("memory://") as opened:
        yield opened


def bench_with(clock: FakeClock) -> Bench:
    bench = Bench("memory://")
    bench.services.close()
    bench.services = bootstrap(load_settings(url="memory://"), clock=clock)
    return bench


@pytest.mark.parametrize("metric", ["exact_match", "right"])
def test_a_candidate_that_raises_in_every_case_is_a_regression(bench: Bench, metric: str) -> None:
    batch(bench, quiz())
    bench.set_baseline("main", "quiz")
    batch(bench, quiz(raising=12))
    found = bench.gate("quiz", baseline="main", metric=metric)

    assert (found.gate.outcome, found.gate.reason) == ("regression", "more_errors")
    assert "12 cases fail only with the candidate, 0 only with the baseline: beyond chance" in said(found)


def test_an_evaluator_that_raises_in_every_case_is_a_regression(bench: Bench) -> None:
    batch(bench, quiz())
    bench.set_baseline("main", "quiz")
    batch(bench, quiz(), has_key=False)

    assert bench.gate("quiz", baseline="main", metric="right").gate.outcome == "regression"
    assert bench.gate("quiz", baseline="main", metric="exact_match").gate.outcome == "fine"


def test_a_single_error_is_inconclusive_unless_it_is_tolerated(bench: Bench) -> None:
    batch(bench, quiz())
    bench.set_baseline("main", "quiz")
    batch(bench, quiz(raising=1))
    found = bench.gate("quiz", baseline="main", metric="exact_match", max_drop=0.5)

    assert (found.gate.outcome, found.gate.reason) == ("inconclusive", "more_errors")
    assert bench.gate("quiz", baseline="main", metric="exact_match", max_errors=1).gate.outcome == "fine"


def test_a_candidate_that_is_surely_better_is_said_to_be_so(bench: Bench) -> None:
    batch(bench, quiz(wrong=12))
    bench.set_baseline("main", "quiz")
    batch(bench, quiz(wrong=0))
    text = said(bench.gate("quiz", baseline="main", metric="exact_match"))

    assert text.startswith("FINE")
    assert "it is better, by at least 0." in text
    assert "-0." not in text


def test_a_candidate_with_jobs_left_does_not_pass(bench: Bench) -> None:
    batch(bench, quiz())
    bench.set_baseline("main", "quiz")
    batch(bench, quiz(wrong=0), name="cut short", budget={"s": 0})
    found = bench.gate("cut short", baseline="main", metric="exact_match")

    assert (found.gate.outcome, found.gate.reason) == ("inconclusive", "nothing_to_compare")
    whole = batch(bench, quiz(), name="grown", cases=CASES[:8])
    assert bench.gate("grown", baseline="main", metric="exact_match").gate.outcome == "fine", "cases left out by choice"
    batch(bench, quiz(), name=whole.batch.name, budget={"s": 0})
    found = bench.gate("grown", baseline="main", metric="exact_match")
    assert (found.gate.outcome, found.gate.reason, found.gate.unfinished) == ("inconclusive", "unfinished", 4)


def test_a_baseline_of_several_batches_averages_their_runs(bench: Bench) -> None:
    batch(bench, quiz(wrong=6), name="monday", repeats=2)
    batch(
        bench,
        quiz(wrong=0),
        name="tuesday",
        cases=[*CASES, {"id": "new", "input": {"q": 0}, "expected": {"answer": 5}}],
    )
    bench.set_baseline("main", ["monday", "tuesday"])
    kept = bench.get_baseline("main")

    assert (kept.batch.record.repeats, len(kept.results), kept.cases[-1]) == (3, 12 * 2 + 13, "new")
    means = kept.table("exact_match").case_means("baseline")
    assert [means[case] for case in ("c0", "c11", "new")] == pytest.approx([1 / 3, 1, 0])
    found = bench.gate("tuesday", baseline="main", metric="exact_match")
    assert (found.comparison.pairs, found.comparison.wins) == (13, 6)
    assert found.comparison.difference == pytest.approx(6 * (2 / 3) / 13)


def test_batches_that_do_not_belong_together_make_no_baseline(bench: Bench) -> None:
    batch(bench, quiz(), name="one")
    other = Workflow("other")
    other.add_node("answer", lambda state: {"answer": 1}, start=True)
    batch(bench, other, name="two")

    for names, wrong in [
        (["one", "one"], "batch 'one' is named twice"),
        (["one", "two"], "these batches are of different workflows: other, quiz"),
        ([], "name at least one batch"),
    ]:
        with pytest.raises(InvalidInput, match=wrong):
            bench.set_baseline("main", names)


def test_a_deleted_baseline_is_gone_with_its_results_and_the_batch_stays(bench: Bench) -> None:
    batch(bench, quiz())
    for name in ("main", "next"):
        bench.set_baseline(name, "quiz")
    assert bench.delete_baseline("main").name == "main"

    assert [each.name for each in bench.list_baselines()] == ["next"]
    assert {each.name for each in bench.list_batches()} == {"quiz"}
    for ask in (bench.delete_baseline, lambda name: bench.gate("quiz", baseline=name, metric="exact_match")):
        with pytest.raises(BaselineNotFound, match="no baseline 'main' in this store, which has next"):
            ask("main")


def test_the_commands_say_what_was_pooled_what_is_a_copy_and_what_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flow = Workflow("quiz")
    flow.add_node("answer", lambda state: {"answer": state["q"]}, start=True)
    with Bench() as bench:
        for name in ("monday", "tuesday"):
            batch(bench, flow, name=name)

    def typed(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == code, result.output
        return result.output

    made = typed("baseline", "set", "main", "monday", "tuesday")
    assert "Saved baseline main: baseline of monday, tuesday, 24 results." in made
    assert "tuesday executed nothing: its results are copies" in made
    (row,) = json.loads(typed("baseline", "ls", "--json"))
    assert (row["batches"], row["cases"], row["repeats"]) == (["monday", "tuesday"], 12, 2)
    assert "monday, tuesday" in typed("baseline", "ls")
    wrong = typed("baseline", "set", "main", "monday:answer=a", "tuesday:answer=b", code=2)
    assert "name one combination for all batches, not answer=a; answer=b" in wrong
    assert "Deleted baseline main. Batches and runs stay" in typed("baseline", "delete", "main")
    assert "no baseline 'main'" in typed("baseline", "delete", "main", code=1)


def with_variants(*names: str) -> Workflow:
    """A workflow whose first node is shared, and whose second one has variants."""
    flow = Workflow("timed")
    flow.add_node("look", lambda state: {"found": state["q"]}, start=True)
    flow.add_node("answer", lambda state: {"answer": state["found"]})
    flow.edge("look", "answer")
    for name in names:
        flow.add_variant("answer", name, _variant(name))
    return flow


def _variant(name: str) -> Any:
    return lambda state: {"answer": state["found"], "by": name}


def test_variants_that_are_added_on_another_day_are_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock()
    with bench_with(clock) as bench:
        options: dict[str, Any] = {"cases": CASES, "evaluators": [wtb.Latency()]}
        first = bench.batch(with_variants("early"), **options)
        assert first.measured_apart == {}
        clock.advance(timedelta(days=1))
        result = bench.batch(with_variants("early", "late"), **options)
        assert result.measured_apart == {
            "answer=late": "at different times (2026-01-02 00:00 and 2026-01-01 00:00 UTC)"
        }
        print_measured_apart(result)
        assert "answer=late and baseline were measured at different times" in capsys.readouterr().out
        result.report(tmp_path / "report.md")
        assert "measured apart from the baseline: answer=late at" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize(("metric", "marked"), [("latency_s", True), ("exact_match", False)])
def test_a_gate_on_latency_against_results_of_another_day_is_marked(metric: str, marked: bool) -> None:
    clock = FakeClock()
    with bench_with(clock) as bench:
        evaluators = [wtb.Latency(), wtb.ExactMatch("answer")]
        bench.batch(quiz(), cases=CASES, evaluators=evaluators)
        bench.set_baseline("main", "quiz")
        assert bench.gate("quiz", baseline="main", metric=metric).apart is None
        clock.advance(timedelta(days=1))
        bench.batch(quiz(wrong=1), cases=CASES, evaluators=evaluators)
        found = bench.gate("quiz", baseline="main", metric=metric)
        assert (found.apart is not None) is marked
        assert ("note: the two were measured at different times" in said(found)) is marked


def test_results_that_another_batch_measured_keep_their_time() -> None:
    clock = FakeClock()
    with bench_with(clock) as bench:
        options: dict[str, Any] = {"cases": CASES, "evaluators": [wtb.Latency()]}
        bench.batch(with_variants(), **options)
        clock.advance(timedelta(days=1))
        result = bench.batch(with_variants("new"), name="another", **options)
        assert [*result.measured_apart] == ["answer=new"], "the baseline ran the day before, in the first batch"


def test_remeasuring_runs_the_baseline_again_beside_the_others() -> None:
    clock = FakeClock()
    with bench_with(clock) as bench:
        options: dict[str, Any] = {"cases": CASES, "evaluators": [wtb.Latency()]}
        bench.batch(with_variants("early"), **options)
        clock.advance(timedelta(days=1))
        apart = bench.batch(with_variants("early", "late"), **options)
        assert [*apart.measured_apart] == ["answer=late"]
        result = bench.batch(with_variants("early", "late"), remeasure=True, **options)
        assert (result.status, result.measured_apart) == ("completed", {})
        assert (result.sharing["shared"], result.sharing["executed"]) == (0, 3 * 12 * 2)
        runs = {job.run_id for job in result.results}
        again = bench.batch(with_variants("early", "late"), remeasure=True, **options)
        assert {job.run_id for job in again.results} == runs, "nothing is apart, so nothing runs"
