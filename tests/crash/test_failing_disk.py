"""A disk that fails now and then under a run: every failure is told as ours, and nothing is lost or repeated.

libfiu (Debian's fiu-utils) lets system calls of a process fail by chance. SQLite writes with pwrite and flushes with
fdatasync; workspaces and objects are written with write, renamed, and flushed with fsync. This file runs itself as a
program under `fiu-run -x`, and asserts there that each kind of failure was really met.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import wtb
from wtb.domain.errors import WTBError
from wtb.domain.execution import ExecutionStatus
from wtb.domain.tools import ToolCall

ROOT = Path(__file__).parents[2]
VISITS = 1_000 if os.environ.get("WTB_SOAK") else 100
AT_ONCE = 3
"""Steps that the run may take under one kind of failure, so that it meets all of them again and again."""

FAULTS = {
    "posix/io/rw/pwrite": 0.02,
    "posix/io/rw/write": 0.15,
    "posix/io/dir/rename": 0.2,
    "posix/io/sync/fdatasync": 0.15,
    "posix/io/sync/fsync": 0.1,
}
"""What fails, and how probably each time."""


@pytest.mark.parametrize("synchronous", ["NORMAL", "FULL"])
def test_a_run_on_a_disk_that_fails_now_and_then_loses_nothing_and_repeats_nothing(
    synchronous: str, tmp_path: Path
) -> None:
    if shutil.which("fiu-run") is None:
        raise RuntimeError("libfiu is not installed: run `make test`, or as root `apt-get install fiu-utils`.")
    done = subprocess.run(
        ["fiu-run", "-x", "-f", "", sys.executable, "-W", "error", __file__, synchronous, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


# What runs under fiu-run.


class FailingDisk:
    """Lets system calls of this process fail by chance, through the library that fiu-run loaded into it."""

    def __init__(self, seed: int) -> None:
        self._fiu = ctypes.CDLL("libfiu.so.0")
        enable = self._fiu.fiu_enable_random
        enable.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_float]
        self._fiu.fiu_set_prng_seed(seed)

    @contextmanager
    def failing(self, point: str, error: int) -> Iterator[None]:
        """Let calls fail within the block."""
        assert self._fiu.fiu_enable_random(point.encode(), 1, error, 0, FAULTS[point]) == 0
        try:
            yield
        finally:
            assert self._fiu.fiu_disable(point.encode()) == 0


class World:
    """A run on that disk, and what it did outside, as lines in files."""

    def __init__(self, folder: Path, synchronous: str) -> None:
        self.folder = folder
        self._settings: Mapping[str, Any] = {"folder": folder / "wtb", "sqlite_synchronous": synchronous}
        self.flow = self._flow()

    def bench(self) -> wtb.Bench:
        return wtb.Bench(**self._settings)

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def write(self, name: str, line: str) -> None:
        """Append a line in one system call: it happens or it fails."""
        descriptor = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(descriptor, f"{line}\n".encode())
        finally:
            os.close(descriptor)

    def _flow(self) -> wtb.Workflow:
        flow = wtb.Workflow("on-a-failing-disk")

        def happened(call: ToolCall) -> bool | None:
            return True if call.arguments["text"] in self.lines("sent") else None

        @wtb.tool(confirm=happened)
        def send(text: str) -> bool:
            self.write("sent", text)
            return True

        @wtb.tool(idempotent=True)
        def post(text: str, *, idempotency_key: str) -> bool:
            if f"{idempotency_key} {text}" not in self.lines("posted"):
                self.write("posted", f"{idempotency_key} {text}")
            return True

        def work(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
            visit = state["n"] + 1
            with (ctx.workspace / "log").open("a") as log:
                log.write(f"{visit}\n")
            text = f"{visit}-{ctx.step('measure', os.urandom(4).hex)}"
            ctx.tool(send, text=text)
            ctx.tool(post, text=text)
            (ctx.workspace / f"large-{visit % 10}").write_bytes(large(visit))
            return {"n": visit, "texts": text, "blob": large(visit)}

        flow.add_node("work", work, start=True)
        flow.edge("work", "work", when=f"n < {VISITS}")
        flow.edge("work", wtb.END, otherwise=True)
        flow.reducer("texts", wtb.append)
        return flow

    def go_on(self, *, dies: bool) -> Told:
        """Take some steps in a bench of its own; one that dies leaves the log of SQLite to the next."""
        try:
            bench = self.bench()
            run = bench.get("run")
            run = bench.resume(run.id, self.flow, max_steps=run.checkpoints[-1].step + AT_ONCE)
            status, error = run.status, run.error
            if not dies:
                bench.close()
        except WTBError as raised:
            return Told(str(raised), is_over=False)
        if error is None or error.type == "StepLimitReached":
            return Told("", is_over=status is ExecutionStatus.COMPLETED)
        # One of ours, or what the node's own write raised.
        assert error.type in ("OSError", "StorageUnavailable", "StorageError", "WorkspaceError"), error
        return Told(error.message, is_over=False)

    def check(self) -> None:
        """Everything is there exactly once."""
        with self.bench() as bench:
            run = bench.get("run")
            assert run.status is ExecutionStatus.COMPLETED
            assert list(run.history.path()) == [("work", visit) for visit in range(1, VISITS + 1)]
            assert self.lines("sent") == run.state["texts"]
            assert [line.split()[1] for line in self.lines("posted")] == run.state["texts"]
            line = run.history.lineage()
            assert all(after.parent_hash == before.hash for before, after in pairwise(line))
            with bench.services.storage.unit_of_work(readonly=True) as uow:
                assert [uow.checkpoints.load(each.id).checkpoint for each in line] == list(line)
            bench.services.workspaces.export(line[-1].file_commit, self.folder / "export")  # type: ignore[arg-type]
        found = {path.name: path.read_bytes() for path in (self.folder / "export").iterdir()}
        assert found.pop("log").decode().split() == [str(visit) for visit in range(1, VISITS + 1)]
        assert found == {f"large-{visit % 10}": large(visit) for visit in range(VISITS - 9, VISITS + 1)}
        connection = sqlite3.connect(self.folder / "wtb" / "wtb.db")
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()


class Told(NamedTuple):
    """What came of a few steps: an error, or none, and whether the run is over."""

    error: str
    is_over: bool


def large(visit: int) -> bytes:
    return f"{visit} ".encode() * 5_000


def in_a_fork(world: World, number: int, point: str, error: int, *, dies: bool) -> Told:
    """Take some steps in a process of its own, which may die instead of closing what it opened."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            disk = FailingDisk(number)
            with disk.failing(point, error):
                told = world.go_on(dies=dies)
            os.write(writable, json.dumps(told).encode())
        except BaseException:  # noqa: BLE001  the parent finds nothing to read
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as stream:
        told = Told(*json.load(stream))
    os.waitpid(pid, 0)
    return told


def main(synchronous: str, folder: Path) -> None:
    """Let the run meet one kind of failure after the other until it is over."""
    world = World(folder, synchronous)
    with world.bench() as bench:
        bench.create(world.flow, {"n": 0}, run_id="run")
    met: Counter[str] = Counter()
    kinds = itertools.product(FAULTS, (errno.ENOSPC, errno.EIO), (True, False))
    for number, (point, error, dies) in enumerate(itertools.cycle(kinds)):
        told = in_a_fork(world, number, point, error, dies=dies)
        assert "\n" not in told.error, told
        met[f"{point}: {told.error}"] += bool(told.error)
        if told.is_over:
            break
    world.check()
    seen = {point for point in FAULTS if any(times and fault.startswith(f"{point}:") for fault, times in met.items())}
    flushes = {point for point in FAULTS if "/sync/" in point}
    assert seen >= FAULTS.keys() - (flushes if synchronous == "NORMAL" else set()), met


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
