"""Two states are compared piece by piece, however large they are; one answer with everything is bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest

import wtb
from tests.api.client import TestClient
from tests.api.running_server import running
from wtb.api.parts import ServerParts
from wtb.bench import Bench
from wtb.bootstrap import Services
from wtb.domain.access import Role
from wtb.domain.errors import TooMuchToShow
from wtb.flow import Workflow

RUN = "/api/v1/executions/compared"
OLD: dict[str, Any] = {
    "same": "x",
    "gone": 1,
    "docs": [{"id": n, "title": f"t{n}"} for n in range(200)],
    "text": "one\ntwo\nthree\n",
    "kind": [1],
    "password": "hunter1",
    "deep": {"a": {"b": {"c": 1}}, "left": 1, 3: "int key"},
}
NEW: dict[str, Any] = {
    "same": "x",
    "docs": [{"id": -1, "title": "new"}, *OLD["docs"][:100], {"id": 100, "title": "edited"}, *OLD["docs"][102:]],
    "text": "one\n2\nthree\n",
    "kind": {"a": 1},
    "password": "hunter2",
    "deep": {"a": {"b": {"c": 2}}, "left": 1, 3: "int key!"},
    "made": [1, 2],
}


def store(services: Services, old: dict[str, Any], new: dict[str, Any]) -> None:
    flow = Workflow("compared")
    flow.add_node("change", lambda state: {**new, **{key: wtb.DELETE for key in old if key not in new}}, start=True)
    assert Bench._over(services).run(flow, old, run_id="compared").status == "completed"


def shown(viewer: TestClient, path: list[Any] | None = None, **query: Any) -> Any:
    given = {} if path is None else {"path": json.dumps(path)}
    answer = viewer.get(f"{RUN}/diff/state", params={"from": 0, **given, **query})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_first_level_has_the_keys_that_differ_and_their_counts(services: Services, viewer: TestClient) -> None:
    store(services, OLD, NEW)
    found = shown(viewer)
    assert (found["path"], found["change"], found["next"]) == ([], "changed", None)
    assert found["counts"] == {"changed": 5, "removed": 1, "added": 1}
    changes = {child["key"]: child for child in found["children"]}
    assert list(changes) == ["deep", "docs", "gone", "kind", "made", "password", "text"]
    assert (changes["gone"]["change"], changes["gone"]["old"]["value"], changes["gone"]["new"]) == ("removed", 1, None)
    docs = changes["docs"]
    assert (docs["old"]["kind"], docs["old"]["count"], docs["new"]["count"]) == ("list", 200, 200)
    assert docs["old"]["value"] is None
    assert "hunter" not in json.dumps(found)
    assert changes["password"]["old"]["kind"] == "masked"


def test_a_path_leads_deeper_on_both_sides(services: Services, viewer: TestClient) -> None:
    store(services, OLD, NEW)
    docs = shown(viewer, ["docs"])
    assert [(child["key"], child["change"]) for child in docs["children"]] == [
        ([None, 0], "added"),
        ([100, 101], "changed"),
        ([101, None], "removed"),
    ]
    edited = shown(viewer, ["docs", [100, 101]])
    assert [(child["key"], child["old"]["value"], child["new"]["value"]) for child in edited["children"]] == [
        ("title", "t100", "edited")
    ]
    removed = shown(viewer, ["docs", [101, None]])
    assert (removed["change"], removed["old"]["value"]["id"], removed["new"], removed["children"]) == (
        "removed",
        101,
        None,
        [],
    )
    assert shown(viewer, ["deep", "a", "b", "c"])["new"]["value"] == 2
    assert shown(viewer, ["deep", 3])["change"] == "changed"
    assert (shown(viewer, ["kind"])["change"], shown(viewer, ["kind"])["children"]) == ("changed", [])
    assert "-two\n+2" in shown(viewer, ["text"])["text"]
    secret = shown(viewer, ["password"])
    assert (secret["old"]["kind"], secret["text"], secret["children"]) == ("masked", None, [])


@pytest.mark.parametrize(
    "path",
    ["docs", "{}", "[1.5]", '[["a", 1]]', "[[1]]", '["nowhere"]', '["docs", [999, 999]]', '["docs", [null, null]]'],
)
def test_a_path_that_leads_nowhere_is_a_problem(services: Services, viewer: TestClient, path: str) -> None:
    store(services, OLD, NEW)
    answer = viewer.get(f"{RUN}/diff/state", params={"from": 0, "path": path})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-input")


def test_children_come_in_pages(services: Services, viewer: TestClient) -> None:
    store(services, {"n": {str(n): n for n in range(250)}}, {"n": {str(n): -n - 1 for n in range(250)}})
    keys, cursor = list[str](), None
    while True:
        page = shown(viewer, ["n"], limit=100, **({} if cursor is None else {"cursor": cursor}))
        assert page["counts"] == {"changed": 250}
        keys += [child["key"] for child in page["children"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert sorted(keys, key=int) == [str(n) for n in range(250)]


HUGE: dict[str, Any] = {
    "messages": [{"id": n, "content": f"word {n} " * 10} for n in range(30_000)],
    "table": {f"k{n}": {"a": n, "b": f"value {n}"} for n in range(30_000)},
    "numbers": list(range(200_000)),
}


def test_huge_states_are_compared_in_pieces_and_refused_as_a_whole(services: Services, viewer: TestClient) -> None:
    changed = {
        "messages": [{**each, "content": each["content"] + "!"} for each in HUGE["messages"]],
        "table": {key: {**value, "a": -1} for key, value in HUGE["table"].items()},
        "numbers": [n + 1 for n in HUGE["numbers"]],
    }
    store(services, HUGE, changed)
    whole = viewer.get(f"{RUN}/diff", params={"from": 0})
    assert (whole.status_code, whole.json()["code"]) == (422, "too-much-to-show")
    assert "…/diff/state" in whole.json()["detail"]
    rest = viewer.get(f"{RUN}/diff", params={"from": 0, "part": ["files", "calls"]})
    assert (rest.status_code, rest.json()["state"]) == (200, [])
    assert [child["key"] for child in shown(viewer)["children"]] == ["messages", "numbers", "table"]
    messages = shown(viewer, ["messages"], limit=50)
    assert (messages["by_position"], messages["counts"], len(messages["children"])) == (True, {"changed": 30_000}, 50)
    assert len(json.dumps(messages)) < 100_000
    deep = shown(viewer, ["messages", [29_999, 29_999]])
    assert deep["children"][0]["new"]["value"].endswith("!")


def test_the_client_compares_in_pieces(services: Services) -> None:
    store(services, OLD, NEW)
    _, token = services.tokens.create("ci", Role.VIEWER, by="tester")
    with running(ServerParts(services=services)) as server, wtb.Client(server.url, token) as client:
        found = client.diff_state("compared", 0)
        assert found.counts["changed"] == 5
        inside = client.diff_state("compared", 0, path=["docs", [100, 101]])
        assert [child.key for child in inside.children] == ["title"]


def test_the_client_raises_the_refusal(services: Services) -> None:
    store(services, {"n": []}, {"n": HUGE["numbers"]})
    _, token = services.tokens.create("ci", Role.VIEWER, by="tester")
    with running(ServerParts(services=services)) as server, wtb.Client(server.url, token) as client:
        with pytest.raises(TooMuchToShow):
            client.diff("compared", 0)
        assert client.diff_state("compared", 0).children[0].new is not None
