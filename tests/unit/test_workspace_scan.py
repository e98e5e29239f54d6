"""Scans: everything that a folder holds is found, only what changed is read, and nothing is taken on trust."""

import hashlib
import mmap
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.workspaces import described, memory_storage, workspaces_in, write
from wtb.application.workspaces import Workspaces
from wtb.domain.errors import InvalidInput, WorkspaceError
from wtb.domain.files import EMPTY_TREE, EntryKind, FileCommitId, folder_entry, link_entry
from wtb.domain.ports import ObjectStore, StoredObject
from wtb.infrastructure.files import index as indexes
from wtb.infrastructure.files.folders import LocalFolders
from wtb.infrastructure.files.index import load_index
from wtb.infrastructure.files.memory_objects import MemoryObjectStore
from wtb.infrastructure.files.scanner import SMALL_BYTES, TRIES
from wtb.infrastructure.system import SystemClock
from wtb.testing.file_commits import new_file

LARGE = b"large" * SMALL_BYTES


class Objects(MemoryObjectStore):
    """An object store that tells what is put, and can disturb while that happens."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.puts = 0
        self.disturb: Callable[[], None] = lambda: None

    def put(self, stream: BinaryIO) -> StoredObject:
        self.puts += 1
        stored = super().put(stream)
        self.disturb()
        return stored


@pytest.fixture
def objects() -> Objects:
    return Objects()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def folders(tmp_path: Path, objects: ObjectStore) -> LocalFolders:
    return LocalFolders(objects, tmp_path / "indexes")


def aged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every file count as written long ago, so that the stat index vouches for it."""
    monkeypatch.setattr(indexes, "FINE_NS", -(10**18))
    monkeypatch.setattr(indexes, "COARSE_NS", -(10**18))


def test_everything_in_a_folder_is_found(folder: Path, folders: LocalFolders) -> None:
    write(folder, {"a/b/file": b"text", "binary": b"\0\xff\r\n", "empty file": b"", "hole": None, "large": LARGE})
    write(folder, {"link": "a/b", "a/out": "../../..", "dangling": "/no/such"})
    (folder / "binary").chmod(0o751)
    (folder / "a/b").chmod(0o700)
    (folder / "hole").chmod(0o711)
    (folder / "a").chmod(0o755)
    for path in ("a/b/file", "empty file", "large"):
        (folder / path).chmod(0o640)
    assert dict(folders.scan(folder, EMPTY_TREE).tree) == {
        entry.path: entry
        for entry in (
            folder_entry("a", 0o755),
            folder_entry("a/b", 0o700),
            new_file("a/b/file", "text", 0o640),
            link_entry("a/out", "../../.."),
            new_file("binary", b"\0\xff\r\n", 0o751),
            link_entry("dangling", "/no/such"),
            new_file("empty file", "", 0o640),
            folder_entry("hole", 0o711),
            new_file("large", LARGE, 0o640),
            link_entry("link", "a/b"),
        )
    }


def test_names_that_are_no_utf_8_are_found(folder: Path, folders: LocalFolders) -> None:
    names = [b"\xff\xfe", b"caf\xe9", "café".encode(), b"a\nb", b"-", b" ", b"\xc3"]
    for name in names:
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(name)
    assert {os.fsencode(path) for path in folders.scan(folder, EMPTY_TREE).tree} == set(names)


def test_small_contents_are_returned_and_large_ones_stored(
    folder: Path, folders: LocalFolders, objects: Objects
) -> None:
    write(folder, {"small": b"x" * SMALL_BYTES, "large": LARGE, "link": "large", "same": b"x" * SMALL_BYTES})
    scanned = folders.scan(folder, EMPTY_TREE)
    assert list(scanned.contents.values()) == [b"x" * SMALL_BYTES]
    with objects.open(hashlib.sha256(LARGE).digest()) as stream:
        assert stream.read() == LARGE
    assert objects.puts == 1


def test_special_files_are_no_part_of_a_tree(folder: Path, folders: LocalFolders) -> None:
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "socket"))
    write(folder, {"file": b""})
    assert set(folders.scan(folder, EMPTY_TREE).tree) == {"file"}


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, folders: LocalFolders) -> None:
    with pytest.raises(WorkspaceError, match="no such place"):
        folders.scan(tmp_path / "no such place", EMPTY_TREE)


