"""Runs over the API: lists, details, states, history, calls and events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

import wtb
from tests.api.client import TestClient
from tests.api.stored_runs import asking, failing, opened, writing
from wtb.bench import Bench
from wtb.domain.execution import ExecutionStatus, Lease
from wtb.domain.ids import ExecutionId
from wtb.infrastructure.sql.unit_of_work import SqlStorage
from wtb.settings import Settings

RUNS = "/api/v1/executions"


@pytest.fixture
def bench(server_settings: Settings) -> Iterator[Bench]:
    with opened(server_settings) as bench:
        yield bench


@pytest.fixture
def run(bench: Bench) -> str:
    return bench.run(writing(), {"start": 1}, run_id="first", created_by="ann").id


def every(client: TestClient, address: str, **query: Any) -> list[dict[str, Any]]:
    """Return the items of all pages, two at a time."""
    items, cursor = [], None
    while True:
        page = client.get(address, params={**query, "limit": 2, **({} if cursor is None else {"cursor": cursor})})
        assert page.status_code == 200, page.text
        items += page.json()["items"]
        cursor = page.json()["next"]
        if cursor is None:
            return items


def test_runs_are_listed_newest_first_and_page_by_page(viewer: TestClient, bench: Bench, run: str) -> None:
    bench.run(asking(), {}, run_id="second")
    bench.run(failing(), {}, run_id="third", created_by="ann")
    for number in range(4):
        bench.create(asking(), {}, run_id=f"more-{number}")
    listed = every(viewer, RUNS)
    assert [row["id"] for row in listed] == ["more-3", "more-2", "more-1", "more-0", "third", "second", "first"]
    assert [row["id"] for row in every(viewer, RUNS, status=["failed", "completed"])] == ["third", "first"]
    assert [row["id"] for row in every(viewer, RUNS, created_by="ann", workflow="failing")] == ["third"]
    assert [row["id"] for row in every(viewer, RUNS, prefix="mor", until=listed[0]["created_at"])] == [
        "more-2",
        "more-1",
        "more-0",
    ]
    assert [row["id"] for row in every(viewer, RUNS, since=listed[1]["created_at"])] == ["more-3", "more-2"]
    assert [row["id"] for row in every(viewer, RUNS, health="waiting")] == ["second"]
    assert every(viewer, RUNS, health="gone") == []
    counted = viewer.get(RUNS, params={"counts": True, "limit": 1}).json()
    assert counted["counts"] == {"pending": 4, "failed": 1, "paused": 1, "completed": 1}
    assert viewer.get(RUNS).json()["counts"] is None


def test_runs_without_a_living_process_are_found(viewer: TestClient, bench: Bench, run: str) -> None:
    execution = bench.get(run).execution
    now = bench.services.clock.now()
    for id, minutes in (("just-gone", 0), ("long-gone", 90)):
        seen = now - timedelta(minutes=minutes)
        lease = Lease(owner="elsewhere:1:1", token=1, expires_at=seen - timedelta(minutes=1))
        facts: dict[str, Any] = {
            "status": ExecutionStatus.RUNNING,
            "lease": lease,
            "lease_token": 1,
            "updated_at": seen,
        }
        with bench.services.storage.unit_of_work() as uow:
            uow.executions.add(replace(execution, id=ExecutionId(id), created_at=seen, **facts))
            uow.commit()
    assert [row["id"] for row in every(viewer, RUNS, health="gone")] == ["just-gone"]
    (abandoned,) = every(viewer, RUNS, health="abandoned")
    assert (abandoned["id"], abandoned["neglect"]) == ("long-gone", "abandoned")
    assert every(viewer, RUNS, health="gone", status="completed") == []


def test_a_row_says_what_a_person_looks_for(viewer: TestClient, bench: Bench) -> None:
    bench.run(failing(), {}, run_id="bad")
    bench.run(asking(), {}, run_id="asks")
    asks, bad = viewer.get(RUNS).json()["items"]
    assert (asks["waits_for"], asks["status"], asks["job"]) == ("question", "paused", None)
    assert bad["error"] == "ValueError: no \\ud800 luck"
    assert bad["created_by"] == "tester"


def test_a_list_refuses_what_it_cannot_use(viewer: TestClient) -> None:
    for query in (
        {"cursor": "nonsense"},
        {"cursor": "W10"},
        {"cursor": "WzEsMl0"},
        {"limit": 0},
        {"limit": 501},
        {"status": "asleep"},
        {"since": "2026-01-01T00:00:00"},
        {"prefix": "a\0b"},
        {"workflow": "a\0"},
        {"health": "fine"},
    ):
        refused = viewer.get(RUNS, params=query)
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid-input"), query
    assert viewer.get(RUNS, params={"batch": "nope"}).json()["code"] == "batch-not-found"


def test_a_run_is_shown_with_everything_that_is_known(viewer: TestClient, run: str) -> None:
    answer = viewer.get(f"{RUNS}/{run}")
    shown = answer.json()
    assert answer.headers["etag"] == f'"{shown["version"]}"'
    assert (shown["status"], shown["workflow"], shown["created_by"]) == ("completed", "writing", "ann")
    assert (shown["checkpoints"], shown["files"], shown["head"]["step"]) == (4, 4, 3)
    assert shown["usage"] == {
        "input_tokens": 30,
        "output_tokens": 3,
        "cost_usd": 0.75,
        "models": ["m"],
        "unpriced": [],
    }
    state = shown["state"]["value"]
    assert state["when"] == {"$type": "tuple", "value": [1, 2]}
    assert state["bad"] == {"$type": "float", "value": "nan"}
    assert state["password"] == {"$type": "masked", "value": "***"}
    assert "hunter2" not in answer.text


def test_a_failed_run_and_a_question_are_shown(viewer: TestClient, bench: Bench) -> None:
    bench.run(failing(), {}, run_id="bad")
    bench.run(asking(), {}, run_id="asks")
    bad = viewer.get(f"{RUNS}/bad").json()
    assert (bad["failure"]["type"], bad["failure"]["node"]) == ("ValueError", "fail")
    asks = viewer.get(f"{RUNS}/asks").json()
    assert (asks["pause"]["kind"], asks["pause"]["question"]["question"]) == ("question", "Which one?")


def test_a_strange_id_is_not_found_or_refused(viewer: TestClient) -> None:
    for id in ("nope", "%2e%2e", "a%2Fb", "x" * 200, "é", "%00", "x" * 201, "a%0Ab", "%ff"):
        for rest in ("", "/state", "/tree", "/timeline", "/calls", "/usage", "/files", "/checkpoints/1", "/events"):
            answer = viewer.get(f"{RUNS}/{id}{rest}")
            assert answer.status_code in (404, 422), answer.text
            assert answer.headers["content-type"] == "application/problem+json"


def test_a_damaged_run_does_not_break_the_list(viewer: TestClient, bench: Bench, run: str) -> None:
    for number in range(3):
        bench.create(asking(), {}, run_id=f"more-{number}")
    assert isinstance(bench.services.storage, SqlStorage)
    with bench.services.storage.database.engine.begin() as connection:
        connection.execute(text("UPDATE wtb_executions SET status = 'completed' WHERE id = 'more-1'"))
    assert [row["id"] for row in every(viewer, RUNS)] == ["more-2", "more-0", "first"]
    broken = viewer.get(f"{RUNS}/more-1")
    assert (broken.status_code, broken.json()["code"]) == (500, "damaged-data")


def test_places_of_a_state_are_looked_at_one_by_one(viewer: TestClient, bench: Bench) -> None:
    large = {"docs": [{"title": f"d{n}", "text": "x" * 3_000} for n in range(100)], "token": "abc", "n": 1}
    bench.create(asking(), large, run_id="large")
    top = viewer.get(f"{RUNS}/large").json()["state"]
    assert (top["is_whole"], top["value"], top["count"]) == (False, None, 3)
    children = {child["key"]: child for child in top["children"]}
    assert (children["docs"]["kind"], children["docs"]["count"], children["docs"]["value"]) == ("list", 100, None)
    assert children["n"]["value"] == 1
    assert children["token"]["value"] == {"$type": "masked", "value": "***"}
    place = f"{RUNS}/large/state"
    page = viewer.get(place, params={"path": '["docs"]', "limit": 60}).json()
    assert [child["key"] for child in page["children"]] == list(range(60))
    rest = viewer.get(place, params={"path": '["docs"]', "limit": 60, "cursor": page["next"]}).json()
    assert [child["key"] for child in rest["children"]] == list(range(60, 100))
    assert viewer.get(place, params={"path": '["docs", 7, "title"]'}).json()["value"] == "d7"
    assert viewer.get(place, params={"path": '["token"]'}).json()["value"]["$type"] == "masked"
    assert viewer.get(place, params={"whole": True}).json()["value"]["docs"][99]["title"] == "d99"
    for path in ('["nope"]', '["docs", 100]', '["docs", -1]', "docs", "{}", "[[]]", "[" * 3_000):
        assert viewer.get(place, params={"path": path}).json()["code"] == "invalid-input"


def test_the_state_at_a_checkpoint_is_shown(viewer: TestClient, run: str) -> None:
    assert viewer.get(f"{RUNS}/{run}/state", params={"at": "write#2", "path": '["n"]'}).json()["value"] == 2
    missing = viewer.get(f"{RUNS}/{run}/state", params={"at": "nope"})
    assert (missing.status_code, missing.json()["code"]) == (404, "checkpoint-not-found")


def test_checkpoints_are_listed_newest_first_on_the_line_or_on_all(viewer: TestClient, bench: Bench, run: str) -> None:
    place = f"{RUNS}/{run}/checkpoints"
    assert [each["step"] for each in every(viewer, place)] == [3, 2, 1, 0]
    bench.get(run).rollback(1, allow_irreversible=True)
    assert [each["step"] for each in every(viewer, place)] == [1, 0]
    marks = [each["mark"] for each in every(viewer, place, every=True)]
    assert sorted(marks) == ["", "head", "left", "left", "safety"]
    assert viewer.get(f"{RUNS}/{run}/counts").json() == {"checkpoints": 5, "restore_points": 5}
    assert [each["step"] for each in every(viewer, f"{RUNS}/{run}/restore-points")] == [0]
    detail = viewer.get(f"{place}/write#1".replace("#", "%23")).json()
    assert (detail["step"], detail["state"]["value"]["n"], detail["file_count"]) == (1, 1, 2)
    tree = viewer.get(f"{RUNS}/{run}/tree").json()
    step = tree["lines"][0]["steps"][1]
    assert (step["is_active"], step["heads"], step["lines"][0]["abandoned"]) == (True, ["main"], True)
    copies = [each["id"] for each in every(viewer, place, every=True) if each["mark"] == "safety"]
    assert ([step["lines"][0]["safety_copy"]], tree["lines"][0]["safety_copy"]) == (copies, None)
    (branch,) = viewer.get(f"{RUNS}/{run}/branches").json()["items"]
    assert (branch["name"], branch["is_active"], branch["head"]) == ("main", True, step["checkpoint"])


def test_files_are_attachments_that_no_browser_runs(viewer: TestClient, run: str) -> None:
    listed = viewer.get(f"{RUNS}/{run}/files").json()["items"]
    assert [each["path"] for each in listed] == ["1.txt", "2.txt", "3.txt", "page.html"]
    found = viewer.get(f"{RUNS}/{run}/files/page.html")
    assert found.text == "<script>alert(3)</script>\n"
    assert found.headers["content-type"] == "application/octet-stream"
    assert found.headers["content-disposition"] == "attachment; filename*=UTF-8''page.html"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in found.headers["content-security-policy"]
    earlier = viewer.get(f"{RUNS}/{run}/checkpoints/1/files")
    assert [each["path"] for each in earlier.json()["items"]] == ["1.txt", "page.html"]
    assert viewer.get(f"{RUNS}/{run}/checkpoints/1/files/page.html").text == "<script>alert(1)</script>\n"


def test_a_path_that_the_checkpoint_does_not_have_is_not_found(viewer: TestClient, run: str) -> None:
    long = "x" * 5_000
    for path in (
        "nope",
        "%2e%2e/%2e%2e/etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "/etc/passwd",
        "1.txt%00",
        long,
        "1.txt/",
    ):
        for place in ("files", "checkpoints/1/files"):
            answer = viewer.get(f"{RUNS}/{run}/{place}/{path}")
            assert (answer.status_code, answer.json()["code"]) == (404, "file-not-found")


def test_a_large_file_is_sent_whole(viewer: TestClient, bench: Bench, tmp_path: Any) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "large.bin").write_bytes(b"0123456789abcdef" * 100_000)
    bench.run(asking(), {}, run_id="large", workspace=folder)
    place = f"{RUNS}/large/files/large.bin"
    assert viewer.get(place).content == b"0123456789abcdef" * 100_000


def test_a_damaged_file_is_never_sent_whole(viewer: TestClient, bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    content = b"0123456789abcdef" * 100_000
    (folder / "large.bin").write_bytes(content)
    bench.run(asking(), {}, run_id="large", workspace=folder)
    (stored,) = [path for path in bench.services.settings.objects_folder.rglob("*") if path.is_file()]
    stored.chmod(0o600)
    stored.write_bytes(b"X" + stored.read_bytes()[1:])
    cut = viewer.get(f"{RUNS}/large/files/large.bin")  # its end never comes, and a real connection is closed
    assert len(cut.content) < len(content) == int(cut.headers["content-length"])


def test_two_checkpoints_are_compared_also_across_runs(viewer: TestClient, bench: Bench, run: str) -> None:
    found = viewer.get(f"{RUNS}/{run}/diff", params={"from": "1", "to": "2"}).json()
    changed = {each["path"]: each for each in found["state"]}
    assert (changed["state.n"]["old"], changed["state.n"]["new"]) == (1, 2)
    files = {each["path"]: each for each in found["files"]}
    assert files["2.txt"]["change"] == "added"
    assert "+<script>alert(2)</script>" in files["page.html"]["diff"]
    assert [call["tool"] for call in found["calls"]] == ["api_look"]
    assert "sk-secret" not in json.dumps(found)
    bench.run(writing(1), {"start": 2}, run_id="other")
    across = viewer.get(f"{RUNS}/{run}/diff", params={"from": "0", "run": "other"}).json()
    assert (across["old"]["run"], across["new"]["run"], across["new"]["step"]) == ("first", "other", 1)
    assert viewer.get(f"{RUNS}/{run}/diff").status_code == 422
    assert viewer.get(f"{RUNS}/{run}/diff", params={"from": "9"}).status_code == 404


def test_the_timeline_has_visits_attempts_and_waits(viewer: TestClient, bench: Bench, run: str) -> None:
    shown = viewer.get(f"{RUNS}/{run}/timeline").json()
    assert [(each["node"], each["visit"], each["step"]) for each in shown["items"]] == [
        ("write", 1, 1),
        ("write", 2, 2),
        ("write", 3, 3),
    ]
    assert all(each["started_at"] <= each["ended_at"] and not each["parallel"] for each in shown["items"])
    page = viewer.get(f"{RUNS}/{run}/timeline", params={"limit": 2}).json()
    assert ([each["visit"] for each in page["items"]], page["before"]) == ([2, 3], 2)
    earlier = viewer.get(f"{RUNS}/{run}/timeline", params={"limit": 2, "before": 2}).json()
    assert ([each["visit"] for each in earlier["items"]], earlier["before"]) == ([1], None)
    bench.run(asking(), {}, run_id="asks")
    open_visit = viewer.get(f"{RUNS}/asks/timeline").json()
    assert open_visit["items"][0]["waits"][0]["ended_at"] is None
    assert [pause["ended_at"] for pause in open_visit["pauses"]] == [None]
    bench.resume("asks", asking(), answer="this")
    closed = viewer.get(f"{RUNS}/asks/timeline").json()
    assert closed["items"][0]["status"] == "completed"
    assert closed["items"][0]["waits"][0]["ended_at"] is not None
    assert [pause["ended_at"] is None for pause in closed["pauses"]] == [False]


def test_calls_are_shown_masked_with_the_way_to_undo_them(viewer: TestClient, run: str) -> None:
    calls = every(viewer, f"{RUNS}/{run}/calls")
    assert [(call["tool"], call["undo"], call["visit"]) for call in calls] == [
        ("api_look", "nothing", 1),
        ("api_send", "never", 1),
        ("api_look", "nothing", 2),
        ("api_look", "nothing", 3),
    ]
    assert calls[0]["arguments"]["api_key"] == {"$type": "masked", "value": "***"}
    assert calls[0]["result"]["n"] == {"$type": "int", "value": str(1 << 60)}


def test_usage_events_variants_and_scores_are_shown(viewer: TestClient, run: str) -> None:
    (used,) = viewer.get(f"{RUNS}/{run}/usage").json()["items"]
    assert (used["node"], used["visits"], used["usage"]["input_tokens"]) == ("write", 3, 30)
    events = every(viewer, f"{RUNS}/{run}/events", type=["node", "execution.completed"])
    assert [event["type"] for event in events] == ["execution.completed", *["node.completed"] * 3]
    assert viewer.get(f"{RUNS}/{run}/events", params={"type": "nope"}).status_code == 422
    variants = viewer.get(f"{RUNS}/{run}/variants").json()
    assert (variants["nodes"], variants["chosen"]) == ({"write": ["short"]}, {})
    assert viewer.get(f"{RUNS}/{run}/scores").json() == {"items": [], "next": None}


def test_a_state_is_searched_whole_and_secrets_are_never_found(viewer: TestClient, bench: Bench) -> None:
    large = {
        "docs": [{"title": f"d{n}", "text": "x" * 3_000} for n in range(100)],
        "token": "Needle of a secret",
        "said": {"key": "sk-1234567890abcdefghijklmnop Needle"},
        "needles": ["hay", "one NEEDLE in much hay", {"deep": ("needle", 7)}],
        "tags": {"needle", "b"},
    }
    bench.create(asking(), large, run_id="searched")
    place = f"{RUNS}/searched/state/matches"
    found = viewer.get(place, params={"text": "needle"}).json()
    assert found["is_complete"]
    assert [(each["path"], each["where"]) for each in found["items"]] == [
        (["needles"], "key"),
        (["needles", 1], "value"),
        (["needles", 2, "deep", 0], "value"),
        (["said", "key"], "value"),
        (["tags"], "value"),
    ]
    assert "sk-1234567890" not in str(found)
    assert viewer.get(place, params={"text": "sk-1234567890"}).json()["items"] == []
    some = viewer.get(place, params={"text": "xxx", "limit": 3}).json()
    assert (len(some["items"]), some["is_complete"], len(some["items"][0]["excerpt"])) == (3, False, 163)
    assert viewer.get(place, params={"text": "d7", "at": "0"}).json()["items"][0]["path"] == ["docs", 7, "title"]
    assert viewer.get(place, params={"text": ""}).status_code == 422


def test_the_calls_of_one_visit_are_listed(viewer: TestClient, run: str) -> None:
    of_all = viewer.get(f"{RUNS}/{run}/calls").json()["items"]
    found = viewer.get(f"{RUNS}/{run}/calls", params={"node": "write", "visit": 2}).json()["items"]
    assert found == [call for call in of_all if call["visit"] == 2] != []
    assert viewer.get(f"{RUNS}/{run}/calls", params={"node": "nope"}).json()["items"] == []


def test_a_checkpoint_has_the_calls_of_its_own_line(viewer: TestClient, bench: Bench) -> None:
    flow = wtb.Workflow("calling")
    made: list[int] = []

    def work(state: Any, ctx: Any) -> dict[str, Any]:
        made.append(len(made))
        return {"got": ctx.step("number", lambda: made[-1])}

    flow.add_node("work", work, start=True)
    run = bench.run(flow, {})
    run.rollback(0)
    run.resume()
    calls = f"{RUNS}/{run.id}/calls"
    assert [call["result"] for call in viewer.get(calls).json()["items"]] == [0, 1]
    assert [call["result"] for call in viewer.get(calls, params={"ended_with": "work"}).json()["items"]] == [1]
    assert viewer.get(calls, params={"ended_with": "0"}).json()["items"] == []
    assert viewer.get(calls, params={"ended_with": "nope"}).status_code == 404


def test_a_checkpoint_says_whether_the_run_still_builds_on_it(viewer: TestClient, bench: Bench, run: str) -> None:
    place = f"{RUNS}/{run}/checkpoints"
    last = viewer.get(f"{place}/3").json()
    assert (last["mark"], viewer.get(f"{place}/1").json()["mark"]) == ("head", "")
    bench.get(run).rollback(1, allow_irreversible=True)
    assert viewer.get(f"{place}/{last['id']}").json()["mark"] == "left"
    assert viewer.get(f"{place}/1").json()["mark"] == "head"
