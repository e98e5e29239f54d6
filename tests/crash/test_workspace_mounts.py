"""File systems that are mounted in a workspace, or over it: they are not ours to take in or to empty."""

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
        with pytest.raises(WorkspaceError, match="is mounted there.*unmount it|not the folder that wtb made"):
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
