"""File systems that are mounted in a workspace, or over it: they are not ours to take in or to empty."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workspaces import described, write

_MOUNTED = """
import subprocess, sys
from pathlib import Path
import pytest
from tests.workspaces import described, workspaces_in, write
from wtb.domain.errors import WorkspaceError

home, kind, place = Path(sys.argv[1]), *sys.argv[2:]
outside = home / "outside"
workspaces = workspaces_in(home / "home")
folder = workspaces.path("run", "branch")
write(folder, {"d": None})
commit = workspaces.snapshot(folder)
point = folder.parent / place
options = ["--bind", str(outside)] if kind == "bind" else ["-t", "tmpfs", "none"]
subprocess.run(["mount", *options, str(point)], check=True)
write(point, {} if kind == "bind" else {"precious": b"1"})
before = described(point)
for service in (workspaces, workspaces_in(home / "home")):
    for access in (lambda: service.prepare(folder, None), lambda: service.restore(folder, None)):
        with pytest.raises(WorkspaceError, match="is mounted there.*unmount it|not the folder that wtb created"):
            access()
    service.discard(folder)
    service.discard_all("run")
assert described(point) == before
"""


@pytest.mark.skipif(
    subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0,
    reason="needs the right to mount; make soak runs as a user who has it",
)
@pytest.mark.parametrize("kind", ["bind", "tmpfs"])
@pytest.mark.parametrize("place", ["files/d", "files"])
def test_mounts_are_neither_read_nor_emptied(tmp_path: Path, kind: str, place: str) -> None:
    write(tmp_path / "outside", {"x": b"precious", "d/y": b"precious"})
    before = described(tmp_path / "outside")
    done = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", _MOUNTED, str(tmp_path), kind, place],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert described(tmp_path / "outside") == before


_RUN_WITH_MOUNT = """
import subprocess, sys
from contextlib import suppress
from pathlib import Path
import wtb
from tests.workspaces import described, write
from wtb.domain.errors import WTBError

home, kind, then = Path(sys.argv[1]), *sys.argv[2:]
outside, mounted, tries = home / "outside", [], []
OPTIONS = {
    "tmpfs": ["-t", "tmpfs", "none"],
    "bind": ["--bind", str(outside)],
    "file": ["--bind", str(outside / "x")],
    "overlay": ["-t", "overlay", "none", "-o", f"lowerdir={outside}:{home / 'empty'}"],
    "proc": ["-t", "proc", "proc"],
}

def make(state, ctx):
    write(ctx.workspace, {"kept": b"1", "a/b/c/here": b"2", "a/file": b"3"})

def mount(state, ctx):
    tries.append(1)
    if len(tries) > 1:
        return
    point = ctx.workspace / ("a/file" if kind == "file" else "a/b/c")
    if kind == "nested":
        subprocess.run(["mount", *OPTIONS["tmpfs"], str(point)], check=True)
        mounted.append(point)
        point = point / "inner"
        point.mkdir()
    subprocess.run(["mount", *OPTIONS["bind" if kind == "nested" else kind], str(point)], check=True)
    mounted.append(point)

def seen():
    return None if kind == "proc" else described(outside)

(home / "empty").mkdir()
flow = wtb.Workflow("mounting")
flow.add_node("make", make, start=True)
flow.add_node("mount", mount)
flow.edge("make", "mount")
before = seen()
with wtb.Bench(folder=home / "wtb") as bench:
    run = bench.run(flow, {})
    assert run.status == "failed", run.status
    assert "is mounted there" in run.error.message or "not the folder that wtb created" in run.error.message, run.error
    assert seen() == before
    if then == "unmounted":
        for point in reversed(mounted):
            subprocess.run(["umount", str(point)], check=True)
        run = run.resume()
        assert run.status == "completed", run.error
        assert set(run.files()) == {"kept", "a/b/c/here", "a/file", "a", "a/b", "a/b/c"}, run.files()
        run.rollback("make")
    else:
        for change in (lambda: run.rollback("make"), lambda: run.resume(), lambda: run.delete()):
            with suppress(WTBError):
                change()
            assert seen() == before
            assert all(point.exists() for point in mounted)
            for point in mounted:
                assert subprocess.run(["mountpoint", "-q", str(point)], check=False).returncode == 0, point
        bench.services.integrity.repair()
    assert seen() == before
"""


@pytest.mark.skipif(not os.environ.get("WTB_SOAK"), reason="needs the right to mount: `make soak` runs it")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("then", ["unmounted", "left"])
@pytest.mark.parametrize("kind", ["tmpfs", "bind", "file", "overlay", "proc", "nested"])
def test_a_node_that_mounts_something_deep_in_its_workspace_is_refused_and_nothing_there_is_touched(
    tmp_path: Path, kind: str, then: str
) -> None:
    write(tmp_path / "outside", {"x": b"precious", "d/y": b"precious"})
    done = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", _RUN_WITH_MOUNT, str(tmp_path), kind, then],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
