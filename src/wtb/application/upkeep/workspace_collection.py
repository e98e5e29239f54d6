"""WorkspaceCollection: deletes the folders of ended runs; WTB can restore them from the store."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from wtb.application.upkeep.listing import every_execution
from wtb.application.workspace_slots import (
    BUSY,
    FREE,
    Slot,
    WorkspaceSlots,
    aside_of,
    folder_name,
    is_aside,
    is_removed,
    removed_of,
)
from wtb.application.workspaces import read_small_contents
from wtb.domain.errors import Conflict, NotFound, StorageError, WorkspaceError
from wtb.domain.execution import Execution, ExecutionStatus
from wtb.domain.files import FileCommitId, FileTree, diff
from wtb.domain.ids import ExecutionId
from wtb.domain.ports import Clock, FolderCare, FolderStore, Owners, Storage, SurveyedFolder
from wtb.domain.retention import RetentionPolicy

_ENDED = (ExecutionStatus.COMPLETED, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedFolder:
    """A folder that is old enough to remove. It was removed, or would be; or `kept` says why it stays."""

    execution_id: ExecutionId
    folder: Path
    size_bytes: int = 0
    kept: str | None = None


class WorkspaceCollection:
    """Checks the folders of runs that ended long enough ago and that no process holds.

    A folder is removed if it can be restored completely, or if nobody can use it any more: it holds exactly the commit
    that is noted for it, or it is left over from an attempt that failed or was given up. It stays if it holds something
    that no commit has: ignored files, or changes that a person made.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        owners: Owners,
        store: FolderStore,
        care: FolderCare,
        *,
        policy_for: Callable[[str], RetentionPolicy],
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._owners = owners
        self._store = store
        self._slots = WorkspaceSlots(store)
        self._care = care
        self._policy_for = policy_for

    def plan(self, *, workflow: str | None = None, run: ExecutionId | None = None) -> Iterator[CollectedFolder]:
        """Yield the folders that would be removed and those that would stay, run by run."""
        checked: set[bytes] = set()
        for execution, folder in self._due(workflow, run):
            yield self._looked_at(execution, folder, checked)[0]

    def collect(self, *, workflow: str | None = None, run: ExecutionId | None = None) -> Iterator[CollectedFolder]:
        """Remove folders, and yield those that were removed and those that stay, run by run."""
        checked: set[bytes] = set()
        for execution, folder in self._due(workflow, run):
            outcome, surveyed = self._looked_at(execution, folder, checked)
            yield outcome if outcome.kept else self._removed(execution, outcome, surveyed)

    def _due(self, workflow: str | None, run: ExecutionId | None) -> Iterator[tuple[Execution, Path]]:
        now = self._clock.now()
        for execution in self._executions(workflow, run):
            before = self._policy_for(execution.workflow_name).oldest_workspace(now)
            if before is None or execution.updated_at > before or not self._is_over(execution):
                continue
            for folder in list(self._slots.list_folders(folder_name(execution.id))):
                noted_ns = self._slots.noted_ns(self._slots.of(folder))
                if noted_ns is None or datetime.fromtimestamp(noted_ns / 1e9, UTC) <= before:
                    yield execution, folder

    def _executions(self, workflow: str | None, run: ExecutionId | None) -> Iterator[Execution]:
        if run is None:
            yield from every_execution(self._storage, workflow=workflow, statuses=_ENDED)
            return
        with self._storage.unit_of_work(readonly=True) as uow:
            found = uow.executions.get(run)
        yield found

    def _is_over(self, execution: Execution) -> bool:
        """Whether a run has ended and no living process holds it."""
        lease = execution.lease
        return execution.status in _ENDED and (lease is None or self._owners.is_gone(lease.owner) is True)

    def _looked_at(
        self, execution: Execution, folder: Path, checked: set[bytes]
    ) -> tuple[CollectedFolder, SurveyedFolder | None]:
        """Return whether a folder goes or stays, and its contents if it may go."""
        outcome = CollectedFolder(execution_id=execution.id, folder=folder)
        if is_removed(folder):  # a process was killed while it removed the folder
            return outcome, None
        try:
            surveyed = self._care.survey(folder)
            outcome = replace(outcome, size_bytes=sum(entry.size for entry in surveyed.tree.values()))
            kept = self._reason_to_keep(execution, folder, surveyed, checked)
        except StorageError as error:
            return replace(outcome, kept=str(error)), None
        return replace(outcome, kept=kept), surveyed if kept is None else None

    def _reason_to_keep(
        self, execution: Execution, folder: Path, surveyed: SurveyedFolder, checked: set[bytes]
    ) -> str | None:
        slot = self._slots.of(folder)
        if surveyed.left_out:
            return f"it holds ignored files, which are in no checkpoint, such as {surveyed.left_out[0]!r}"
        held = self._held(slot, folder)
        if held is None:
            return self._reason_to_keep_leftovers(execution, slot, folder, surveyed)
        changes = diff(held, surveyed.tree)
        if changes:
            return f"somebody has changed files in it, such as {min({*changes.put, *changes.removed})!r}"
        self._care.check_restorable(held, partial(read_small_contents, self._storage), checked)
        return None

    def _held(self, slot: Slot, folder: Path) -> FileTree | None:
        """Return the tree that a folder held when a step last ended in it; None if that is no longer known."""
        if slot.folder != folder or slot.commit_id is None:
            return None
        try:
            with self._storage.unit_of_work(readonly=True) as uow:
                return uow.files.get(FileCommitId(slot.commit_id))
        except NotFound:  # its step was never committed, or its checkpoint has been deleted
            return None

    def _reason_to_keep_leftovers(
        self, execution: Execution, slot: Slot, folder: Path, surveyed: SurveyedFolder
    ) -> str | None:
        """Return why the files of a failed or given-up attempt must stay; only a person can have changed them since.

        An attempt that was given up may have written to its folder until its run ended.
        """
        done_ns = self._slots.noted_ns(slot)
        if done_ns is None:
            return "wtb has no record of it: an earlier version of wtb or another program made it"
        if slot.state == BUSY or slot.folder != folder:
            done_ns = int(execution.updated_at.timestamp() * 1e9)
        return "something was written to it after its run had ended" if surveyed.changed_ns > done_ns else None

    def _removed(
        self, execution: Execution, outcome: CollectedFolder, surveyed: SurveyedFolder | None
    ) -> CollectedFolder:
        """Set a folder aside, check that nobody has changed it meanwhile, and remove it."""
        folder = aside = outcome.folder
        try:
            if not is_aside(folder):
                aside = aside_of(folder, secrets.token_hex(4))
                slot = self._set_aside(execution, folder, aside)
                again = self._care.survey(aside, known_as=folder)
                if surveyed is None or (again.tree, again.left_out) != (surveyed.tree, surveyed.left_out):
                    return self._put_back(outcome, aside, slot)
            if not is_removed(aside):
                self._store.rename(aside, removed_of(aside).name)
            self._store.remove(removed_of(aside))
            self._care.drop_index(self._care.index_of(folder))
        except (StorageError, NotFound) as error:
            return replace(outcome, kept=str(error))
        except Conflict:
            return replace(outcome, kept=f"another process has just resumed run {execution.id!r}")
        return outcome

    def _set_aside(self, execution: Execution, folder: Path, aside: Path) -> Slot:
        """Rename a folder while no process can resume its run: a transaction locks its row, and changes nothing.

        A process that resumes the run later creates the folder again. The note must then name no commit: otherwise an
        empty folder would look as if a person had deleted all files.
        """
        with self._storage.unit_of_work() as uow:
            uow.executions.save(execution.stepped(self._clock.now()))  # raises Conflict if a process was quicker
            slot = self._slots.of(folder)
            if slot.folder == folder:
                self._slots.write(slot.after_given_up() if slot.state == BUSY else slot._replace(state=FREE))
            try:
                self._store.rename(folder, aside.name)
            except WorkspaceError:
                self._slots.write(slot)
                raise
        return slot

    def _put_back(self, outcome: CollectedFolder, aside: Path, slot: Slot) -> CollectedFolder:
        place = outcome.folder
        try:
            self._store.rename(aside, place.name)
            if slot.folder == place:
                self._slots.write(slot)
        except WorkspaceError:  # a process has created the folder again
            place = aside
        return replace(outcome, kept=f"somebody has just changed files in it; it is now {place}")
