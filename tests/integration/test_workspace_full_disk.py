"""A disk that is full: a clear error, and nothing of what was there is lost."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workspaces import described, sqlite_storage, workspaces_in, write
from wtb.domain.errors import StorageError
from wtb.domain.files import FileCommitId
from wtb.infrastructure.files.blocks import SMALL_OBJECTS, BlockedObjects
from wtb.infrastructure.sql.objects import SqlObjectStore

MB = 1 << 20


def random(size: int) -> bytes:
    return os.urandom(size)


def fill(disk: Path, leave: int) -> None:
    """Fill a disk up to so many free bytes."""
    with (disk / "filler").open("wb") as file:
        file.write(b"\0" * max(0, shutil.disk_usage(disk).free - leave))


def snapshots_on_a_full_disk(disk: Path) -> None:
    workspaces = workspaces_in(disk / "home", sqlite_storage(disk / "wtb.db"))
    folder = disk / "work"
    write(folder, {"a": random(100_000), "d/b": random(3_000)})
    commit_id, before = workspaces.snapshot(folder), described(folder)
    write(folder, {"c": random(MB), "e": random(MB)})
    after = described(folder)
    fill(disk, leave=MB + 300_000)
    with pytest.raises(StorageError, match="disk is full"):
        workspaces.snapshot(folder, commit_id)
    assert described(folder) == after
    (disk / "filler").unlink()
    later = workspaces.snapshot(folder, commit_id)
    assert workspaces.restore(folder, commit_id).removed == {"c", "e"}
    assert described(folder) == before
    workspaces.restore(folder, later)
    assert described(folder) == after


def restores_on_a_full_disk(disk: Path) -> None:
    workspaces = workspaces_in(disk / "home", sqlite_storage(disk / "wtb.db"))
    folder = disk / "work"
    write(folder, {f"d/{number}": random(300_000) for number in range(8)} | {"gone": b"1"})
    commit_id, before = workspaces.snapshot(folder), described(folder)
    for number in range(8):
        write(folder, {f"d/{number}": b"changed"})
    (folder / "gone").unlink()
    write(folder, {"new": b"2"})
    after = described(folder)
    fill(disk, leave=MB)
    with pytest.raises(StorageError, match="disk is full"):
        workspaces.restore(folder, commit_id)
    assert described(folder) == after
    (disk / "filler").unlink()
    workspaces.restore(folder, commit_id)
    assert described(folder) == before


def commits_on_a_full_disk(disk: Path) -> None:
    """Small contents fill the database's disk, not the object store's."""
    workspaces = workspaces_in(disk / "home", sqlite_storage(disk / "wtb.db"))
    folder = disk / "work"
    write(folder, {"a": b"1"})
    commit_id: FileCommitId = workspaces.snapshot(folder)
    write(folder, {f"{number}": random(3_000) for number in range(500)})
    fill(disk, leave=200_000)
    with pytest.raises(StorageError, match="disk is full"):
        workspaces.snapshot(folder, commit_id)
    (disk / "filler").unlink()
    later = workspaces.snapshot(folder, commit_id)
    after = described(folder)
    workspaces.restore(folder, commit_id)
    workspaces.restore(folder, later)
    assert described(folder) == after


def objects_in_the_database_on_a_full_disk(disk: Path) -> None:
    storage = sqlite_storage(disk / "wtb.db")
    objects = BlockedObjects(SqlObjectStore(storage.database, storage.clock), SMALL_OBJECTS)
    workspaces = workspaces_in(disk / "home", storage, objects)
    folder = disk / "work"
    write(folder, {"a": random(100_000)})
    commit_id, before = workspaces.snapshot(folder), described(folder)
    write(folder, {"c": random(MB)})
    after = described(folder)
    fill(disk, leave=300_000)
    with pytest.raises(StorageError, match="disk is full"):
        workspaces.snapshot(folder, commit_id)
    (disk / "filler").unlink()
    later = workspaces.snapshot(folder, commit_id)
    workspaces.restore(folder, commit_id)
    assert described(folder) == before
    workspaces.restore(folder, later)
    assert described(folder) == after


_STORIES = {
    story.__name__: story
    for story in (
        snapshots_on_a_full_disk,
        restores_on_a_full_disk,
        commits_on_a_full_disk,
        objects_in_the_database_on_a_full_disk,
    )
}


@pytest.mark.parametrize("story", _STORIES)
def test_a_full_disk_is_told_and_loses_nothing(story: str, tmp_path: Path) -> None:
    """In a mount namespace of its own, which needs no root where user namespaces are allowed."""
    inner = f"mount -t tmpfs -o size=8m tmpfs {tmp_path} && exec {sys.executable} -m {__name__} {story} {tmp_path}"
    user = [] if os.getuid() == 0 else ["--map-root-user"]
    command = ["unshare", "--mount", *user, "sh", "-c", inner]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{done.stderr}\n(a small tmpfs is needed: run as root, or allow user namespaces)"


if __name__ == "__main__":
    _STORIES[sys.argv[1]](Path(sys.argv[2]))
