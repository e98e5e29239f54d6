"""Folders of runs that have ended go after a while, and come back when they are needed; nothing that counts is lost."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.workspaces import described
from wtb import RetryPolicy, Workflow
from wtb.application.upkeep.workspace_collection import CollectedFolder, WorkspaceCollection
from wtb.bench import Bench
from wtb.domain.execution import ExecutionStatus
from wtb.domain.retention import RetentionPolicy
from wtb.infrastructure.files.folders import LocalFolders
from wtb.runs import Run
from wtb.testing.fakes import FakeClock


def collection(bench: Bench, days: float | None = 0, **parts: Any) -> WorkspaceCollection:
    services = bench.services
    given = {"clock": services.clock, "care": services.folders, **parts}
    return WorkspaceCollection(
        services.storage,
        given["clock"],
        services.owners,
        services.store,
        given["care"],
        policy_for=lambda _: RetentionPolicy(keep_workspaces_days=days),
    )


def collected(bench: Bench, **parts: Any) -> list[CollectedFolder]:
    return list(collection(bench, **parts).collect())


def folders_of(bench: Bench) -> set[str]:
    root = bench.services.store.root
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_dir() and not any(path.iterdir())} | {
        str(path.parent.relative_to(root)) for path in root.rglob("*") if path.is_file() and path.suffix != ".slot"
    }


def flow_of(*failing: bool) -> Workflow:
    """Two nodes that write files; the second fails as often as said."""
    flow, fails = Workflow("files"), list(failing)

    @flow.node(start=True)
    def first(state: Any, ctx: Any) -> None:
        (ctx.workspace / "first").write_text("1" * 10_000)

    @flow.node
    def second(state: Any, ctx: Any) -> None:
        assert (ctx.workspace / "first").read_text() == "1" * 10_000
        (ctx.workspace / "second").write_text("2")
        if fails and fails.pop(0):
            raise ValueError("not yet")

    flow.edge("first", "second")
    return flow


def run_of(bench: Bench, *failing: bool) -> Run:
    return bench.run(flow_of(*failing), {}, run_id="r1")


def folder_of(bench: Bench, run: Run) -> Path:
    return bench.services.workspaces.path(run.id, run.execution.branch_id)


def test_the_folder_of_an_ended_run_goes_with_its_stat_index_and_comes_back_on_use(bench: Bench) -> None:
    run = run_of(bench)
    folder = run.workspace
    before = described(folder)
    (gone,) = collected(bench)
    assert (gone.execution_id, gone.folder, gone.size_bytes, gone.kept) == ("r1", folder, 10_001, None)
    assert not folder.exists()
    assert not bench.services.folders.index_of(folder).exists()
    assert collected(bench) == []
    assert run.workspace == folder
    assert described(folder) == before


def test_after_a_collection_a_run_is_rolled_back_redone_and_resumed_as_before(bench: Bench) -> None:
    run = run_of(bench)
    files = described(run.workspace)
    collected(bench)
    run.rollback("first")
    assert sorted(described(folder_of(bench, run))) == ["first"]
    run.redo()
    assert described(folder_of(bench, run)) == files
    run.rollback("first")
    assert run.resume().status is ExecutionStatus.COMPLETED
    collected(bench)
    run.rollback(0)
    run.redo()
    assert described(folder_of(bench, run)) == files


def test_an_absent_folder_is_not_taken_for_one_whose_files_a_person_deleted(bench: Bench) -> None:
    run = run_of(bench)
    collected(bench)
    run.rollback("first")
    run.redo()
    assert sorted(run.files()) == ["first", "second"]
    assert sorted(path.name for path in run.workspace.iterdir()) == ["first", "second"]


def test_after_a_collection_a_failed_run_is_resumed_with_the_files_of_its_last_step(bench: Bench) -> None:
    run = run_of(bench, True)
    assert run.status is ExecutionStatus.FAILED
    assert [each.kept for each in collected(bench)] == [None]
    assert folders_of(bench) <= {"r1/" + run.execution.branch_id}
    assert run.resume().status is ExecutionStatus.COMPLETED
    assert sorted(run.files()) == ["first", "second"]


def test_after_a_collection_a_run_is_forked_and_exported(bench: Bench, tmp_path: Path) -> None:
    run = run_of(bench)
    collected(bench)
    fork = run.fork("first")
    assert sorted(path.name for path in fork.workspace.iterdir()) == ["first"]
    run.export(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["first", "second"]


@pytest.mark.parametrize(("days", "hours", "goes"), [(7, 167, False), (7, 169, True), (None, 10_000, False)])
def test_a_folder_goes_when_its_run_ended_long_enough_ago(
    bench: Bench, days: float | None, hours: int, goes: bool
) -> None:
    run = run_of(bench)
    clock = FakeClock(run.execution.updated_at + timedelta(hours=hours, minutes=1))
    assert bool(collected(bench, days=days, clock=clock)) is goes


def test_a_folder_that_somebody_looked_at_lately_stays(bench: Bench) -> None:
    run = run_of(bench)
    clock = FakeClock(run.execution.updated_at + timedelta(days=8))
    later = clock.now() - timedelta(days=6)
    note = folder_of(bench, run).with_name(".files.slot")
    os.utime(note, (later.timestamp(), later.timestamp()))
    assert collected(bench, days=7, clock=clock) == []


@pytest.mark.parametrize("stop", ["paused", "rolled back"])
def test_the_folder_of_a_run_that_may_go_on_stays(bench: Bench, stop: str) -> None:
    flow = flow_of()
    if stop == "paused":
        run = bench.run(flow, {}, run_id="r1", break_before=["second"])
    else:
        run = bench.run(flow, {}, run_id="r1")
        run.rollback("first")
    assert run.status is ExecutionStatus.PAUSED
    assert collected(bench) == []


def change(folder: Path) -> None:
    (folder / "first").write_text("changed")


def add(folder: Path) -> None:
    (folder / "notes").write_text("mine")


def remove(folder: Path) -> None:
    (folder / "first").unlink()


def set_mode(folder: Path) -> None:
    (folder / "first").chmod(0o755)


@pytest.mark.parametrize("by_person", [change, add, remove, set_mode])
def test_a_folder_with_changes_of_a_person_stays_and_they_are_named(
    bench: Bench, by_person: Callable[[Path], None]
) -> None:
    folder = run_of(bench).workspace
    by_person(folder)
    before = described(folder)
    (kept,) = collected(bench)
    assert kept.kept is not None
    assert "somebody has changed files in it, such as '" in kept.kept
    assert described(folder) == before


def test_a_folder_with_ignored_files_stays(bench: Bench) -> None:
    flow = Workflow("ignoring")

    @flow.node(start=True)
    def only(state: Any, ctx: Any) -> None:
        (ctx.workspace / ".wtbignore").write_text("cache/\n")
        (ctx.workspace / "cache").mkdir()
        (ctx.workspace / "cache" / "x").write_text("precious")

    folder = bench.run(flow, {}, run_id="r1").workspace
    (kept,) = collected(bench)
    assert kept.kept == "it holds ignored files, which are in no checkpoint, such as 'cache'"
    assert (folder / "cache" / "x").read_text() == "precious"


def test_what_a_person_writes_into_the_folder_of_a_failed_node_stays(bench: Bench) -> None:
    run = run_of(bench, True)
    folder = folder_of(bench, run)
    add(folder)
    (kept,) = collected(bench)
    assert kept.kept == "something was written to it after its run had ended"
    assert (folder / "notes").exists()


def test_a_folder_whose_files_cannot_be_restored_any_more_stays(bench: Bench) -> None:
    run = run_of(bench)
    folder = run.workspace
    entry = run.files()["first"]
    assert bench.services.objects.delete(entry.digest)
    (kept,) = collected(bench)
    assert kept.kept is not None
    assert "'first' cannot be restored" in kept.kept
    assert (folder / "first").exists()


def test_folders_of_members_and_of_attempts_that_were_given_up_go_too(bench: Bench) -> None:
    flow, tries = Workflow("given up"), list[int]()
    late = threading.Event()

    @flow.node(start=True)
    def begin(state: Any, ctx: Any) -> None:
        (ctx.workspace / "a").write_text("1")

    @flow.node
    def left(state: Any, ctx: Any) -> None:
        (ctx.workspace / "left").write_text("1")

    @flow.node(timeout_s=0.2, retry=RetryPolicy(times=2, wait_s=0))
    def right(state: Any, ctx: Any) -> None:
        (ctx.workspace / "right").write_text("1")
        tries.append(1)
        if len(tries) == 1:
            late.wait(10)

    flow.edge("begin", "left")
    flow.edge("begin", "right")
    run = bench.run(flow, {}, run_id="r1")
    late.set()
    assert run.status is ExecutionStatus.COMPLETED
    members = folder_of(bench, run).parent / "members"
    assert len([path for path in members.iterdir() if path.is_dir()]) == 3
    found = collected(bench)
    assert [each.kept for each in found] == [None] * 4
    assert not [path for path in members.iterdir() if path.is_dir()]
    run.rollback("begin")
    assert run.resume().status is ExecutionStatus.COMPLETED
    assert sorted(run.files()) == ["a", "left", "right"]


def test_a_late_write_keeps_a_folder_that_was_given_up(bench: Bench) -> None:
    workspaces, run = bench.services.workspaces, run_of(bench)
    given_up = workspaces.claim(run.id, run.execution.branch_id)
    folder = folder_of(bench, run)
    assert folder != given_up
    (given_up / "late").write_text("1")
    written = "something was written to it after its run had ended"
    assert {each.folder: each.kept for each in collected(bench)} == {folder: None, given_up: written}
    assert {each.folder: each.kept for each in collected(bench)} == {given_up: written}, "and it stays so"


def test_the_path_of_a_folder_that_was_given_up_is_not_used_again_after_it_has_gone(bench: Bench) -> None:
    run = run_of(bench)
    given_up = bench.services.workspaces.claim(run.id, run.execution.branch_id)
    services = bench.services
    with services.storage.unit_of_work() as uow:
        uow.executions.save(run.execution.stepped(services.clock.now()))
        uow.commit()
    assert [(each.folder, each.kept) for each in collected(bench)] == [(given_up, None)]
    assert run.workspace == given_up.with_name("files~2")


def test_a_plan_removes_nothing(bench: Bench) -> None:
    folder = run_of(bench).workspace
    (planned,) = collection(bench).plan()
    assert (planned.folder, planned.kept) == (folder, None)
    assert folder.exists()
    assert [each.folder for each in collected(bench)] == [folder]


class Meanwhile(LocalFolders):
    """Does something else between the look at a folder and what follows from it."""

    def __init__(self, folders: LocalFolders, do: Callable[[Path], object], *, after: int = 1) -> None:
        self.__dict__.update(folders.__dict__)
        self._do = do
        self._after = after

    def survey(self, folder: Path, *, known_as: Path | None = None) -> Any:
        found = super().survey(folder, known_as=known_as)
        self._after -= 1
        if self._after == 0:
            self._do(folder)
        return found


class Later(Meanwhile):
    """Does it at the very end of the look."""

    def survey(self, folder: Path, *, known_as: Path | None = None) -> Any:
        return LocalFolders.survey(self, folder, known_as=known_as)

    def check_restorable(self, *given: Any) -> None:
        super().check_restorable(*given)
        self._do(Path())


@pytest.mark.parametrize("when", [Meanwhile, Later])
def test_a_run_that_somebody_takes_up_meanwhile_keeps_its_folder(bench: Bench, when: type[Meanwhile]) -> None:
    run = run_of(bench)
    (kept,) = collected(bench, care=when(bench.services.folders, lambda _: run.rollback("first")))
    assert kept.kept is not None
    if when is Later:
        assert kept.kept == "another process has just resumed run 'r1'"
    assert sorted(described(folder_of(bench, run))) == ["first"]


def test_what_a_person_changes_meanwhile_stays(bench: Bench) -> None:
    run = run_of(bench)
    folder = run.workspace
    (kept,) = collected(bench, care=Meanwhile(bench.services.folders, change))
    assert kept.kept == f"somebody has just changed files in it; it is now {folder}"
    assert (folder / "first").read_text() == "changed"
    run.rollback("first")
    run.redo()
    assert (folder / "first").read_text() == "changed", "it is noted again what the folder held, so a change is seen"


def test_a_run_that_a_process_holds_is_left_alone(bench: Bench) -> None:
    run = run_of(bench)
    services = bench.services
    with services.storage.unit_of_work() as uow:
        held = run.execution.leased(services.owners.me(), uow.now(), timedelta(seconds=30))
        uow.executions.save(held)
        uow.commit()
    assert collected(bench) == []


def test_what_a_killed_collection_left_goes_with_the_next(bench: Bench) -> None:
    run = run_of(bench)
    folder = run.workspace

    def killed(_: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collected(bench, care=Meanwhile(bench.services.folders, killed, after=2))
    assert not folder.exists()
    assert [path.name for path in folder.parent.iterdir() if path.name.endswith(".aside")] != []
    assert [each.kept for each in collected(bench)] == [None]
    assert [path.name for path in folder.parent.iterdir()] == [".files.slot"]
    assert len(list(run.workspace.iterdir())) == 2


def test_collecting_changes_nothing_about_the_run(bench: Bench) -> None:
    run = run_of(bench)
    before, events = run.execution, run.all_events()
    collected(bench)
    assert (run.execution, run.all_events()) == (before, events)


def test_a_link_in_the_place_of_a_folder_is_not_followed(bench: Bench, tmp_path: Path) -> None:
    folder = run_of(bench).workspace
    outside = tmp_path / "outside"
    folder.rename(outside)
    folder.symlink_to(outside)
    before = described(outside)
    (kept,) = collected(bench)
    assert kept.kept is not None
    assert "is not the folder that wtb created" in kept.kept
    assert described(outside) == before


def test_two_who_collect_at_once_do_not_disturb_each_other(bench: Bench) -> None:
    run = run_of(bench)
    second: list[CollectedFolder] = []
    (first,) = collected(bench, care=Meanwhile(bench.services.folders, lambda _: second.extend(collected(bench))))
    assert [each.kept for each in second] == [None]
    assert first.kept is not None
    assert len(list(run.workspace.iterdir())) == 2


def test_a_run_goes_on_while_somebody_removes_its_folder_again_and_again(bench: Bench) -> None:
    run, ended = run_of(bench), threading.Event()

    def remove_again_and_again() -> None:
        while not ended.is_set():
            collected(bench)

    with ThreadPoolExecutor(1) as threads:
        removing = threads.submit(remove_again_and_again)
        try:
            for _ in range(3):
                run.rollback("first")
                assert run.resume().status is ExecutionStatus.COMPLETED
                run.rollback(0)
                run.redo()
                assert run.resume().status is ExecutionStatus.COMPLETED
        finally:
            ended.set()
        removing.result()
    collected(bench)
    assert sorted(path.name for path in run.workspace.iterdir()) == ["first", "second"]
