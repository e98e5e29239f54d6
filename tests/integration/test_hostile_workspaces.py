"""Nodes that turn their workspace against us: nothing outside is taken in, changed or removed, and no run is wedged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.workspaces import described, write
from wtb import RetryPolicy, Workflow
from wtb.bench import Bench
from wtb.domain.execution import ExecutionStatus

Attack = Callable[[Path, Path], None]


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder that belongs to somebody else; nothing may change in it."""
    outside = tmp_path / "outside"
    write(outside, {"x": b"precious", "d/y": b"precious"})
    before = described(outside)
    yield outside
    assert described(outside) == before


def link_for_workspace(workspace: Path, outside: Path) -> None:
    shutil.rmtree(workspace)
    workspace.symlink_to(outside)


def other_folder(workspace: Path, outside: Path) -> None:
    workspace.rename(workspace.with_name("moved"))
    write(workspace, {"x": b"precious"})


def attacked(attack: Attack, outside: Path) -> Workflow:
    flow = Workflow("attacked")
    tries: list[int] = []

    @flow.node(start=True)
    def first(state: Any, ctx: Any) -> None:
        (ctx.workspace / "first").write_text("1")

    @flow.node
    def second(state: Any, ctx: Any) -> None:
        tries.append(1)
        (ctx.workspace / "second").write_text("2")
        if len(tries) == 1:
            attack(ctx.workspace, outside)

    flow.edge("first", "second")
    return flow


@pytest.mark.parametrize("attack", [link_for_workspace, other_folder])
def test_a_workspace_that_was_replaced_is_refused_and_the_run_goes_on_in_another(
    bench: Bench, outside: Path, attack: Attack
) -> None:
    run = bench.run(attacked(attack, outside), {}, run_id="r1")
    assert run.error is not None
    assert "is not the folder that wtb created" in run.error.message
    run.rollback("first")
    assert {path.name for path in run.workspace.iterdir()} == {"first"}
    assert run.resume().status is ExecutionStatus.COMPLETED
    assert sorted(run.files()) == ["first", "second"]
    run.rollback(0)
    assert list(run.workspace.iterdir()) == []


def test_deleting_a_run_leaves_what_its_links_point_to(bench: Bench, outside: Path) -> None:
    run = bench.run(attacked(link_for_workspace, outside), {}, run_id="r1")
    folder = run.workspace.parents[1]
    run.delete()
    assert not folder.exists()


