"""Clones instead of copies, with a file system that is played: what it says and does is verified like a copy."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workspaces import described, workspaces_in, write
from wtb.application.workspaces import Workspaces
from wtb.domain.errors import DamagedData
from wtb.infrastructure.files import reflink
from wtb.infrastructure.files.blocks import BlockedObjects, BlockSizes
from wtb.infrastructure.files.local_objects import LocalObjectStore
from wtb.testing.object_store import content_of

SMALL = BlockSizes(above_bytes=200_000, block_bytes=100_000)
FILES: dict[str, bytes | str | None] = {
    "small": b"x",
    "one object": content_of(150_000),
    "blocks": content_of(345_000),
    "another": content_of(70_000),
}


class PlayedFileSystem:
    """Does what FICLONERANGE does, or fails when told to."""

    def __init__(self, fails: Callable[[int], int | None] = lambda call: None, spoils: bool = False) -> None:
        self.calls = 0
        self._fails = fails
        self._spoils = spoils

    def ioctl(self, target: int, request: int, argument: bytes) -> int:
        assert request == 0x4020940D
        self.calls += 1
        code = self._fails(self.calls)
        if code is not None:
            raise OSError(code, os.strerror(code))
        source, offset, length, at = struct.unpack("qQQQ", argument)
        assert (offset, length) == (0, 0)
        content = os.pread(source, os.fstat(source).st_size, 0)
        os.pwrite(target, content[:-1] + b"\0" if self._spoils else content, at)
        return 0


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    objects = BlockedObjects(LocalObjectStore(tmp_path / "objects", durable=False), SMALL)
    return workspaces_in(tmp_path, objects=objects)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[PlayedFileSystem], PlayedFileSystem]:
    def played(system: PlayedFileSystem) -> PlayedFileSystem:
        monkeypatch.setattr("wtb.infrastructure.files.reflink.fcntl.ioctl", system.ioctl)
        monkeypatch.setattr(reflink, "_refused", set())
        return system

    return played


def restored_elsewhere(workspaces: Workspaces) -> None:
    """Check that a second folder gets the same files."""
    folder = workspaces.path("run", "branch")  # type: ignore[arg-type]
    write(folder, FILES)
    commit = workspaces.snapshot(folder)
    other = workspaces.materialise(workspaces.path("run", "other"), commit)  # type: ignore[arg-type]
    assert described(other) == described(folder)


Play = Callable[[PlayedFileSystem], PlayedFileSystem]


def test_large_files_are_cloned_whole_or_block_by_block(workspaces: Workspaces, play: Play) -> None:
    system = play(PlayedFileSystem())
    restored_elsewhere(workspaces)
    assert system.calls == 2 + 4


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV])
def test_a_file_system_that_cannot_clone_is_asked_once(workspaces: Workspaces, play: Play, code: int) -> None:
    system = play(PlayedFileSystem(lambda call: code))
    restored_elsewhere(workspaces)
    assert system.calls == 1


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSPC, errno.EPERM])
def test_a_clone_that_fails_half_way_is_made_up_for_by_a_copy(workspaces: Workspaces, play: Play, code: int) -> None:
    system = play(PlayedFileSystem(lambda call: code if call % 2 == 0 else None))
    restored_elsewhere(workspaces)
    assert system.calls > 2


def test_a_clone_that_is_not_like_its_source_is_refused(workspaces: Workspaces, play: Play) -> None:
    play(PlayedFileSystem(spoils=True))
    with pytest.raises(DamagedData, match=r"cannot be restored: its content .* is damaged"):
        restored_elsewhere(workspaces)
