"""Comparing checkpoints over every storage: along a line, across branches and runs, with files and calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.run_writer import RunWriter
from wtb.application.time_travel import comparison
from wtb.bench import Bench
from wtb.domain.checkpoint import Checkpoint
from wtb.domain.diff import CheckpointDiff, DiffKind
from wtb.domain.errors import CheckpointNotFound, DamagedData, ExecutionNotFound
from wtb.domain.state import DeleteKey, SetValue, StateDelta
from wtb.runs import Run
from wtb.testing.stories import Story

LARGE = "".join(f"line {number}\n" for number in range(2_000))


@wtb.tool(effects="external")
def post_letter(to: str) -> str:
    return f"sent to {to}"


def a_flow() -> wtb.Workflow:
    flow = wtb.Workflow("letters")

    @flow.node(start=True)
    def begin(state: Any, ctx: Any) -> dict[str, Any]:
        (ctx.workspace / "note.txt").write_text("one\ntwo\n")
        (ctx.workspace / "large.txt").write_text(LARGE)
        (ctx.workspace / "image.bin").write_bytes(b"\0\1")
        return {"letters": [], "untouched": "x" * 10_000}

    @flow.node()
    def write(state: Any, ctx: Any) -> dict[str, Any]:
        number = len(state["letters"]) + 1
        ctx.tool(post_letter, f"{state.get('to', 'ann')} {number}")
        (ctx.workspace / "note.txt").write_text(f"one\n{number}\n")
        (ctx.workspace / "large.txt").write_text(LARGE.replace("line 1000\n", f"line {number}\n"))
        (ctx.workspace / "image.bin").write_bytes(b"\0" * number)
        return {"letters": [*state["letters"], {"number": number}]}

    flow.edge("begin", "write")
    flow.edge("write", "write", when="size(letters) < 3")
    flow.edge("write", wtb.END, otherwise=True)
    return flow


def values(diff: CheckpointDiff) -> list[tuple[str, str]]:
    return [(item.path, item.kind.value) for item in diff.state]


def calls(diff: CheckpointDiff) -> list[tuple[str, str, int]]:
    return [(item.kind.value, item.call.arguments["to"], item.visit) for item in diff.calls]


def test_two_steps_of_a_line_are_compared_in_state_files_and_calls(bench: Bench) -> None:
    run = bench.run(a_flow())
    diff = run.diff("begin", "write#2")
    assert values(diff) == [("state.letters[0]", "added"), ("state.letters[1]", "added")]
    assert [(item.path, item.kind.value) for item in diff.files] == [
        ("image.bin", "changed"),
        ("large.txt", "changed"),
        ("note.txt", "changed"),
    ]
    image, large, note = (item.text for item in diff.files)
    assert image is None
    assert note == ("--- a/note.txt", "+++ b/note.txt", "@@ -1,2 +1,2 @@", " one", "-two", "+2")
    assert large is not None
    assert large[2] == "@@ -998,7 +998,7 @@"
    assert calls(diff) == [("added", "ann 1", 1), ("added", "ann 2", 2)]


def test_the_other_way_round_everything_is_the_other_way_round(bench: Bench) -> None:
    run = bench.run(a_flow())
    diff = run.diff("write#2", "begin")
    assert values(diff) == [("state.letters[0]", "removed"), ("state.letters[1]", "removed")]
    assert diff.files[2].text == ("--- a/note.txt", "+++ b/note.txt", "@@ -1,2 +1,2 @@", " one", "-2", "+two")
    assert calls(diff) == [("removed", "ann 1", 1), ("removed", "ann 2", 2)]


def test_a_checkpoint_does_not_differ_from_itself(bench: Bench) -> None:
    run = bench.run(a_flow())
    assert not run.diff("write", 4)
    assert not run.diff(4)


def test_without_b_it_is_the_head(bench: Bench) -> None:
    run = bench.run(a_flow())
    assert values(run.diff("write#2")) == [("state.letters[2]", "added")]


def test_what_is_not_asked_for_is_left_out(bench: Bench) -> None:
    run = bench.run(a_flow())
    diff = run.diff(1, 4, state=False, calls=False, texts=False)
    assert (diff.state, diff.calls) == ((), ())
    assert [item.text for item in diff.files] == [None, None, None]
    assert diff.counts == {"state": {}, "files": {"changed": 3}, "calls": {}}


def test_branches_are_compared_from_where_they_parted(bench: Bench) -> None:
    run = forked(bench)
    diff = run.diff(head_of_main(run).id)
    assert values(diff) == [("state.to", "added")]
    assert diff.files == ()
    assert calls(diff) == [("removed", "ann 2", 2), ("added", "bob 2", 2)]


def forked(bench: Bench) -> Run:
    """Return a run that went one way, and from its second step on another way."""
    run = bench.run(a_flow(), run_id="letters", break_after=["write"]).resume()
    recorder = RunWriter(bench.services.storage, bench.services.clock, bench.services.ids)
    recorder.fork(recorder.load(run.id), run.history.resolve("write#1").id, "other")
    return run.resume(update={"to": "bob"})


def head_of_main(run: Run) -> Checkpoint:
    head = run.history.latest("main")
    assert head is not None
    return head


def test_runs_are_compared_with_each_other(bench: Bench) -> None:
    one = bench.run(a_flow(), run_id="one")
    bench.run(a_flow(), {"to": "bob"}, run_id="two")
    for target in ("two@", "two@4", "two@write#3"):
        diff = one.diff("write", target)
        assert values(diff) == [("state.to", "added")]
        assert len(diff.calls) == 6
        assert {item.call.execution_id for item in diff.calls if item.kind is DiffKind.REMOVED} == {"one"}
    assert values(one.diff("two@begin", "@")) == [
        *[(f"state.letters[{number}]", "added") for number in range(3)],
        ("state.to", "removed"),
    ]


def test_a_name_with_an_at_sign_is_a_name(bench: Bench) -> None:
    flow = wtb.Workflow("named")

    @flow.node(start=True)
    def begin(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.checkpoint("before @ review")
        return {"x": 1}

    run = bench.run(flow)
    assert values(run.diff("before @ review")) == [("state.x", "added")]


def test_what_nobody_knows_is_named(bench: Bench) -> None:
    run = bench.run(a_flow(), run_id="one")
    with pytest.raises(CheckpointNotFound, match="nowhere"):
        run.diff("nowhere", 1)
    with pytest.raises(CheckpointNotFound, match="nowhere"):
        run.diff(1, "one@nowhere")
    with pytest.raises(ExecutionNotFound, match="another"):
        run.diff(1, "another@3")


def test_in_the_middle_of_a_node_the_calls_so_far_count(bench: Bench) -> None:
    flow = wtb.Workflow("fine")

    @flow.node(start=True)
    def begin(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.tool(post_letter, "a")
        ctx.checkpoint("half")
        ctx.tool(post_letter, "b")
        return {"done": True}

    run = bench.run(flow)
    assert calls(run.diff(0, "half")) == [("added", "a", 1)]
    assert calls(run.diff("half")) == [("added", "b", 1)]
    assert calls(run.diff(0)) == [("added", "a", 1), ("added", "b", 1)]


def test_the_members_of_a_superstep_have_their_calls_at_the_barrier(bench: Bench) -> None:
    flow = wtb.Workflow("wide")
    flow.add_node("begin", lambda state: {}, start=True)
    for name in ("left", "right"):
        flow.add_node(name, lambda state, ctx, name=name: {name: ctx.tool(post_letter, name)})
        flow.edge("begin", name)
    run = bench.run(flow)
    assert sorted(calls(run.diff("begin"))) == [("added", "left", 1), ("added", "right", 1)]
    assert calls(run.diff(0, "begin")) == []


def test_a_deleted_checkpoint_cannot_be_compared(bench: Bench) -> None:
    run = bench.run(a_flow())
    gone = run.history.resolve(2)
    with bench.services.storage.unit_of_work() as uow:
        uow.checkpoints.delete([gone.id])
        uow.commit()
    with pytest.raises(CheckpointNotFound, match=gone.id):
        bench.services.comparison.compare(gone.id, run.history.resolve(3).id)
    assert calls(run.diff(1, 3)) == [("added", "ann 1", 1), ("added", "ann 2", 2)]


def test_a_damaged_file_is_never_shown(tmp_path: Path) -> None:
    with Bench(folder=tmp_path / "wtb") as bench:
        run = bench.run(a_flow())
        entry = run.files(1)["large.txt"]
        (path,) = (tmp_path / "wtb" / "objects").rglob(f"*{entry.digest.hex()[2:]}")
        path.chmod(0o600)
        path.write_bytes(path.read_bytes().replace(b"line 7\n", b"line 8\n"))
        with pytest.raises(DamagedData, match=r"large\.txt.*damaged"):
            run.diff(1, 2)
        path.unlink()
        with pytest.raises(DamagedData, match=r"large\.txt"):
            run.diff(1, 2)
        assert len(run.diff(1, 2, texts=False).files) == 3


def test_states_are_compared_however_they_came_about(bench: Bench) -> None:
    services = bench.services
    recorder = RunWriter(services.storage, services.clock, services.ids)
    at = recorder.start({"name": "flow", "version": "1"}, {"a": [1, {"b": True}], "gone": 1}, execution_id="run-1")
    delta = StateDelta.of(a=SetValue([1, {"b": 1}, 2]), gone=DeleteKey(), new=SetValue(None))
    at = recorder.complete(at, recorder.node_run(at, "n", 1), delta)
    assert [item.to_dict() for item in bench.get("run-1").diff(0).state] == [
        {"path": "state.a[1].b", "change": "changed", "old": True, "new": 1},
        {"path": "state.a[2]", "change": "added", "new": 2},
        {"path": "state.gone", "change": "removed", "old": 1},
        {"path": "state.new", "change": "added", "new": None},
    ]


def test_the_tree_has_branches_and_forks_into_other_runs(bench: Bench) -> None:
    run = forked(bench)
    services = bench.services
    left = run.history.resolve("begin")
    other = Story(services.storage, services.ids, services.clock, forked_from=left)
    (line,) = run.tree().lines
    assert [step.checkpoint.step for step in line.steps] == [0, 1, 2, 3, 4]
    assert [branch.name for branch in line.steps[-1].heads] == ["other"]
    assert [fork.execution_id for fork in line.steps[1].forks] == [other.id]
    (side,) = line.steps[2].lines
    assert [step.checkpoint.id for step in side.steps] == [
        checkpoint.id for checkpoint in run.history.lineage("main")[3:]
    ]
    (line,) = bench.get(other.id).tree().lines
    assert [step.checkpoint.execution_id for step in line.steps] == [run.id, run.id]
    assert line.steps[-1].active
    assert [fork.execution_id for step in line.steps for fork in step.forks] == []


def test_contents_are_read_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_BATCH", 2)
    monkeypatch.setattr(comparison, "_MOST_BYTES", 10)
    with Bench("memory://") as bench:
        diff = bench.run(a_flow()).diff(1, 2)
    assert [(item.path, item.text is None) for item in diff.files] == [
        ("image.bin", True),
        ("large.txt", False),
        ("note.txt", True),
    ]
