"""NodeFiles: the workspace of one attempt of a node, restored when it is first used."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

from wtb.application.workspaces import PreparedCommit, Workspaces
from wtb.domain.errors import WorkspaceError
from wtb.domain.files import FileCommitId
from wtb.domain.ids import BranchId, ExecutionId


class NodeFiles:
    """The folder of one attempt. Its files are restored on first use, so a node that uses no files costs nothing.

    Every attempt begins with the files that the node began with, so half-done work of an earlier attempt is gone. A
    member of a parallel superstep, and an attempt after the first, has its own folder. The folder of an attempt that
    was given up is never used again: the attempt may still be writing there.
    """

    def __init__(
        self,
        workspaces: Workspaces,
        execution_id: ExecutionId,
        branch_id: BranchId,
        base_id: FileCommitId | None,
        member: str,
    ) -> None:
        self._workspaces = workspaces
        self._place = (execution_id, branch_id, member)
        self._base_id = base_id
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._has_ended = False

    def folder(self) -> Path:
        """Return the folder, restored on first use."""
        with self._lock:
            if self._folder is None:
                if self._has_ended:
                    raise WorkspaceError("this attempt of the node has ended, so it can no longer get a workspace")
                folder = self._workspaces.claim(*self._place)
                self._workspaces.restore(folder, self._base_id)
                self._folder = folder
            return self._folder

    def prepared(self) -> PreparedCommit | None:
        """Store large contents and return the current files; None if the node never used the folder."""
        return None if self._folder is None else self._workspaces.prepare(self._folder, self._base_id)

    def left(self) -> PreparedCommit | None:
        """Return the files at the end of the node; the branch's folder then holds exactly these files."""
        prepared = self.prepared()
        self._end(None if prepared is None or self._place[2] else prepared.id)
        return prepared

    def give_back(self) -> None:
        """Leave the folder to the next attempt, because this one has failed."""
        self._end(None)

    def give_up(self) -> None:
        """Never use the folder again, because an attempt may still be writing there."""
        with self._lock:
            self._has_ended = True

    def _end(self, commit_id: FileCommitId | None) -> None:
        with self._lock:
            if self._folder is not None and not self._has_ended:
                with suppress(WorkspaceError):  # then the folder is not used again, as intended
                    self._workspaces.release(self._folder, commit_id)
            self._has_ended = True
