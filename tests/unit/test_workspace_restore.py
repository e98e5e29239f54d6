"""Restores: a folder becomes exactly the tree of a commit, nothing outside it is touched, and no half is left."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.workspaces import described, memory_storage, workspaces_in, write
from wtb.application.workspaces import Workspaces
from wtb.domain.errors import DamagedData, UnsafePath, WorkspaceError
from wtb.domain.files import EMPTY_TREE, TreeDelta, folder_entry, link_entry
from wtb.infrastructure.files import swap
from wtb.infrastructure.files.confined import ConfinedFolder
from wtb.infrastructure.files.scanner import SMALL_BYTES
from wtb.testing.file_commits import new_file

LARGE = b"large" * SMALL_BYTES
CHANGES = 41
"""How often the restore below asks for a change of a folder, or for the way to undo one."""


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    return workspaces_in(tmp_path / "home")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder beside the workspace that nothing may change."""
    outside = tmp_path / "outside"
    write(outside, {"x": b"precious", "d/y": b"precious"})
    before = described(outside)
    yield outside
    assert described(outside) == before


_STATES: dict[str, dict[str, bytes | str | None]] = {
    "nothing": {},
    "files": {"a": b"1", "b": LARGE, "d/c": b"3", "d/e/f": b"4"},
    "other contents": {"a": b"2", "b": LARGE + b"2", "d/c": b"", "d/e/f": LARGE},
    "folders for files": {"a/x": b"1", "b": None, "d": b"file"},
    "files for folders": {"a": b"1", "d": b"1"},
    "links": {"a": "d", "d": "/etc", "b": "nowhere"},
    "links inside": {"d/c": "../a", "d/e": ".."},
    "empty folders": {"d/e/f": None, "x/y/z": None},
    "odd names": {"a-b": b"", "a": b"", "a.b": b"", "d/a": b"", "d-e": b"", "\udcff": b"1", "☃/ ": b"2", "-rf": b""},
    "deep": {"/".join("abcdefghijklmnopqrstuvwxyz"): b"z"},
}


@pytest.mark.parametrize("start", _STATES)
def test_any_state_becomes_any_other(workspaces: Workspaces, tmp_path: Path, start: str) -> None:
    made = {}
    for name, content in _STATES.items():
        write(tmp_path / name, content)
        (tmp_path / name).mkdir(exist_ok=True)
        made[name] = workspaces.snapshot(tmp_path / name)
    live = workspaces.materialise(tmp_path / "live", made[start])
    for name, commit_id in made.items():
        workspaces.restore(live, commit_id)
        assert described(live) == described(tmp_path / name)
        workspaces.restore(live, made[start])
        assert described(live) == described(tmp_path / start)
        assert workspaces.snapshot(live) == made[start]


def test_only_what_differs_is_touched(workspaces: Workspaces, folder: Path) -> None:
    write(folder, {"same": b"1", "changed": b"1", "gone": b"1"})
    commit_id = workspaces.snapshot(folder)
    before = (folder / "same").stat()
    write(folder, {"changed": b"2", "new": b"2"})
    (folder / "gone").unlink()
    delta = workspaces.restore(folder, commit_id)
    assert set(delta.put) == {"changed", "gone"}
    assert delta.removed == {"new"}
    assert (folder / "same").stat() == before
    assert not workspaces.restore(folder, commit_id)


def test_modes_of_files_and_folders_come_back(workspaces: Workspaces, folder: Path) -> None:
    write(folder, {"d/e/f": b"1", "g": b"2", "h": None})
    modes = {"d/e/f": 0o400, "d/e": 0o500, "d": 0o550, "g": 0o755, "h": 0o711}
    for path, mode in modes.items():
        (folder / path).chmod(mode)
    before = described(folder)
    commit_id = workspaces.snapshot(folder)
    for path in reversed(modes):
        (folder / path).chmod(0o777)
    (folder / "d/e/f").unlink()
    workspaces.restore(folder, commit_id)
    assert described(folder) == before
    assert described(workspaces.materialise(folder.parent / "new", commit_id)) == before


def test_a_hard_link_to_the_outside_is_not_written_through(workspaces: Workspaces, folder: Path, outside: Path) -> None:
    write(folder, {"a": b"1"})
    commit_id = workspaces.snapshot(folder)
    (folder / "a").unlink()
    os.link(outside / "x", folder / "a")
    workspaces.restore(folder, commit_id)
    assert (folder / "a").read_bytes() == b"1"


