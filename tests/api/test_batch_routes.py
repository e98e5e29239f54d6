"""Batches over the API: status, matrix, results, comparison, report, baselines and gates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import wtb
from tests.api.client import TestClient
from tests.api.stored_batches import run_batch
from tests.api.stored_runs import opened
from wtb.bench import Bench
from wtb.domain.events import EventType
from wtb.settings import Settings

BATCHES = "/api/v1/batches"


@pytest.fixture
def bench(server_settings: Settings) -> Iterator[Bench]:
    with opened(server_settings) as bench:
        yield bench


@pytest.fixture
def batch(bench: Bench) -> str:
    return run_batch(bench)


def by_name(rows: list[dict[str, Any]], key: str = "combination") -> dict[str, dict[str, Any]]:
    return {row[key]: row for row in rows}


def test_batches_are_listed_and_their_runs_folded(viewer: TestClient, bench: Bench, batch: str) -> None:
    run_batch(bench, "other")
    first = viewer.get(BATCHES, params={"limit": 1}).json()
    assert [row["name"] for row in first["items"]] == ["other"]
    second = viewer.get(BATCHES, params={"limit": 1, "cursor": first["next"]}).json()
    assert ([row["id"] for row in second["items"]], second["next"]) == ([batch], None)
    assert [row["name"] for row in viewer.get(BATCHES, params={"name": "qa"}).json()["items"]] == ["qa"]
    runs = "/api/v1/executions"
    assert viewer.get(runs, params={"batch": "none"}).json()["items"] == []
    of_batch = viewer.get(runs, params={"batch": "qa", "counts": True}).json()
    assert of_batch["counts"] == {"completed": 23, "failed": 1}
    assert {row["job"]["batch"] for row in of_batch["items"]} == {batch}


def test_the_status_of_a_batch_is_shown_by_id_and_by_name(viewer: TestClient, batch: str) -> None:
    shown = viewer.get(f"{BATCHES}/{batch}").json()
    assert shown == viewer.get(f"{BATCHES}/qa").json()
    assert (shown["status"], shown["completed"], shown["failed"], shown["left"]) == ("completed_with_errors", 23, 1, 0)
    assert (shown["jobs"], shown["running"], shown["dead"], shown["limits"]) == (24, [], 0, [])
    missing = viewer.get(f"{BATCHES}/nope")
    assert (missing.status_code, missing.json()["code"]) == (404, "batch-not-found")


def test_the_matrix_has_scores_and_verdicts(viewer: TestClient, batch: str) -> None:
    found = viewer.get(f"{BATCHES}/{batch}/matrix").json()
    rows = by_name(found["matrix"])
    assert rows["answer=good"]["metrics"]["exact_match"]["mean"] == 1.0
    assert rows["answer=good"]["verdicts"]["exact_match"]["finding"] == "better"
    assert rows["baseline"]["is_baseline"]
    assert found["jobs"] == {"total": 24, "completed": 23, "failed": 1, "missing": 0}
    assert [(row["case"], row["error"]) for row in found["failures"]] == [("c0", "ValueError: no idea")]
    few = viewer.get(f"{BATCHES}/{batch}/matrix", params={"tag": "even"}).json()
    assert by_name(few["matrix"])["baseline"]["metrics"]["exact_match"]["cases"] == 4
    assert viewer.get(f"{BATCHES}/{batch}/matrix", params={"tag": "odd"}).status_code == 422


def test_answers_follow_every_change_of_a_batch(viewer: TestClient, bench: Bench, batch: str) -> None:
    first = viewer.get(f"{BATCHES}/{batch}/matrix").json()
    assert viewer.get(f"{BATCHES}/{batch}/matrix").json() == first
    bench.evaluate(bench.get_batch(batch), [wtb.Steps()])
    later = viewer.get(f"{BATCHES}/{batch}/matrix").json()
    assert set(by_name(later["matrix"])["baseline"]["metrics"]) == {
        *by_name(first["matrix"])["baseline"]["metrics"],
        "steps",
    }
    bench.delete_batch(batch)
    assert viewer.get(f"{BATCHES}/{batch}/matrix").status_code == 404


def test_the_matrix_says_the_result_in_words_and_what_its_metrics_mean(viewer: TestClient, batch: str) -> None:
    found = viewer.get(f"{BATCHES}/{batch}/matrix").json()
    assert found["conclusion"]["headline"] == "1 of 2 combinations is better than the baseline on exact_match."
    assert found["conclusion"]["finding"] == "better"
    assert [(each["name"], each["direction"]) for each in found["metrics"]] == [
        ("exact_match", "higher"),
        ("failed", "lower"),
    ]


def test_cases_that_failures_decide_are_counted(viewer: TestClient, bench: Bench) -> None:
    flow = wtb.Workflow("breaking")
    flow.add_node("answer", lambda state: {"answer": 1}, start=True)
    flow.add_variant("answer", "broken", lambda state: {"answer": state["nothing"]})
    cases = [{"id": f"c{n}", "input": {}} for n in range(3)]
    made = bench.batch(flow, name="breaking", cases=cases, evaluators=[wtb.Latency()])
    row = by_name(viewer.get(f"{BATCHES}/{made.id}/matrix").json()["matrix"])["answer=broken"]
    assert row["verdicts"]["latency_s"]["decided_by_failures"] == 3
    assert viewer.get(f"{BATCHES}/{made.id}/compare").status_code == 200


def test_the_grid_has_every_score_and_names_what_failed(viewer: TestClient, batch: str) -> None:
    place = f"{BATCHES}/{batch}/grid"
    found = viewer.get(place).json()
    assert (found["metric"]["name"], found["repeats"], found["cases"]) == ("exact_match", 1, 8)
    assert found["combinations"] == ["baseline", "answer=good", "answer=bad"]
    rows = by_name(found["items"], "case")
    assert rows["c0"] == {
        "case": "c0",
        "tags": ["even"],
        "scores": [0.0, 1.0, None],
        "failed": [2],
        "unscored": [],
        "flaky": [],
        "spread": 1.0,
    }
    assert rows["c1"]["scores"] == [0.0, 1.0, 0.0]
    first = viewer.get(place, params={"limit": 3, "tag": "even"}).json()
    assert ([row["case"] for row in first["items"]], first["cases"]) == (["c0", "c2", "c4"], 4)
    second = viewer.get(place, params={"limit": 3, "tag": "even", "cursor": first["next"]}).json()
    assert ([row["case"] for row in second["items"]], second["next"]) == (["c6"], None)
    assert viewer.get(place, params={"metric": "nope"}).status_code == 422


def test_the_grid_tells_repeats_apart(viewer: TestClient, bench: Bench) -> None:
    flow, runs = wtb.Workflow("moody"), iter(range(100))
    flow.add_node("answer", lambda state: {"answer": next(runs) % 2}, start=True, cache=False)
    cases = [{"id": "one", "input": {}, "expected": {"answer": 0}}]
    made = bench.batch(
        flow, name="moody", cases=cases, repeats=3, evaluators=[wtb.ExactMatch("answer")], workers=1, share=False
    )
    (row,) = viewer.get(f"{BATCHES}/{made.id}/grid").json()["items"]
    assert (sorted(row["scores"]), row["flaky"]) == ([0, 1, 1], [0])


def test_results_are_filtered_and_paged(viewer: TestClient, batch: str) -> None:
    place = f"{BATCHES}/{batch}/results"
    assert len(viewer.get(place).json()["items"]) == 24
    (bad,) = viewer.get(place, params={"failed": True}).json()["items"]
    assert (bad["combination"], bad["case"], bad["error"]["type"]) == ("answer=bad", "c0", "ValueError")
    assert len(viewer.get(place, params={"combination": "answer=good", "tag": "even"}).json()["items"]) == 4
    assert len(viewer.get(place, params={"case": "c3"}).json()["items"]) == 3
    assert viewer.get(place, params={"flaky": True}).json()["items"] == []
    assert len(viewer.get(place, params={"different": "exact_match"}).json()["items"]) == 24
    assert viewer.get(place, params={"different": "nope"}).status_code == 422
    page = viewer.get(place, params={"limit": 20}).json()
    rest = viewer.get(place, params={"limit": 20, "cursor": page["next"]}).json()
    assert (len(rest["items"]), rest["next"]) == (4, None)


def test_a_case_is_shown_with_all_outputs_side_by_side(viewer: TestClient, batch: str) -> None:
    case = viewer.get(f"{BATCHES}/{batch}/cases/c2").json()
    assert ("q2" in case["input"], "q2" in case["expected"], case["tags"]) == (True, True, ["even"])
    outputs = {row["combination"]: row["scores"]["exact_match"] for row in case["results"]}
    assert outputs == {"baseline": 0, "answer=good": 1, "answer=bad": 0}
    missing = viewer.get(f"{BATCHES}/{batch}/cases/no/such/../case")
    assert (missing.status_code, missing.json()["code"]) == (404, "case-not-found")


def test_combinations_are_compared_with_intervals(viewer: TestClient, batch: str, bench: Bench) -> None:
    rows = viewer.get(f"{BATCHES}/{batch}/compare", params={"metric": "exact_match"}).json()["items"]
    good = by_name(rows)["answer=good"]
    assert (good["finding"], good["difference"], good["wins"]) == ("better", 1.0, 8)
    assert good["against"] == "baseline"
    run_batch(bench, "again")
    across = viewer.get(f"{BATCHES}/again/compare", params={"before": "qa", "metric": "exact_match"}).json()["items"]
    assert {row["difference"] for row in across} == {0.0}
    assert viewer.get(f"{BATCHES}/{batch}/compare", params={"metric": "nope"}).status_code == 422
    effects = viewer.get(f"{BATCHES}/{batch}/effects", params={"metric": "exact_match"}).json()["items"]
    assert effects[0]["variants"] == [{"node": "answer", "variant": "good"}]
    assert effects[0]["shown"]
    front = viewer.get(f"{BATCHES}/{batch}/pareto", params={"metric": "exact_match"}).json()
    assert front == {"metrics": ["exact_match"], "combinations": ["answer=good"]}


def test_the_report_is_sandboxed_and_can_be_saved(viewer: TestClient, batch: str) -> None:
    page = viewer.get(f"{BATCHES}/{batch}/report")
    assert page.text.startswith("<!")
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"].startswith("sandbox allow-scripts; default-src 'none'")
    assert page.headers["content-disposition"] == 'inline; filename="report-qa.html"'
    saved = viewer.get(f"{BATCHES}/{batch}/report", params={"attachment": True, "format": "md"})
    assert saved.headers["content-disposition"] == 'attachment; filename="report-qa.md"'
    assert "answer=good" in saved.text


def test_a_baseline_is_set_read_judged_against_and_deleted(
    viewer: TestClient, operator: TestClient, admin: TestClient, batch: str, bench: Bench
) -> None:
    wanted = {"name": "main", "batches": ["qa"], "combination": "answer=good"}
    assert viewer.post("/api/v1/baselines", json=wanted).status_code == 403
    saved = operator.post("/api/v1/baselines", json=wanted)
    assert (saved.status_code, saved.json()["combination"], saved.json()["results"]) == (201, "answer=good", 8)
    assert [each["name"] for each in viewer.get("/api/v1/baselines").json()["items"]] == ["main"]
    assert viewer.get("/api/v1/baselines/main").json() == saved.json()
    gate = {"batch": "qa", "baseline": "main", "metric": "exact_match"}
    judged = viewer.post("/api/v1/gates", json=gate).json()
    assert judged["text"].startswith("REGRESSION: exact_match of qa:baseline against baseline main\n  ")
    assert (judged["outcome"], judged["drop"], judged["losses"]) == ("regression", 1.0, 8)
    fine = viewer.post("/api/v1/gates", json={**gate, "combination": "answer=good"}).json()
    assert (fine["outcome"], fine["drop"]) == ("fine", 0.0)
    assert viewer.post("/api/v1/gates", json={**gate, "baseline": "nope"}).json()["code"] == "baseline-not-found"
    assert viewer.post("/api/v1/gates", json={**gate, "max_drop": "much"}).json()["code"] == "invalid-input"
    assert operator.delete("/api/v1/baselines/main").status_code == 403
    assert admin.delete("/api/v1/baselines/main").status_code == 204
    assert viewer.get("/api/v1/baselines/main").json()["code"] == "baseline-not-found"
    events = bench.services.queries.event_page("system", types=[EventType.BASELINE_KEPT, EventType.BASELINE_DELETED])
    assert [event.data["by"] for event in events.events] == ["the operator", "the admin"]


def test_only_an_admin_deletes_a_batch_and_only_a_running_one_is_cancelled(
    viewer: TestClient, operator: TestClient, admin: TestClient, batch: str
) -> None:
    assert viewer.post(f"{BATCHES}/{batch}/cancel").status_code == 403
    ended = operator.post(f"{BATCHES}/{batch}/cancel")
    assert (ended.status_code, ended.json()["code"]) == (422, "invalid-input")
    assert operator.delete(f"{BATCHES}/{batch}").status_code == 403
    assert admin.delete(f"{BATCHES}/{batch}").status_code == 204
    assert viewer.get(f"{BATCHES}/{batch}").status_code == 404
    assert len(viewer.get("/api/v1/executions").json()["items"]) == 24
