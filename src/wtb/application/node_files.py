"""NodeFiles: the workspace of one attempt of a node, put right when it is first used."""

from __future__ import annotations

import threading
from pathlib import Path

from wtb.application.workspaces import PreparedCommit, Workspaces
from wtb.domain.files import FileCommitId
from wtb.domain.ids import BranchId, ExecutionId


class NodeFiles:
    """A folder with the files of the node's start, from the first look on; a node that never looks costs nothing.

    Every attempt begins with the files that the node began with, so half-done effects of an earlier one are gone. A
    member of a parallel superstep, and an attempt after the first, has a folder of its own: an attempt that was
    given up may still be writing into the other.
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

    def folder(self) -> Path:
        """Return the folder, restored on first use."""
        with self._lock:
            if self._folder is None:
                folder = self._workspaces.path(*self._place)
                if not self._place[2]:
                    self._workspaces.note(folder, None)
                self._workspaces.restore(folder, self._base_id)
                self._folder = folder
            return self._folder

    def prepared(self) -> PreparedCommit | None:
        """Return what the node left behind, its large contents stored; None when it never looked."""
        return None if self._folder is None else self._workspaces.prepare(self._folder, self._base_id)

    def left(self) -> PreparedCommit | None:
        """Return the same at the end of the node; the folder of the branch then holds just that."""
        prepared = self.prepared()
        if prepared is not None and self._folder is not None and not self._place[2]:
            self._workspaces.note(self._folder, prepared.id)
        return prepared