def test_objects_are_copied_never_linked(workspaces: Workspaces, folder: Path) -> None:
    write(folder, {"a": LARGE})
    commit_id = workspaces.snapshot(folder)
    (folder / "a").unlink()
    workspaces.restore(folder, commit_id)
    assert (folder / "a").stat().st_nlink == 1
    write(folder, {"a": b"changed in place"})
    workspaces.restore(folder, commit_id)
    assert (folder / "a").read_bytes() == LARGE


class TestNothingOutside:
    @pytest.mark.parametrize("parent", ["d", "d/e"])
    def test_a_folder_that_became_a_link_to_the_outside_is_replaced(
        self, workspaces: Workspaces, folder: Path, outside: Path, parent: str
    ) -> None:
        write(folder, {"d/e/x": b"mine", "d/e/y": b"mine", "d/y": b"mine"})
        commit_id, before = workspaces.snapshot(folder), described(folder)
        (folder / parent).rename(folder.parent / "moved")
        (folder / parent).symlink_to(outside)
        workspaces.restore(folder, commit_id)
        assert described(folder) == before

    def test_a_link_to_the_outside_is_removed_without_what_it_points_to(
        self, workspaces: Workspaces, folder: Path, outside: Path
    ) -> None:
        write(folder, {"d/x": b"mine"})
        commit_id, before = workspaces.snapshot(folder), described(folder)
        write(folder, {"l": str(outside), "d/l": str(outside / "d"), "n/l": str(outside)})
        workspaces.restore(folder, commit_id)
        assert described(folder) == before

    def test_no_tree_leads_out(self, tmp_path: Path) -> None:
        storage = memory_storage()
        hostile = [
            TreeDelta({"l": link_entry("l", "/tmp"), "l/x": new_file("l/x")}),
            TreeDelta({"../x": new_file("../x")}),
            TreeDelta({"/tmp/x": new_file("/tmp/x")}),
            TreeDelta({"d": folder_entry("d", 0o755), "d/..": folder_entry("d/..", 0o755)}),
            TreeDelta({".wtb": link_entry(".wtb", "/tmp")}),
        ]
        for delta in hostile:
            with storage.unit_of_work() as uow, pytest.raises(UnsafePath):
                uow.files.save(None, delta)
            with pytest.raises(UnsafePath):
                EMPTY_TREE.apply(delta)

    @pytest.mark.parametrize("path", ["l/x", "l/d/y", "d/l/x"])
    def test_a_change_through_a_link_fails(self, folder: Path, outside: Path, path: str) -> None:
        write(folder, {"l": str(outside), "d/l": str(outside), "a": b"mine"})
        with ConfinedFolder(folder) as confined:
            changes: list[Callable[[], None]] = [
                lambda: confined.move("a", path),
                lambda: confined.make_folder(path),
                lambda: os.close(confined.create_file(path)),
                lambda: confined.create_link(path, "x"),
                lambda: confined.remove_folder(path),
                lambda: confined.set_folder_mode(path, 0o777),
            ]
            for change in changes:
                with pytest.raises(OSError, match=f"Errno {errno.ELOOP}|Errno {errno.ENOTDIR}"):
                    change()
            assert confined.mode_at(path) is None
            confined.remove_all(path)

    @pytest.mark.parametrize("kind", ["link", "file"])
    def test_the_place_for_staging_is_not_followed(
        self, workspaces: Workspaces, folder: Path, outside: Path, kind: str
    ) -> None:
        write(folder, {"a": b"1"})
        commit_id = workspaces.snapshot(folder)
        write(folder, {"a": b"2", ".wtb": str(outside) if kind == "link" else b""})
        with pytest.raises(WorkspaceError, match="remove it"):
            workspaces.restore(folder, commit_id)
        assert (folder / "a").read_bytes() == b"2"