def test_a_branch_that_was_replaced_by_a_link_is_not_followed_by_anybody(bench: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write(outside, {"files/x": b"precious"})
    before = described(outside)

    def attack(workspace: Path, outside: Path) -> None:
        workspace.parent.rename(workspace.parent.with_name("moved"))
        workspace.parent.symlink_to(outside)

    run = bench.run(attacked(attack, outside), {}, run_id="r1")
    assert run.status is ExecutionStatus.FAILED
    assert bench.get("r1").status is ExecutionStatus.FAILED
    run.delete()
    assert described(outside) == before


def test_hard_links_to_files_outside_are_stored_and_never_written_through(bench: Bench, outside: Path) -> None:
    def attack(workspace: Path, outside: Path) -> None:
        (workspace / "first").unlink()
        os.link(outside / "x", workspace / "first")

    run = bench.run(attacked(attack, outside), {}, run_id="r1")
    assert run.status is ExecutionStatus.COMPLETED
    run.rollback("first")
    assert (run.workspace / "first").read_text() == "1"
    run.redo()
    assert (run.workspace / "first").read_text() == "precious"
    run.delete()


def nested(name: str, depth: int) -> Attack:
    def attack(workspace: Path, outside: Path) -> None:
        fd = os.open(workspace, os.O_RDONLY)
        for _ in range(depth):
            os.mkdir(name, dir_fd=fd)
            below = os.open(name, os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = below
        os.close(fd)

    return attack


@pytest.fixture
def deep_bench(tmp_path: Path) -> Iterator[Bench]:
    """A bench whose folder goes at the end whatever happens: pytest's own clean-up cannot remove what is so deep."""
    with Bench(folder=tmp_path / "wtb") as bench:
        yield bench
    subprocess.run(["rm", "-rf", str(tmp_path / "wtb")], check=True)


def test_folders_nested_1500_deep_are_kept_rolled_back_and_deleted(deep_bench: Bench, tmp_path: Path) -> None:
    run = deep_bench.run(attacked(nested("d", 1500), tmp_path), {})
    assert run.status is ExecutionStatus.COMPLETED
    assert len(run.files()) == 1502
    run.rollback("first")
    assert [path.name for path in run.workspace.iterdir()] == ["first"]
    nested("d", 1500)(run.workspace, tmp_path)
    folder = run.workspace.parents[1]
    run.delete()
    assert not folder.exists()


def test_folders_nested_too_deeply_for_any_path_are_refused_and_the_run_goes_on(
    deep_bench: Bench, tmp_path: Path
) -> None:
    run = deep_bench.run(attacked(nested("a-longer-name", 400), tmp_path), {})
    assert run.error is not None
    assert "nested so deeply" in run.error.message
    assert run.resume().status is ExecutionStatus.COMPLETED
    assert sorted(run.files()) == ["first", "second"]


def test_a_late_write_of_an_attempt_that_ran_out_of_time_reaches_no_later_step(bench: Bench) -> None:
    flow, gone_on, written = Workflow("late"), threading.Event(), threading.Event()
    tries: list[int] = []

    @flow.node(start=True, timeout_s=0.2, retry=RetryPolicy(times=2, wait_s=0))
    def slow(state: Any, ctx: Any) -> None:
        tries.append(1)
        workspace = ctx.workspace
        if len(tries) == 1:
            gone_on.wait(20)
            (workspace / "late").write_text("from the attempt that was given up")
            written.set()

    @flow.node
    def later(state: Any, ctx: Any) -> None:
        (ctx.workspace / "mine").write_text("mine")
        gone_on.set()
        assert written.wait(20)

    flow.edge("slow", "later")
    run = bench.run(flow, {})
    assert run.status is ExecutionStatus.COMPLETED
    assert list(run.files()) == ["mine"]


def test_an_attempt_that_ran_out_of_time_before_it_looked_gets_no_workspace(bench: Bench) -> None:
    flow, gone_on, refused = Workflow("late"), threading.Event(), threading.Event()

    @flow.node(start=True, timeout_s=0.2)
    def slow(state: Any, ctx: Any) -> None:
        gone_on.wait(20)
        try:
            ctx.workspace.joinpath("late").write_text("x")
        except Exception:  # noqa: BLE001  whatever it is: it must not get one
            refused.set()

    run = bench.run(flow, {})
    assert run.status is ExecutionStatus.FAILED
    gone_on.set()
    assert refused.wait(20)


_ORPHAN = """
import os, signal, subprocess, sys, time
from wtb import Workflow
from wtb.bench import Bench

flow = Workflow("orphan")

@flow.node(start=True)
def writes(state, ctx):
    target = ctx.workspace / "result"
    if os.environ.get("DIES"):
        late = f"import sys; sys.stdin.read(); open({str(target)!r}, 'w').write('late')"
        subprocess.Popen([sys.executable, "-c", late],
                         stdin=int(os.environ["PIPE"]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.kill(os.getpid(), signal.SIGKILL)
    target.write_text("new")

@flow.node
def ends(state, ctx):
    return {"seen": (ctx.workspace / "result").read_text()}

flow.edge("writes", "ends")
"""


def test_a_child_that_outlives_a_killed_process_writes_into_no_later_attempt(tmp_path: Path) -> None:
    """The child waits for the end of its input, which comes after the run was resumed and its node has run again."""
    (tmp_path / "orphan.py").write_text(textwrap.dedent(_ORPHAN))
    start = "from orphan import *\nwith Bench(folder='wtb') as bench: bench.run(flow, {}, run_id='r1')"
    end_of_input, hold = os.pipe()
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    dead = subprocess.run(
        [sys.executable, "-c", start],
        cwd=tmp_path,
        env={**env, "DIES": "1", "PIPE": str(end_of_input)},
        pass_fds=[end_of_input],
        timeout=60,
        check=False,
    )
    assert dead.returncode == -9
    os.close(end_of_input)
    go_on = "from orphan import *\nwith Bench(folder='wtb') as bench: print(bench.resume('r1', flow).workspace)"
    done = subprocess.run(
        [sys.executable, "-c", go_on], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout.strip())
    os.close(hold)
    places = [path for path in (tmp_path / "wtb/workspaces").rglob("result") if path.read_text() == "late"]
    for _ in range(500):
        if places:
            break
        threading.Event().wait(0.01)
        places = [path for path in (tmp_path / "wtb/workspaces").rglob("result") if path.read_text() == "late"]
    assert places
    assert (folder / "result").read_text() == "new"