class TestStatIndex:
    def test_what_did_not_change_is_not_read_again(
        self, folder: Path, folders: LocalFolders, objects: Objects, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        aged(monkeypatch)
        write(folder, {"a": LARGE, "b/c": LARGE + b"c"})
        base = folders.scan(folder, EMPTY_TREE).tree
        write(folder, {"b/c": LARGE + b"C"})
        objects.puts = 0
        scanned = folders.scan(folder, base)
        assert objects.puts == 1
        assert set(scanned.delta.put) == {"b/c"}

    def test_a_file_written_at_the_time_of_the_scan_is_read_again(
        self, folder: Path, folders: LocalFolders, objects: Objects, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Within one tick of the clock a second write leaves no trace: the guard must not depend on seeing one.
        monkeypatch.setattr(indexes, "FINE_NS", 10**18)
        write(folder, {"a": LARGE})
        base = folders.scan(folder, EMPTY_TREE).tree
        objects.puts = 0
        folders.scan(folder, base)
        assert objects.puts == 1

    def test_a_same_sized_change_whose_time_is_set_back_is_found(
        self, folder: Path, folders: LocalFolders, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        aged(monkeypatch)
        write(folder, {"a": b"old"})
        base = folders.scan(folder, EMPTY_TREE).tree
        before = (folder / "a").stat()
        write(folder, {"a": b"new"})
        os.utime(folder / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
        assert folders.scan(folder, base).tree["a"] == new_file("a", "new")

    def test_a_change_through_a_mapping_that_was_kept_open_is_found_while_it_is_open_and_after(
        self, folder: Path, folders: LocalFolders, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        aged(monkeypatch)
        write(folder, {"a": b"0"})
        with (folder / "a").open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as mapped:
            mapped[:] = b"1"
            base = folders.scan(folder, EMPTY_TREE).tree
            mapped[:] = b"2"
            second = folders.scan(folder, base).tree
            mapped[:] = b"3"
        third = folders.scan(folder, second).tree
        assert [tree["a"] for tree in (base, second, third)] == [new_file("a", text) for text in "123"]

    def test_a_change_of_mode_or_kind_is_found(
        self, folder: Path, folders: LocalFolders, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        aged(monkeypatch)
        write(folder, {"a": b"", "b": b"", "c/d": b"", "e": "x"})
        base = folders.scan(folder, EMPTY_TREE).tree
        (folder / "a").chmod(0o600)
        (folder / "b").unlink()
        (folder / "c/d").unlink()
        (folder / "c").rmdir()
        (folder / "e").unlink()
        write(folder, {"b/x": b"", "c": "a", "e": b"x"})
        tree = folders.scan(folder, base).tree
        assert {path: tree[path].kind for path in tree} == {
            "a": EntryKind.FILE,
            "b": EntryKind.FOLDER,
            "b/x": EntryKind.FILE,
            "c": EntryKind.LINK,
            "e": EntryKind.FILE,
        }
        assert tree["a"].mode == 0o600

    def test_what_was_scanned_and_never_committed_is_stored_by_the_next_scan(
        self, folder: Path, folders: LocalFolders, objects: Objects, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        aged(monkeypatch)
        write(folder, {"small": b"s", "large": LARGE})
        first = folders.scan(folder, EMPTY_TREE)
        objects.delete(hashlib.sha256(LARGE).digest())
        second = folders.scan(folder, EMPTY_TREE)
        assert second.contents == first.contents != {}
        objects.open(hashlib.sha256(LARGE).digest()).close()

    def test_an_index_serves_the_next_process(
        self, folder: Path, tmp_path: Path, objects: Objects, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        aged(monkeypatch)
        write(folder, {f"d/{number}": LARGE + bytes([number]) for number in range(10)})
        write(folder, {"link": "x", "empty": None})
        base = LocalFolders(objects, tmp_path / "indexes").scan(folder, EMPTY_TREE).tree
        objects.puts = 0
        scanned = LocalFolders(objects, tmp_path / "indexes").scan(folder, base)
        assert scanned.tree == base
        assert objects.puts == 0

    @pytest.mark.parametrize("damage", [b"", b"x", b"x" * 100, None])
    def test_a_damaged_index_costs_time_only(
        self,
        folder: Path,
        tmp_path: Path,
        objects: Objects,
        monkeypatch: pytest.MonkeyPatch,
        damage: bytes | None,
    ) -> None:
        aged(monkeypatch)
        write(folder, {"a": LARGE})
        base = LocalFolders(objects, tmp_path / "indexes").scan(folder, EMPTY_TREE).tree
        [path] = (tmp_path / "indexes").iterdir()
        data = path.read_bytes()
        path.write_bytes(data.replace(b"wtb", b"xyz") if damage is None else damage)
        assert not load_index(path).records
        assert LocalFolders(objects, tmp_path / "indexes").scan(folder, base).tree == base

    def test_a_place_for_indexes_that_cannot_be_written_costs_time_only(
        self, folder: Path, tmp_path: Path, objects: Objects
    ) -> None:
        (tmp_path / "file").touch()
        write(folder, {"a": LARGE})
        assert set(LocalFolders(objects, tmp_path / "file" / "indexes").scan(folder, EMPTY_TREE).tree) == {"a"}


class TestFilesThatChange:
    def test_a_file_that_changes_while_it_is_read_is_read_again(
        self, folder: Path, folders: LocalFolders, objects: Objects
    ) -> None:
        write(folder, {"a": LARGE})

        def append() -> None:
            objects.disturb = lambda: None
            with (folder / "a").open("ab") as file:
                file.write(b"more")

        objects.disturb = append
        scanned = folders.scan(folder, EMPTY_TREE)
        assert scanned.tree["a"].digest == hashlib.sha256(LARGE + b"more").digest()
        assert objects.puts == 2

    def test_a_file_that_never_stops_changing_is_named(
        self, folder: Path, folders: LocalFolders, objects: Objects
    ) -> None:
        write(folder, {"d/log": LARGE})

        def append() -> None:
            with (folder / "d/log").open("ab") as file:
                file.write(b"more")

        objects.disturb = append
        with pytest.raises(WorkspaceError, match=r"'d/log'.*changes while it is being read"):
            folders.scan(folder, EMPTY_TREE)
        assert objects.puts == TRIES


class TestIgnoreRules:
    def test_rules_are_those_of_gitignore(self, folder: Path, folders: LocalFolders) -> None:
        rules = b"*.pyc\n/build/\n!keep.pyc\n# comment\nlogs/**/debug\n"
        ignored = {"a.pyc": b"", "d/b.pyc": b"", "build/x": b"", "logs/1/2/debug": b""}
        kept = {"keep.pyc": b"", "d/build/x": b"", "d/file": b"", "logs/1/2/info": b""}
        write(folder, {".wtbignore": rules, **ignored, **kept})
        tree = folders.scan(folder, EMPTY_TREE).tree
        files = {path for path in tree if tree[path].kind is EntryKind.FILE}
        assert files == {".wtbignore", *kept}

    def test_rules_that_change_are_applied_to_what_is_known(
        self, folder: Path, folders: LocalFolders, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        aged(monkeypatch)
        write(folder, {"a": b"", "d/b": b""})
        base = folders.scan(folder, EMPTY_TREE).tree
        write(folder, {".wtbignore": b"d/\n"})
        without = folders.scan(folder, base)
        assert set(without.tree) == {".wtbignore", "a"}
        assert without.delta.removed == {"d", "d/b"}
        write(folder, {".wtbignore": b"a\n"})
        assert set(folders.scan(folder, without.tree).tree) == {".wtbignore", "d", "d/b"}

    @pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
    def test_rules_that_are_no_file_are_none(self, folder: Path, folders: LocalFolders, kind: str) -> None:
        write(folder, {"a": b"", "rules": b"a"})
        if kind == "pipe":
            os.mkfifo(folder / ".wtbignore")
        else:
            write(folder, {".wtbignore": "rules" if kind == "link" else None})
        assert "a" in folders.scan(folder, EMPTY_TREE).tree

    def test_the_reserved_name_is_left_out_at_the_root_only(self, folder: Path, folders: LocalFolders) -> None:
        write(folder, {".wtb/x": b"", "d/.wtb/y": b""})
        assert set(folders.scan(folder, EMPTY_TREE).tree) == {"d", "d/.wtb", "d/.wtb/y"}


class TestService:
    @pytest.fixture
    def workspaces(self, tmp_path: Path) -> Workspaces:
        return workspaces_in(tmp_path / "home")

    def test_an_unchanged_folder_is_the_same_commit(self, workspaces: Workspaces, folder: Path) -> None:
        write(folder, {"a": b"1", "d/b": LARGE})
        commit_id = workspaces.snapshot(folder)
        assert workspaces.snapshot(folder, commit_id) == commit_id
        assert workspaces.prepare(folder, commit_id).delta.put == {}

    def test_a_prepared_commit_is_nothing_until_it_is_saved(self, tmp_path: Path, folder: Path) -> None:
        storage = memory_storage()
        workspaces = workspaces_in(tmp_path / "home", storage)
        write(folder, {"a": b"1"})
        prepared = workspaces.prepare(folder, None)
        with storage.unit_of_work() as uow:
            assert prepared.save(uow) == prepared.id
        with pytest.raises(LookupError):
            workspaces.tree(prepared.id)
        assert workspaces.snapshot(folder) == prepared.id
        assert set(workspaces.tree(prepared.id)) == {"a"}

    def test_workspaces_are_private_and_apart(self, workspaces: Workspaces, tmp_path: Path) -> None:
        ids = ["run-1", "..", ".", "a:b", "ü" * 200, "x" * 200, "~", "members"]
        paths = {workspaces.path(one, two, member) for one in ids for two in ids for member in ("", "n", "a/b", "..")}  # type: ignore[arg-type]
        assert len(paths) == len(ids) ** 2 * 4
        root = (tmp_path / "home/workspaces").resolve()
        assert root.stat().st_mode & 0o777 == 0o700
        assert all(path.is_dir() and path.resolve().is_relative_to(root) for path in paths)
        assert not any(one != two and one.is_relative_to(two) for one in list(paths)[:60] for two in paths)

    def test_members_are_merged_by_path(self, tmp_path: Path) -> None:
        storage = memory_storage()
        workspaces = workspaces_in(tmp_path / "home", storage)
        live = workspaces.path("run", "branch")  # type: ignore[arg-type]
        write(live, {"shared": b"0", "gone": LARGE})
        base_id = workspaces.snapshot(live)
        sides: dict[str, FileCommitId] = {}
        for member in ("one", "two"):
            private = workspaces.materialise(workspaces.path("run", "branch", member), base_id)  # type: ignore[arg-type]
            write(private, {f"out/{member}": LARGE + member.encode()})
            if member == "two":
                (private / "gone").unlink()
            sides[member] = workspaces.snapshot(private, base_id)
            workspaces.discard(private)
            assert not private.exists()
        with storage.unit_of_work() as uow:
            merged = workspaces.merge(uow, base_id, sides)
            uow.commit()
        workspaces.restore(live, merged)
        assert {path for path, value in described(live).items() if len(value) > 1} == {"shared", "out/one", "out/two"}

    def test_only_workspaces_are_discarded(self, workspaces: Workspaces, folder: Path) -> None:
        with pytest.raises(InvalidInput, match="by hand"):
            workspaces.discard(folder)
        assert folder.exists()

    def test_a_commit_is_exported_into_an_empty_folder(
        self, workspaces: Workspaces, folder: Path, tmp_path: Path
    ) -> None:
        write(folder, {"a": b"1", "d/b": LARGE, "l": "/etc"})
        commit_id = workspaces.snapshot(folder)
        (tmp_path / "empty").mkdir()
        for target in (tmp_path / "empty", tmp_path / "new" / "one"):
            workspaces.export(commit_id, target)
            assert described(target) == described(folder)

    @pytest.mark.parametrize("kind", ["full", "file", "link"])
    def test_nothing_is_exported_over_something(
        self, workspaces: Workspaces, folder: Path, tmp_path: Path, kind: str
    ) -> None:
        write(folder, {"a": b"1"})
        target = tmp_path / "target"
        write(tmp_path, {"full": {"target/x": b""}, "file": {"target": b""}, "link": {"target": str(folder)}}[kind])  # type: ignore[arg-type]
        before = described(tmp_path)
        with pytest.raises(InvalidInput, match="not empty"):
            workspaces.export(workspaces.snapshot(folder), target)
        assert {path: before[path] for path in before} == {path: described(tmp_path)[path] for path in before}