class TestIgnored:
    def test_what_is_ignored_stays(self, workspaces: Workspaces, folder: Path) -> None:
        write(folder, {".wtbignore": b"cache/\n*.log\n", "a": b"1", "cache/x": b"", "b.log": b""})
        commit_id = workspaces.snapshot(folder)
        write(folder, {"a": b"2", "cache/y": b"", "c.log": b""})
        workspaces.restore(folder, commit_id)
        assert (folder / "a").read_bytes() == b"1"
        assert all((folder / path).exists() for path in ("cache/x", "cache/y", "b.log", "c.log"))

    def test_it_goes_with_the_folder_that_it_lies_in(self, workspaces: Workspaces, folder: Path) -> None:
        write(folder, {".wtbignore": b"*.log\n"})
        commit_id, before = workspaces.snapshot(folder), described(folder)
        write(folder, {"d/x": b"", "d/y.log": b""})
        os.mkfifo(folder / "d/pipe")
        workspaces.restore(folder, commit_id)
        assert described(folder) == before

    def test_the_rules_of_the_tree_to_be_restored_hold(self, workspaces: Workspaces, folder: Path) -> None:
        write(folder, {"cache/x": b"1"})
        commit_id, before = workspaces.snapshot(folder), described(folder)
        write(folder, {".wtbignore": b"cache/\n", "cache/x": b"2", "cache/y": b"2"})
        later, after = workspaces.snapshot(folder, commit_id), described(folder)
        assert set(workspaces.tree(later)) == {".wtbignore"}
        workspaces.restore(folder, commit_id)
        assert described(folder) == before
        workspaces.restore(folder, later)
        assert described(folder) == before | {".wtbignore": after[".wtbignore"]}

    def test_something_special_in_the_way_is_replaced(self, workspaces: Workspaces, folder: Path) -> None:
        write(folder, {"a": b"1", "d/x": b"1"})
        commit_id, before = workspaces.snapshot(folder), described(folder)
        (folder / "a").unlink()
        (folder / "d").rename(folder.parent / "away")
        os.mkfifo(folder / "a")
        os.mkfifo(folder / "d")
        workspaces.restore(folder, commit_id)
        assert described(folder) == before


class TestFailures:
    def test_a_missing_object_changes_nothing(self, workspaces: Workspaces, folder: Path, tmp_path: Path) -> None:
        write(folder, {"a": b"1", "b": LARGE})
        commit_id = workspaces.snapshot(folder)
        write(folder, {"a": b"2", "b": b"2"})
        before = described(folder)
        for path in (tmp_path / "home/objects").rglob("*"):
            if path.is_file():
                path.unlink()
        with pytest.raises(DamagedData, match=r"'b' cannot be restored"):
            workspaces.restore(folder, commit_id)
        assert described(folder) == before

    def test_a_damaged_object_changes_nothing(self, workspaces: Workspaces, folder: Path, tmp_path: Path) -> None:
        write(folder, {"a": b"1", "b": LARGE})
        commit_id = workspaces.snapshot(folder)
        write(folder, {"a": b"2", "b": b"2"})
        before = described(folder)
        [stored] = [path for path in (tmp_path / "home/objects").rglob("*") if path.is_file()]
        stored.write_bytes(b"x" * len(LARGE))
        with pytest.raises(DamagedData, match=r"'b' cannot be restored"):
            workspaces.restore(folder, commit_id)
        assert described(folder) == before

    def test_an_object_that_a_loss_of_power_cut_short_is_written_again(
        self, workspaces: Workspaces, folder: Path, tmp_path: Path
    ) -> None:
        write(folder, {"b": LARGE})
        workspaces.snapshot(folder)
        [stored] = [path for path in (tmp_path / "home/objects").rglob("*") if path.is_file()]
        stored.write_bytes(b"")
        write(folder, {"c": LARGE})
        commit_id = workspaces.snapshot(folder)
        workspaces.restore(folder, None)
        workspaces.restore(folder, commit_id)
        assert (folder / "b").read_bytes() == (folder / "c").read_bytes() == LARGE

    @pytest.mark.parametrize("step", range(CHANGES + 1))
    def test_a_failure_at_any_step_is_undone(
        self, workspaces: Workspaces, folder: Path, monkeypatch: pytest.MonkeyPatch, step: int
    ) -> None:
        target = {"a": b"1", "b/x": LARGE, "c": None, "d/e/f": b"1", "g": "a", "h": None}
        write(folder, target)
        (folder / "d/e").chmod(0o500)
        commit_id, after = workspaces.snapshot(folder), described(folder)
        (folder / "d/e").chmod(0o700)
        workspaces.restore(folder, None)
        write(folder, {"a/x": b"2", "b": b"2", "c/y/z": b"2", "d/e/f": b"2", "g": b"2", "h": None, "i": None})
        (folder / "h").chmod(0o500)
        (folder / "c").chmod(0o500)
        before = described(folder)
        failing = FailingFolder(step)
        monkeypatch.setattr(ConfinedFolder, "__getattribute__", failing.getter())
        with pytest.raises(WorkspaceError, match="No space left") if step < CHANGES else nullcontext():
            workspaces.restore(folder, commit_id)
        assert failing.done == (step < CHANGES)
        monkeypatch.undo()
        if failing.done:
            assert described(folder) == before
            workspaces.snapshot(folder)
            workspaces.restore(folder, commit_id)
        assert described(folder) == after


