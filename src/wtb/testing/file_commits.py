"""The contract of FileCommitRepository: a subclass gives the fixtures `storage`, `reopen` and `tamper`.

`reopen` returns a storage over the same data that has seen none of it yet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from wtb.domain.errors import DamagedData, FileCommitNotFound, UnsafePath
from wtb.domain.files import (
    EMPTY_TREE,
    FileCommitId,
    FileEntry,
    FileTree,
    TreeDelta,
    diff,
    file_entry,
    folder_entry,
    link_entry,
    tree_of,
)
from wtb.domain.ports import Storage
from wtb.testing.damage import Tamper

WAIT_S = 30.0

AWKWARD = tree_of(
    [
        folder_entry("empty", 0o500),
        folder_entry("a", 0o755),
        file_entry("a/\udcff\udc80 not UTF-8", 0o600, 0, hashlib.sha256().digest()),
        file_entry("a/naïve ☃\n\\", 0o777, 5 << 40, b"\xff" * 32),
        file_entry("a.b", 0, 1, b"\0" * 32),
        link_entry("link", "../../etc/\udcfe"),
    ]
)
"""Everything that a tree may hold and a careless row would lose."""

UNSAFE = (
    "..",
    "../x",
    "/etc/x",
    "a/../../x",
    "a//b",
    "./a",
    "",
    "x\0y",
    "no-folder/x",
    ".wtb",
    "\udcc3\udca4",
    "\ud800",
)
"""Paths that no tree may hold; the last but one is another spelling of `ä`."""


def new_file(path: str, content: bytes | str = b"", mode: int = 0o644) -> FileEntry:
    """Return the entry of a file with this content."""
    content = content.encode() if isinstance(content, str) else content
    return file_entry(path, mode, len(content), hashlib.sha256(content).digest())


def many(count: int) -> FileTree:
    """Return a tree with many files."""
    return tree_of([new_file(f"file {number}", str(number)) for number in range(count)])


def saved(storage: Storage, base_id: FileCommitId | None, delta: TreeDelta) -> FileCommitId:
    """Save a commit in a unit of work of its own."""
    with storage.unit_of_work() as uow:
        commit_id = uow.files.save(base_id, delta)
        uow.commit()
    return commit_id


def tree_at(storage: Storage, commit_id: FileCommitId) -> FileTree:
    """Read the tree of a commit."""
    with storage.unit_of_work(readonly=True) as uow:
        return uow.files.get(commit_id)


class FileCommitRepositoryContract:
    """What every repository of file commits does."""

    def test_a_tree_comes_back_as_it_was(self, storage: Storage, reopen: Callable[[], Storage]) -> None:
        commit_id = saved(storage, None, diff(EMPTY_TREE, AWKWARD))
        for each in (storage, reopen()):
            found = tree_at(each, commit_id)
            assert dict(found) == dict(AWKWARD)
            assert found == AWKWARD

    def test_the_empty_tree_is_a_commit_too(self, storage: Storage, reopen: Callable[[], Storage]) -> None:
        assert len(tree_at(reopen(), saved(storage, None, TreeDelta()))) == 0

    def test_a_commit_is_its_base_with_the_delta(self, storage: Storage, reopen: Callable[[], Storage]) -> None:
        base_id = saved(storage, None, diff(EMPTY_TREE, AWKWARD))
        delta = TreeDelta({"new": new_file("new"), "a.b": folder_entry("a.b", 0o700)}, frozenset({"link", "empty"}))
        commit_id = saved(storage, base_id, delta)
        expected = AWKWARD.apply(delta)
        assert commit_id == expected.id != base_id
        assert dict(tree_at(reopen(), commit_id)) == dict(expected)
        assert dict(tree_at(reopen(), base_id)) == dict(AWKWARD)

    def test_equal_trees_are_one_commit_whatever_their_history(self, storage: Storage) -> None:
        first = saved(storage, None, diff(EMPTY_TREE, many(3)))
        detour = saved(storage, first, TreeDelta({"x": new_file("x")}))
        assert saved(storage, detour, TreeDelta(removed=frozenset({"x"}))) == first
        assert saved(storage, first, TreeDelta()) == first
        assert saved(storage, None, diff(EMPTY_TREE, many(3))) == first

    def test_every_commit_of_a_long_line_comes_back(self, storage: Storage, reopen: Callable[[], Storage]) -> None:
        tree, commit_id, line = EMPTY_TREE, None, {}
        for step in range(150):
            put = {f"{number}": new_file(f"{number}", f"{step}") for number in range(step % 7, 40, 7)}
            gone = {str(step % 41)} & tree.keys() - put.keys()
            delta = TreeDelta(put, frozenset(gone))
            commit_id, tree = saved(storage, commit_id, delta), tree.apply(delta)
            line[commit_id] = dict(tree)
        again = reopen()
        assert len(line) == 150
        assert all(dict(tree_at(again, commit_id)) == entries for commit_id, entries in line.items())

    def test_many_commits_may_have_one_base(self, storage: Storage, reopen: Callable[[], Storage]) -> None:
        base_id = saved(storage, None, diff(EMPTY_TREE, many(100)))
        forks = [saved(storage, base_id, TreeDelta({"x": new_file("x", str(number))})) for number in range(20)]
        again = reopen()
        assert [tree_at(again, fork)["x"] for fork in forks] == [new_file("x", str(number)) for number in range(20)]

    def test_an_unknown_commit_is_named(self, storage: Storage) -> None:
        with storage.unit_of_work() as uow:
            with pytest.raises(FileCommitNotFound, match="no-such-id"):
                uow.files.get(FileCommitId("no-such-id"))
            with pytest.raises(FileCommitNotFound, match="no-such-id"):
                uow.files.save(FileCommitId("no-such-id"), TreeDelta())

    @pytest.mark.parametrize(
        "path",
        ["../x", "/etc/passwd", "a/../../x", "a//b", ".", "", "x\0y", "no-folder/x", ".wtb", "\udcc3\udca4", "\ud800"],
    )
    def test_a_path_that_leads_out_is_refused(self, storage: Storage, path: str) -> None:
        with storage.unit_of_work() as uow, pytest.raises(UnsafePath):
            uow.files.save(None, TreeDelta({path: new_file(path)}))

    def test_what_is_not_committed_is_seen_by_nobody(self, storage: Storage, reopen: Callable[[], Storage]) -> None:
        with storage.unit_of_work() as uow:
            commit_id = uow.files.save(None, diff(EMPTY_TREE, AWKWARD), {hashlib.sha256(b"x").digest(): b"x"})
            assert uow.files.get(commit_id) == AWKWARD
        for each in (storage, reopen()):
            with each.unit_of_work(readonly=True) as uow:
                assert not uow.files.get_contents([hashlib.sha256(b"x").digest()])
                with pytest.raises(FileCommitNotFound):
                    uow.files.get(commit_id)

    def test_contents_come_back_by_their_digest(self, storage: Storage) -> None:
        contents = {hashlib.sha256(content).digest(): content for content in (b"", b"\0\xff" * 2048, b"x")}
        with storage.unit_of_work() as uow:
            uow.files.save(None, TreeDelta(), contents)
            uow.commit()
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.files.get_contents([*contents, b"\0" * 32]) == contents
            assert uow.files.get_contents([]) == {}

    def test_contents_may_be_saved_again(self, storage: Storage) -> None:
        contents = {hashlib.sha256(b"x").digest(): b"x"}
        for number in range(2):
            with storage.unit_of_work() as uow:
                uow.files.save(None, diff(EMPTY_TREE, many(number)), contents)
                uow.commit()
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.files.get_contents(contents) == contents

    def test_threads_that_save_the_same_tree_do_not_disturb_each_other(self, storage: Storage) -> None:
        base_id = saved(storage, None, diff(EMPTY_TREE, many(50)))
        barrier = Barrier(4)

        def save(_: int) -> FileCommitId:
            barrier.wait(WAIT_S)
            return saved(storage, base_id, TreeDelta({"x": new_file("x")}))

        with ThreadPoolExecutor(4) as threads:
            found = set(threads.map(save, range(4)))
        assert [tree_at(storage, commit_id)["x"] for commit_id in found] == [new_file("x")]

    def test_what_is_done_to_a_delta_afterwards_is_not_stored(self, storage: Storage) -> None:
        put = {"x": new_file("x")}
        with storage.unit_of_work() as uow:
            commit_id = uow.files.save(None, TreeDelta(put))
            put["y"] = new_file("y")
            assert set(uow.files.get(commit_id)) == {"x"}
            uow.commit()
        assert set(tree_at(storage, commit_id)) == {"x"}

    @pytest.mark.parametrize("what", ["path", "digest", "target"])
    def test_a_changed_tree_is_found_by_the_name_of_its_commit(
        self, storage: Storage, reopen: Callable[[], Storage], tamper: Tamper, what: str
    ) -> None:
        good = {"path": "0ld-value", "digest": "0ld-value" + "x" * 23, "target": "0ld-value"}
        entries = {
            "path": new_file(good["path"]),
            "digest": file_entry("f", 0o600, 1, good["digest"].encode()),
            "target": link_entry("l", good["target"]),
        }
        base_id = saved(storage, None, diff(EMPTY_TREE, many(500)))
        damaged = saved(storage, base_id, TreeDelta({entries[what].path: entries[what]}))
        child = saved(storage, damaged, TreeDelta({"x": new_file("x")}))
        tamper(b"0ld-value", b"n3w-value")
        again = reopen()
        for commit_id in (damaged, child):
            with pytest.raises(DamagedData, match=damaged):
                tree_at(again, commit_id)
        with again.unit_of_work() as uow, pytest.raises(DamagedData, match=damaged):
            uow.files.save(child, TreeDelta({"y": new_file("y")}))
        assert tree_at(again, base_id) == many(500)

    def test_a_changed_content_is_found(self, storage: Storage, tamper: Tamper) -> None:
        digest = hashlib.sha256(b"0ld-value").digest()
        with storage.unit_of_work() as uow:
            uow.files.save(None, TreeDelta(), {digest: b"0ld-value"})
            uow.commit()
        tamper(b"0ld-value", b"n3w-value")
        with storage.unit_of_work(readonly=True) as uow, pytest.raises(DamagedData, match=digest.hex()[:16]):
            uow.files.get_contents([digest])
