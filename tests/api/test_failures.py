"""Why a run failed: what its node got, and what changed since the last run that went well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import wtb
from tests.api.client import TestClient
from tests.api.stored_runs import opened
from wtb.bench import Bench
from wtb.settings import Settings


@pytest.fixture
def bench(server_settings: Settings) -> Iterator[Bench]:
    with opened(server_settings) as bench:
        yield bench


def classify_by_word(state: Any) -> dict[str, str]:
    return {"topic": "billing" if "pay" in state["question"] else "other"}


def classify_always(state: Any) -> dict[str, str]:
    return {"topic": "refund"}


def answer(state: Any) -> dict[str, str]:
    return {"answer": {"billing": "See your bill.", "other": "Ask us."}[state["topic"]]}


def polite(state: Any) -> dict[str, str]:
    return {"answer": f"Dear customer, {state['topic']}"}


def support(classify: Any = classify_by_word) -> wtb.Workflow:
    flow = wtb.Workflow("support")
    flow.add_node("classify", classify, start=True)
    flow.add_node("answer", answer, reads=["topic"])
    flow.add_variant("answer", "polite", polite)
    flow.edge("classify", "answer")
    return flow


def explained(viewer: TestClient, run: str) -> dict[str, Any]:
    found = viewer.get(f"/api/v1/executions/{run}/failure")
    assert found.status_code == 200, found.text
    data: dict[str, Any] = found.json()
    return data


def test_a_failure_is_explained_by_its_input_and_what_changed_since_the_last_good_run(
    viewer: TestClient, bench: Bench
) -> None:
    bench.run(support(), {"question": "Where can I pay?", "api_key": "sk-1234567890abcdefghijkl"}, run_id="good")
    bench.run(support(classify_always), {"question": "My money back!"}, run_id="bad")
    found = explained(viewer, "bad")
    assert (found["failure"]["type"], found["failure"]["message"], found["failure"]["node"]) == (
        "KeyError",
        "'refund'",
        "answer",
    )
    assert found["input"]["reads"] == ["topic"]
    assert found["input"]["state"]["value"] == {"topic": "refund"}
    assert found["input"]["checkpoint"]["node"] == "classify"
    good = found["last_good"]
    assert (good["run"], good["same_code"], good["variants"], good["left_out"]) == ("good", False, [], 0)
    (changed,) = good["code"]
    assert changed.startswith("node `classify` has changed: ")
    assert [item["path"] for item in good["input"]] == ["state.api_key", "state.question"]
    assert "sk-1234567890abcdefghijkl" not in str(good)
    assert {"path": "state.topic", "change": "changed", "old": "billing", "new": "refund"} in good["state"]


def test_the_good_run_to_compare_with_is_an_earlier_one_with_the_same_variants_if_there_is_one(
    viewer: TestClient, bench: Bench
) -> None:
    bench.run(support(), {"question": "pay"}, run_id="plain")
    bench.run(support(classify_always), {"question": "hello"}, run_id="varied", variants={"answer": "polite"})
    bench.run(support(classify_always), {"question": "hello"}, run_id="bad")
    bench.run(support(), {"question": "pay"}, run_id="later")
    assert explained(viewer, "bad")["last_good"]["run"] == "plain"
    bench.services.run_editor.delete_run(bench.get("plain").id)
    good = explained(viewer, "bad")["last_good"]
    assert (good["run"], good["same_code"], good["input"], good["state"]) == ("varied", True, [], [])
    assert good["variants"] == [{"node": "answer", "before": "polite", "now": None}]


def test_without_a_good_run_the_error_and_the_input_are_still_told(viewer: TestClient, bench: Bench) -> None:
    bench.run(support(classify_always), {"question": "hello"}, run_id="bad")
    found = explained(viewer, "bad")
    assert (found["last_good"], found["input"]["state"]["value"]) == (None, {"topic": "refund"})


def test_a_run_that_has_not_failed_has_nothing_to_explain(viewer: TestClient, bench: Bench) -> None:
    bench.run(support(), {"question": "pay"}, run_id="good")
    refused = viewer.get("/api/v1/executions/good/failure")
    assert (refused.status_code, refused.json()["detail"]) == (422, "run 'good' has not failed: it is completed")