class FailingFolder:
    """Makes the n-th change of a folder fail, once."""

    def __init__(self, step: int) -> None:
        self._left = step
        self.done = False

    def getter(self) -> Callable[[ConfinedFolder, str], object]:
        """Return what takes the place of `__getattribute__`."""

        def get(folder: ConfinedFolder, name: str) -> object:
            if name in ("move", "make_folder", "set_folder_mode", "create_file", "create_link") and not self.done:
                self._left -= 1
                if self._left < 0:
                    self.done = True
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return object.__getattribute__(folder, name)

        return get


class TestInterrupted:
    def test_half_a_restore_is_no_workspace_until_it_is_restored_again(
        self, workspaces: Workspaces, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(folder, {"a": b"1", "b": b"1"})
        commit_id, before = workspaces.snapshot(folder), described(folder)
        write(folder, {"a": b"2", "b": b"2"})
        monkeypatch.setattr(swap.Swap, "_taken_back", lambda self: False)
        monkeypatch.setattr(ConfinedFolder, "__getattribute__", FailingFolder(6).getter())
        with pytest.raises(WorkspaceError):
            workspaces.restore(folder, commit_id)
        monkeypatch.undo()
        with pytest.raises(WorkspaceError, match="interrupted"):
            workspaces.snapshot(folder)
        workspaces.restore(folder, commit_id)
        assert described(folder) == before
        assert workspaces.snapshot(folder) == commit_id

    def test_what_a_kill_left_staged_is_removed(self, workspaces: Workspaces, folder: Path) -> None:
        write(folder, {"a": b"1"})
        commit_id, before = workspaces.snapshot(folder), described(folder)
        write(folder, {".wtb/staging/0": b"", ".wtb/staging/old/1/x": b"", ".wtb/half-restored": None, "a": b"2"})
        (folder / ".wtb/staging/old/1").chmod(0)
        workspaces.restore(folder, commit_id)
        assert described(folder) == before


_AS_NOBODY = """
import os, sys
from pathlib import Path
from tests.workspaces import described, workspaces_in, write
from wtb.domain.errors import WorkspaceError
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
home = Path(sys.argv[1])
folder, workspaces = home / "work", workspaces_in(home / "home")
folder.mkdir()
write(folder, {"d/e/f": b"1", "d/g": b"1", "h/i": b"1"})
os.chmod(folder / "d/e", 0o500)
os.chmod(folder / "d", 0o500)
commit_id, before = workspaces.snapshot(folder), described(folder)
os.chmod(folder / "d", 0o700)
write(folder, {"d/g": b"2", "h/n/o": b"2"})
os.chmod(folder / "h/n", 0o500)
os.chmod(folder / "h", 0o500)
os.chmod(folder / "d", 0o500)
workspaces.restore(folder, commit_id)
assert described(folder) == before, described(folder)
workspaces.restore(folder, None)
assert described(folder) == {}
workspaces.restore(folder, commit_id)
assert described(folder) == before

(folder / "h/i").write_bytes(b"secret")
os.chmod(folder / "h/i", 0)
try:
    workspaces.snapshot(folder, commit_id)
except WorkspaceError as error:
    assert "h/i" in str(error) and "give this user access" in str(error), error
else:
    raise AssertionError("read what it may not read")

theirs = home / "theirs"
after = described(theirs)
try:
    workspaces.restore(theirs, commit_id)
except WorkspaceError as error:
    assert "Permission denied" in str(error), error
else:
    raise AssertionError("wrote what it may not write")
assert described(theirs) == after
"""


def test_a_user_restores_read_only_folders_of_their_own_and_is_refused_those_of_others() -> None:
    """As root nothing is read-only: then it is another user who tries."""
    with TemporaryDirectory() as home:
        write(Path(home, "theirs"), {"x": b"1"})
        Path(home, "theirs").chmod(0o555)
        Path(home).chmod(0o777)
        root = Path(__file__).parents[2]
        subprocess.run([sys.executable, "-B", "-c", _AS_NOBODY, home], cwd=root, check=True, timeout=60)
