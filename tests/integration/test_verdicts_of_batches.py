"""Verdicts of real batches: failures, families, clusters and notes, in results, commands and reports."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import wtb
from wtb.bench import Bench
from wtb.cli import main
from wtb.domain.errors import InvalidInput
from wtb.flow import Workflow

NAMES = ("right", "size")


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench("memory://") as opened:
        yield opened


def sums(**variants: Any) -> Workflow:
    """Answer with what the variant makes of the number."""
    flow = Workflow("sums")
    flow.add_node("answer", lambda state: {"answer": state["n"]}, start=True, cache=False)
    for name, made in variants.items():
        flow.add_variant("answer", name, lambda state, made=made: {"answer": made(state["n"])})
    return flow


def cases(count: int = 12, **more: Any) -> list[dict[str, Any]]:
    return [{"id": f"q{n:02}", "input": {"n": n, "doc": f"d{n // 3}"}, **more} for n in range(count)]


def right(context: Any) -> bool:
    """Without a scale: nobody says what the worst is."""
    if context.state["answer"] is None:
        raise ValueError("no key")
    return True


def size(context: Any) -> float:
    return float(context.state["answer"] or 0)


def fails(number: int) -> int:
    raise RuntimeError("out of order")


def only(result: Any, metric: str, **options: Any) -> Any:
    (verdict,) = result.compare(metric, **options)
    return verdict


def test_a_candidate_whose_every_job_fails_is_worse(bench: Bench) -> None:
    result = bench.batch(sums(broken=fails), cases=cases(), evaluators=[right, size])

    assert {metric: only(result, metric).finding for metric in (*NAMES, "failed")} == dict.fromkeys(
        (*NAMES, "failed"), "worse"
    )
    assert only(result, "failed").comparison.difference == 1.0
    assert result.matrix[1].summaries["right"].mean == 0.0, "true or false is a scale: a failed run scores its worst"
    assert result.matrix[1].summaries["size"].mean is None


def test_a_candidate_that_no_evaluator_can_score_is_worse(bench: Bench) -> None:
    result = bench.batch(sums(silent=lambda n: None), cases=cases(), evaluators=[right, size])

    assert only(result, "right").finding == "worse"
    assert only(result, "failed").finding == "worse"
    assert len(result.different("right")) == 12


def test_a_batch_without_failures_has_no_column_for_them(bench: Bench, tmp_path: Path) -> None:
    fine = bench.batch(sums(more=lambda n: n + 1), name="fine", cases=cases(), evaluators=[size])
    bad = bench.batch(sums(broken=fails), name="bad", cases=cases(), evaluators=[size])

    assert (list(fine.shown_metrics), list(bad.shown_metrics)) == (["size"], ["size", "failed"])
    assert fine.matrix[1].summaries["failed"].mean == 0.0
    assert "failed" not in fine.rows()[0]
    bad.to_csv(tmp_path / "bad.csv")
    with (tmp_path / "bad.csv").open() as file:
        assert [row["failed"] for row in csv.DictReader(file)].count("1") == 12


def test_errors_of_a_candidate_keep_it_from_being_better(bench: Bench) -> None:
    flow = sums(better=lambda n: n + 9 if n else fails(n))
    result = bench.batch(flow, cases=cases(), evaluators=[size])

    assert only(result, "size").reason == "it failed on 1 case where the baseline did not"
    assert only(result, "size", max_errors=1).finding == "better"


def test_naming_a_metric_does_not_change_its_verdict(bench: Bench) -> None:
    flow = sums(more=lambda n: n + n % 3, less=lambda n: n - n % 2)
    result = bench.batch(flow, cases=cases(), evaluators=[right, size, wtb.Steps()])
    whole = {(each.comparison.metric.name, each.comparison.candidate): each.adjusted_p for each in result.compare()}

    assert len(whole) == 2 * 4
    for each in result.compare("size"):
        assert each.adjusted_p == whole["size", each.comparison.candidate]
        assert str(each.family) == "6 comparisons on 3 metrics"


def test_the_first_the_named_or_the_overall_metric_is_the_primary_one(bench: Bench) -> None:
    flow = sums(more=lambda n: n + 1)
    given: dict[str, Any] = {"cases": cases(), "evaluators": [right, size]}
    result = bench.batch(flow, name="plain", **given)

    assert result.primary == "right"
    assert result.weighted({"size": 1}).primary == "overall"
    assert bench.batch(flow, name="named", primary="size", **given).primary == "size"
    with pytest.raises(InvalidInput, match="primary='speed': there is no such metric; there are right, size"):
        bench.batch(flow, primary="speed", **given)


def test_an_evaluator_cannot_be_called_failed(bench: Bench) -> None:
    with pytest.raises(InvalidInput, match="every batch has a metric 'failed'"):
        bench.batch(sums(), cases=cases(expected="1"), evaluators=[wtb.Contains("answer", name="failed")])


@pytest.mark.parametrize("cluster", ["doc", lambda case: case.input["doc"]])
def test_cases_of_a_cluster_count_as_one(bench: Bench, cluster: Any) -> None:
    result = bench.batch(sums(more=lambda n: n + 1), cluster=cluster, cases=cases(24), evaluators=[size])

    assert only(result, "size").comparison.pairs == 8
    kept = bench.get_batch(result.id)
    assert kept.clusters["q05"] == "d1"
    assert only(kept, "size").comparison.p_value == 2 / 2**8


def test_a_case_names_its_own_cluster(bench: Bench) -> None:
    given = [{**each, "cluster": each["input"]["doc"]} for each in cases()]
    result = bench.batch(sums(more=lambda n: n + 1), cases=given, evaluators=[size])

    assert only(result, "size").comparison.pairs == 4
    with pytest.raises(InvalidInput, match="cluster must be a text, not 7"):
        bench.batch(sums(), cases=[{"id": "a", "input": {}, "cluster": 7}], evaluators=[size])
    with pytest.raises(InvalidInput, match="has no 'page' in its input"):
        bench.batch(sums(), cases=cases(), evaluators=[size], cluster="page")


def test_near_copies_are_noted_in_the_result_and_in_the_report(bench: Bench, tmp_path: Path) -> None:
    text = "The parcel that I ordered on the third of May has not come yet, and nobody answers the phone at your shop."
    given = [
        {"id": name, "input": {"n": 1, "question": question}}
        for name, question in (("a", text), ("b", text + " Why?"), ("c", "Where is it?"), ("d", "And now?"))
    ]
    result = bench.batch(sums(more=lambda n: n + 1), cases=given, evaluators=[size])

    (note,) = result.notes
    assert note.startswith("2 of 4 cases are near copies of others, as a and b")
    for name in ("r.html", "r.md"):
        result.report(tmp_path / name)
        assert "near copies of others" in (tmp_path / name).read_text()


def test_the_report_names_the_families_that_compare_does(bench: Bench, tmp_path: Path) -> None:
    result = bench.batch(sums(more=lambda n: n + 1, broken=fails), cases=cases(), evaluators=[size, right])
    result.report(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()

    assert "p-values are adjusted for 2 comparisons on size (primary); 4 comparisons on 2 metrics." in page
    assert {str(each.family) for each in result.compare()} == {"2 comparisons on size", "4 comparisons on 2 metrics"}
    assert "12 cases are decided by failed runs" in page


def test_the_pareto_front_keeps_what_is_not_shown_to_be_beaten(bench: Bench) -> None:
    flow = sums(more=lambda n: n + 5, hardly=lambda n: n + 5 - (n == 0))
    result = bench.batch(flow, cases=cases(), evaluators=[size])

    assert result.pareto("size") == ("answer=more", "answer=hardly")


def test_means_of_what_has_no_worst_score_say_how_many_runs_they_are_of(bench: Bench, tmp_path: Path) -> None:
    flow = sums(flaky=lambda n: n if n % 4 else fails(n))
    result = bench.batch(flow, cases=cases(), evaluators=[size])

    assert result.matrix[1].summaries["size"].scored == 9
    assert result.different("size")[:3] != []
    result.report(tmp_path / "r.md")
    assert "3 errors, mean of 9 scored runs" in (tmp_path / "r.md").read_text()


@pytest.fixture
def stored(tmp_path: Path) -> str:
    """A database with a batch in which one candidate fails on a case, for commands."""
    url = f"sqlite:///{tmp_path}/wtb.db"
    said("db", "upgrade", "--url", url)
    with Bench(url) as bench:
        flow = sums(better=lambda n: n + 9 if n else fails(n))
        bench.batch(flow, name="sums", cases=cases(), evaluators=[size, right], cluster=lambda case: None)
    return url


def said(*arguments: str) -> str:
    found = CliRunner().invoke(main, arguments)
    assert found.exit_code == 0, found.output
    return found.output


def test_compare_tells_the_families_and_why_there_is_no_evidence(stored: str) -> None:
    text = said("compare", "sums", "--url", stored)

    assert "p is adjusted (step-down maxT) for 1 comparison on size (primary); 2 comparisons on 2 metrics." in text
    assert "it failed on 1 case where the baseline did not" in text


def test_compare_takes_the_number_of_errors_that_is_allowed(stored: str) -> None:
    (found,) = json.loads(said("compare", "sums", "--metric", "size", "--max-errors", "1", "--url", stored, "--json"))

    assert (found["finding"], found["reason"]) == ("better", "1 case is decided by failed runs")
    assert found["family"] == {"is_primary": True, "metrics": ["size"], "comparisons": 1}
    assert found["needed_cases"]["low"] <= found["needed_cases"]["about"]


def test_dropping_errors_warns_that_it_flatters(stored: str) -> None:
    assert "flatters combinations that fail" in said("compare", "sums", "--errors", "drop", "--url", stored)


def test_a_batch_is_told_with_its_primary_metric_and_its_failures(stored: str) -> None:
    text = said("batch", "show", "sums", "--url", stored)

    assert "size decides who wins; the other metrics are judged together." in text
    assert "mean of 11 scored runs" in text
    assert "failed ↓" in text
    data = json.loads(said("batch", "show", "sums", "--url", stored, "--json"))
    assert (data["primary"], data["clusters"], data["notes"]) == ("size", {}, [])
    assert data["matrix"][1]["metrics"]["failed"]["mean"] == pytest.approx(1 / 12)
