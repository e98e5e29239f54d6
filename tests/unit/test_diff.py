"""What differs between two checkpoints: states by path, files by line, and which calls lie on the way."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtb.domain.checkpoint import Checkpoint, NodeRun
from wtb.domain.diff import LARGEST_TEXT_BYTES, CheckpointDiff, DiffKind, FileDiff, file_diffs, state_diffs, ways
from wtb.domain.files import FileEntry, file_entry, folder_entry, link_entry, tree_of
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId
from wtb.domain.state import MISSING
from wtb.domain.tools import CallKind, CallStatus, Effects, ToolCall
from wtb.testing.values import EXACT_VALUES, identical, nested

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def told(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return [(item.path, item.kind.value, item.old, item.new) for item in state_diffs(old, new)]


def test_keys_and_nested_values_are_named_by_their_path() -> None:
    old = {"topic": "a", "docs": [{"title": "x", "tags": {"n": 1}}], "gone": None}
    new = {"topic": "b", "docs": [{"title": "y", "tags": {"n": 1, "m": 2}}], "added": []}
    assert told(old, new) == [
        ("state.added", "added", MISSING, []),
        ("state.docs[0].tags.m", "added", MISSING, 2),
        ("state.docs[0].title", "changed", "x", "y"),
        ("state.gone", "removed", None, MISSING),
        ("state.topic", "changed", "a", "b"),
    ]


def test_a_path_can_be_read_whatever_the_keys_are() -> None:
    old: dict[str, Any] = {"x": {}}
    new = {"x": {"two words": 1, "": 2, 3: 4, ("a",): 5, "top-k": 6}}
    assert [path for path, *_ in told(old, new)] == [
        "state.x['']",
        "state.x.top-k",
        "state.x['two words']",
        "state.x[('a',)]",
        "state.x[3]",
    ]


@pytest.mark.parametrize(("old", "new"), [(True, 1), (1, 1.0), (0.0, -0.0), ([1], (1,)), ("1", 1), ([True], [1])])
def test_values_of_different_types_differ(old: Any, new: Any) -> None:
    assert len(told({"x": old}, {"x": new})) == 1


def test_keys_of_different_types_differ() -> None:
    assert told({"x": {True: "a"}}, {"x": {1: "a"}}) == [
        ("state.x[1]", "added", MISSING, "a"),
        ("state.x[True]", "removed", "a", MISSING),
    ]


@pytest.mark.parametrize("value", EXACT_VALUES.values(), ids=EXACT_VALUES.keys())
def test_a_value_does_not_differ_from_itself_but_from_none(value: Any) -> None:
    assert told({"x": value}, {"x": value}) == []
    assert told({"x": {"y": value}}, {"x": {"y": 7}})[0][:2] == ("state.x.y", "changed")


def test_the_order_of_a_mapping_is_no_difference() -> None:
    assert told({"x": [{"a": 1, "b": 2}]}, {"x": [{"b": 2, "a": 1}]}) == []


def test_what_is_appended_is_added() -> None:
    messages = [{"role": "user", "n": number} for number in range(1_000)]
    assert told({"m": messages}, {"m": [*messages, "x", "y"]}) == [
        ("state.m[1000]", "added", MISSING, "x"),
        ("state.m[1001]", "added", MISSING, "y"),
    ]


def test_what_is_put_in_or_taken_out_leaves_the_rest_as_it_is() -> None:
    assert told({"m": list("abcdef")}, {"m": list("aXbdeYf")}) == [
        ("state.m[1]", "added", MISSING, "X"),
        ("state.m[2]", "removed", "c", MISSING),
        ("state.m[5]", "added", MISSING, "Y"),
    ]


def test_an_item_that_changed_is_compared_with_what_stood_there() -> None:
    old = [{"id": number, "seen": False} for number in range(5)]
    new = [*old[:2], {"id": 2, "seen": True}, *old[3:]]
    assert told({"m": old}, {"m": new}) == [("state.m[2].seen", "changed", False, True)]


@dataclass
class Customer:
    name: str
    orders: list[str]


class Plan(Enum):
    FREE = 1
    PAID = 2


class Quiet:
    def __init__(self, value: int) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "Quiet()"


def test_objects_are_compared_by_their_fields() -> None:
    assert told({"c": Customer("a", ["x"])}, {"c": Customer("a", ["x", "y"])}) == [
        ("state.c.orders[1]", "added", MISSING, "y")
    ]
    assert told({"c": Plan.FREE}, {"c": Plan.PAID}) == [("state.c", "changed", Plan.FREE, Plan.PAID)]


def test_items_that_print_alike_are_still_compared() -> None:
    assert told({"m": [Quiet(1), Quiet(2)]}, {"m": [Quiet(1), Quiet(3)]}) == [("state.m[1].value", "changed", 2, 3)]


def test_values_nested_as_deep_as_can_be_stored_are_compared() -> None:
    def layers(value: int) -> Any:
        return nested(190, lambda inner: [value] if inner == 1 else [inner])

    ((path, *rest),) = told({"x": layers(2)}, {"x": layers(3)})
    assert (path.count("[0]"), rest) == (190, ["changed", 2, 3])


VALUES = st.recursive(
    st.sampled_from([None, True, 1, 1.0, "a", b"a", float("nan")]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.dictionaries(st.sampled_from(["a", "b", 1, True]), inner, max_size=3)
    ),
    max_leaves=12,
)
STATES = st.dictionaries(st.sampled_from("ab"), VALUES, max_size=2).map(lambda state: dict(sorted(state.items())))


@given(STATES, STATES)
def test_going_back_is_the_same_with_old_and_new_exchanged(old: dict[str, Any], new: dict[str, Any]) -> None:
    forth, back = state_diffs(old, new), state_diffs(new, old)
    assert bool(forth) == bool(back)
    if identical(old, new):
        assert not forth
    for item in forth:
        assert not identical(item.old, item.new)


def sha(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def a_file(path: str, content: bytes, mode: int = 0o644) -> FileEntry:
    return file_entry(path, mode, len(content), sha(content))


def compared(old: list[FileEntry], new: list[FileEntry], *contents: bytes) -> list[FileDiff]:
    found = file_diffs(tree_of(old), tree_of(new))
    held = {sha(content): content for content in contents}
    return [diff.with_contents(held) if diff.may_be_text else diff for diff in found]


def test_files_differ_in_five_ways() -> None:
    old = [a_file("b", b"1"), a_file("c", b"1"), a_file("d", b"1"), a_file("e", b"1"), a_file("same", b"1")]
    new = [a_file("a", b"2"), a_file("c", b"2"), a_file("d", b"1", 0o755), link_entry("e", "c"), a_file("same", b"1")]
    diffs = compared(old, new, b"1", b"2")
    assert [(diff.path, diff.kind.value) for diff in diffs] == [
        ("a", "added"),
        ("b", "removed"),
        ("c", "changed"),
        ("d", "mode changed"),
        ("e", "kind changed"),
    ]
    assert diffs[0].text == ("--- /dev/null", "+++ b/a", "@@ -0,0 +1 @@", "+2", "\\ No newline at end of file")
    assert diffs[4].text is not None
    assert diffs[4].text[:2] == ("--- a/e", "+++ /dev/null")
    assert diffs[3].text is None


@pytest.mark.parametrize("content", [b"a\0b", b"\xff\xfe"])
def test_what_is_no_text_is_told_by_size_and_hash(content: bytes) -> None:
    (diff,) = compared([a_file("x", b"text")], [a_file("x", content)], b"text", content)
    assert diff.text is None
    assert diff.to_dict()["new"] == {
        "kind": "file",
        "mode": "0644",
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def test_a_large_file_is_not_read() -> None:
    large = file_entry("x", 0o644, LARGEST_TEXT_BYTES + 1, sha(b"large"))
    (diff,) = compared([a_file("x", b"text")], [large])
    assert not diff.may_be_text


def test_folders_and_links_have_no_content() -> None:
    diffs = compared([folder_entry("d", 0o755), link_entry("l", "a")], [folder_entry("d", 0o700), link_entry("l", "b")])
    assert [(diff.kind.value, diff.may_be_text) for diff in diffs] == [("mode changed", False), ("changed", False)]
    assert diffs[1].to_dict()["old"] == {"kind": "link", "mode": "0777", "target": "a"}


def a_checkpoint(number: int, run: str | None = None) -> Checkpoint:
    return Checkpoint(
        id=CheckpointId(f"c{number}"),
        execution_id=ExecutionId("run"),
        branch_id=BranchId("main"),
        parent_id=None,
        step=number,
        node_run_id=None if run is None else NodeRunId(run),
        created_at=NOW + timedelta(seconds=number),
        state_hash=b"",
        parent_hash=b"",
        hash=b"",
        size_bytes=0,
    )


def a_run(id: str, last: str | None) -> NodeRun:
    return NodeRun(
        id=NodeRunId(id),
        execution_id=ExecutionId("run"),
        branch_id=BranchId("main"),
        node="work",
        visit=1,
        input_id=None,
        last_id=None if last is None else CheckpointId(last),
        started_at=NOW,
    )


def a_call(run: str, ended_s: float | None, status: CallStatus = CallStatus.SUCCEEDED) -> ToolCall:
    return ToolCall(
        execution_id=ExecutionId("run"),
        node_run_id=NodeRunId(run),
        identity="send",
        sequence=0,
        kind=CallKind.TOOL,
        tool="send",
        effects=Effects.EXTERNAL,
        arguments={},
        status=status,
        started_at=NOW + timedelta(seconds=1.5),
        ended_at=None if ended_s is None else NOW + timedelta(seconds=ended_s),
    )


def a_history(line: list[Checkpoint], *runs: NodeRun) -> ExecutionHistory:
    return ExecutionHistory(
        execution_id=ExecutionId("run"),
        active_branch_id=BranchId("main"),
        branches=(),
        checkpoints=tuple(line),
        node_runs=runs,
    )


def test_ways_begin_where_the_lines_part() -> None:
    line = [a_checkpoint(number) for number in range(5)]
    other = [*line[:3], a_checkpoint(7)]
    old, new = ways(line, other)
    assert (old.start, old.steps, new.start, new.steps) == (line[2], (line[3], line[4]), line[2], (other[3],))
    assert ways(line[:2], line) == ways(line, line[:2])[::-1]
    assert ways([], line)[1].start is None


def test_the_runs_of_a_way_are_those_that_made_its_steps() -> None:
    line = [a_checkpoint(0), a_checkpoint(1, "r1"), a_checkpoint(2), a_checkpoint(3, "r4")]
    runs = [a_run("r4", "c9"), a_run("r1", "c1"), a_run("r2", "c2"), a_run("r3", "c2"), a_run("r5", None)]
    _, way = ways(line[:2], line)
    assert [run.id for run in way.runs(runs)] == ["r2", "r3", "r4"]


def test_of_a_run_that_began_before_or_goes_on_behind_only_the_calls_between_count() -> None:
    line = [a_checkpoint(number, "r1") for number in range(5)]
    run = a_run("r1", "c4")
    told = a_history(line, run)
    _, middle = ways(line[:2], line[:4])
    assert [middle.holds(run, a_call("r1", at), told) for at in (1.0, 2.0, 3.0, 3.5)] == [False, True, True, False]
    assert middle.holds(run, a_call("r1", None, CallStatus.INTENDED), told)
    _, whole = ways([], line)
    assert whole.holds(run, a_call("r1", 9.0), told)


def test_a_call_that_was_undone_later_counts_when_it_was_made() -> None:
    line = [a_checkpoint(number, "r1") for number in range(4)]
    run = a_run("r1", "c3")
    _, way = ways(line[:2], line[:3])
    assert way.holds(run, a_call("r1", 60.0, CallStatus.REVERSED), a_history(line, run))


def test_a_checkpoint_that_a_node_asked_for_is_no_call() -> None:
    line, run = [a_checkpoint(0, "r1")], a_run("r1", "c0")
    _, way = ways([], line)
    asked = a_call("r1", 0.0)
    asked = replace(asked, kind=CallKind.CHECKPOINT)
    assert not way.holds(run, asked, a_history(line, run))


def test_a_diff_counts_and_is_plain_data() -> None:
    end = a_checkpoint(3)
    diff = CheckpointDiff(
        old=a_checkpoint(0), new=end, state=state_diffs({"a": 1, "b": 1}, {"b": 2, "c": None, "d": 0})
    )
    assert diff.counts == {"state": {"added": 2, "removed": 1, "changed": 1}, "files": {}, "calls": {}}
    data = diff.to_dict()
    assert data["old"]["checkpoint"] == "c0"
    assert data["state"][0] == {"path": "state.a", "change": DiffKind.REMOVED.value, "old": 1}
    assert data["state"][2] == {"path": "state.c", "change": "added", "new": None}
    assert diff
    assert not CheckpointDiff(old=end, new=end)
