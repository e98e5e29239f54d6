"""Workspaces on a file system that can clone: a second folder with the same files takes no space."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_CLONED = """
import os, random, sys
from pathlib import Path
from tests.workspaces import described, workspaces_in, write
from wtb.infrastructure.files.blocks import BlockedObjects, BlockSizes
from wtb.infrastructure.files.local_objects import LocalObjectStore

home = Path(sys.argv[1])

def used():
    os.sync()
    found = os.statvfs(home)
    return (found.f_blocks - found.f_bfree) * found.f_frsize

objects = BlockedObjects(LocalObjectStore(home / "objects", durable=False), BlockSizes(4 << 20, 1 << 20))
workspaces = workspaces_in(home, objects=objects)
folder = workspaces.path("run", "branch")
chance = random.Random(1)
write(folder, {"blocks": chance.randbytes((16 << 20) + 7), "one object": chance.randbytes(3 << 20)})
commit = workspaces.snapshot(folder)
before = used()
other = workspaces.materialise(workspaces.path("run", "other"), commit)
assert used() - before < 2 << 20, used() - before
with (other / "blocks").open("r+b") as stream:
    stream.seek(9 << 20)
    stream.write(b"changed")
changed = workspaces.snapshot(other, commit)
workspaces.restore(folder, changed)
assert used() - before < 8 << 20, used() - before
workspaces.restore(other, commit)
assert (folder / "blocks").read_bytes()[9 << 20 :][:7] == b"changed"
assert (other / "blocks").read_bytes()[9 << 20 :][:7] != b"changed"
"""


@pytest.mark.skipif(
    subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0,
    reason="needs the right to mount; make soak runs as a user who has it",
)
def test_folders_with_the_same_files_share_their_bytes_where_the_file_system_can(tmp_path: Path) -> None:
    make = shutil.which("mkfs.xfs", path="/usr/sbin:/sbin:/usr/bin")
    if make is None:
        raise RuntimeError("mkfs.xfs is not installed: run `make test`, or as root `apt-get install xfsprogs`.")
    image, home = tmp_path / "image", tmp_path / "home"
    home.mkdir()
    with image.open("wb") as stream:
        stream.truncate(320 << 20)
    subprocess.run([make, "-q", "-m", "reflink=1", str(image)], check=True, timeout=60)
    script = 'mount -o loop "$1" "$2" && exec "$3" -c "$4" "$2"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", str(image), str(home), sys.executable, _CLONED],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "mount:" in done.stderr:
        pytest.skip(f"no XFS can be mounted here: {done.stderr}")
    assert done.returncode == 0, done.stderr
