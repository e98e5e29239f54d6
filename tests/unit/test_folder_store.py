"""The folder in which workspaces lie: no link is followed, nothing that took a workspace's place is touched."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workspaces import described, workspaces_in, write
from wtb.application.workspaces import Workspaces
from wtb.domain.errors import InvalidInput, WorkspaceError
from wtb.domain.ids import BranchId, ExecutionId
from wtb.infrastructure.files.mounts import mount_points
from wtb.infrastructure.files.store import LocalFolderStore

RUN, BRANCH = ExecutionId("run"), BranchId("branch")


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    return workspaces_in(tmp_path / "home")


@pytest.fixture
def store(tmp_path: Path) -> LocalFolderStore:
    return LocalFolderStore(tmp_path / "home/workspaces")


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder that nothing may change."""
    outside = tmp_path / "outside"
    write(outside, {"x": b"precious", "files/y": b"precious", "branch/files/z": b"precious"})
    before = described(outside)
    yield outside
    assert described(outside) == before


def swapped(place: Path, outside: Path) -> None:
    place.rename(place.with_name(f"{place.name}-moved"))
    place.symlink_to(outside)


@pytest.mark.parametrize("levels", [0, 1, 2])
def test_after_a_restart_no_component_below_the_root_is_followed(tmp_path: Path, outside: Path, levels: int) -> None:
    folder = workspaces_in(tmp_path / "home").path(RUN, BRANCH)
    swapped([folder, *folder.parents][levels], outside)
    restarted = workspaces_in(tmp_path / "home")
    for access in (lambda: restarted.prepare(folder, None), lambda: restarted.restore(folder, None)):
        with pytest.raises(WorkspaceError, match="not the folder that wtb created"):
            access()
    restarted.discard(folder)
    restarted.discard_all(RUN)


def test_a_root_that_is_swapped_while_a_restore_is_under_way_is_noticed_before_anything_changes(
    workspaces: Workspaces, outside: Path
) -> None:
    folder = workspaces.path(RUN, BRANCH)
    write(folder, {"a": b"1"})
    commit_id = workspaces.snapshot(folder)
    write(folder, {"a": b"2"})
    with workspaces.staged(folder, commit_id) as swap:
        swapped(folder, outside)
        with pytest.raises(WorkspaceError, match="not the folder that wtb created"):
            swap()
    assert (folder.with_name("files-moved") / "a").read_bytes() == b"2"


def test_a_folder_that_a_person_named_is_checked_too_while_it_is_restored(
    workspaces: Workspaces, tmp_path: Path, outside: Path
) -> None:
    folder = tmp_path / "mine"
    write(folder, {"a": b"1"})
    commit_id = workspaces.snapshot(folder)
    write(folder, {"a": b"2"})
    with workspaces.staged(folder, commit_id) as swap:
        swapped(folder, outside)
        with pytest.raises(WorkspaceError, match="not the folder that wtb created"):
            swap()


def test_what_is_noted_beside_a_workspace_replaces_a_link_and_is_not_written_through_it(
    workspaces: Workspaces, outside: Path
) -> None:
    folder = workspaces.claim(RUN, BRANCH)
    (folder.parent / ".files.slot").unlink()
    (folder.parent / ".files.slot").symlink_to(outside / "x")
    workspaces.release(folder)
    assert not (folder.parent / ".files.slot").is_symlink()


def test_a_link_is_removed_and_not_what_it_points_to(store: LocalFolderStore, outside: Path) -> None:
    folder = store.root / "run/branch/files"
    store.make(folder)
    write(folder, {"d/link": str(outside), "e": None})
    swapped(folder, outside)
    store.remove(folder)
    assert not folder.is_symlink()
    store.remove(store.root / "run")
    assert not (store.root / "run").exists()


def test_only_what_lies_in_the_store_is_removed(store: LocalFolderStore, outside: Path) -> None:
    for place in (outside, store.root, store.root / ".." / ".." / "outside"):
        with pytest.raises(InvalidInput, match="not a workspace"):
            store.remove(place)


def test_only_this_user_may_look_into_workspaces(workspaces: Workspaces) -> None:
    folder = workspaces.claim(RUN, BRANCH)
    places = [folder, *folder.parents][:4]
    assert [place.stat().st_mode & 0o777 for place in places] == [0o700] * 4
    assert (folder.parent / ".files.slot").stat().st_mode & 0o777 == 0o600


def test_folders_that_nobody_may_read_are_removed(store: LocalFolderStore) -> None:
    folder = store.root / "run"
    store.make(folder)
    write(folder, {"a/b/c": b"1", "a/d": b"1"})
    (folder / "a/b").chmod(0)
    (folder / "a").chmod(0)
    store.remove(folder)
    assert not folder.exists()


class TestUse:
    def test_a_folder_that_was_given_back_is_used_again(self, workspaces: Workspaces) -> None:
        folder = workspaces.claim(RUN, BRANCH)
        workspaces.release(folder)
        assert workspaces.claim(RUN, BRANCH) == folder

    @pytest.mark.parametrize("member", ["", "left", "no plain name/"])
    def test_a_folder_that_was_not_given_back_is_never_used_again(self, tmp_path: Path, member: str) -> None:
        first = workspaces_in(tmp_path).claim(RUN, BRANCH, member)
        second = workspaces_in(tmp_path).claim(RUN, BRANCH, member)
        workspaces = workspaces_in(tmp_path)
        workspaces.release(first)  # too late
        third = workspaces.path(RUN, BRANCH, member)
        assert len({first, second, third}) == 3
        assert workspaces.path(RUN, BRANCH, member) == third
        assert [place.folder for place in workspaces.list_folders()] == [third]

    def test_a_note_is_about_one_folder(self, workspaces: Workspaces) -> None:
        folder = workspaces.path(RUN, BRANCH)
        commit_id = workspaces.snapshot(folder)
        workspaces.note(folder, commit_id)
        assert workspaces.is_noted(folder, commit_id)
        folder.rmdir()
        folder.symlink_to(folder.parent)
        assert not workspaces.is_noted(workspaces.path(RUN, BRANCH), commit_id)

    def test_what_an_older_version_noted_still_counts(self, workspaces: Workspaces) -> None:
        folder = workspaces.path(RUN, BRANCH)
        commit_id = workspaces.snapshot(folder)
        (folder.parent / ".files.slot").unlink(missing_ok=True)
        (folder.parent / "holds").write_text(commit_id)
        assert workspaces.is_noted(workspaces.path(RUN, BRANCH), commit_id)


def test_names_in_the_table_of_mounts_are_read() -> None:
    table = b"36 35 98:0 / /mnt\\040a/b\\134c rw - ext4 /dev/root rw\n37 35 0:5 / / rw shared:1 - proc proc rw\n"
    assert mount_points(table) == [b"/mnt a/b\\c", b"/"]
