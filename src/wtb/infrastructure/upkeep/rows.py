"""UpkeepRows: every row of a storage, one after the other, and the removal of rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple, Protocol

import ormsgpack

from wtb.domain.checkpoint import NodeStatus
from wtb.domain.integrity import FaultKind
from wtb.infrastructure.checkpoints.rows import CheckpointRow
from wtb.infrastructure.event_chain import EventRow
from wtb.infrastructure.files.commits import FileCommitRow


class BranchRow(NamedTuple):
    """The head of a branch, and the checkpoint where it left another line."""

    id: str
    execution_id: str
    head_id: str | None
    forked_from_id: str | None


class NodeRunRow(NamedTuple):
    """The references of a node run; `file_commit` belongs to a result that waits for its barrier."""

    execution_id: str
    id: str
    may_go_on: bool
    checkpoint_ids: tuple[str | None, ...]
    file_commit: str | None
    problem: str = ""
    """Why the row cannot be read."""
    completed_at: str | None = None
    """The checkpoint of its completion, which an event records; unknown for rows written before seals existed."""

    @property
    def input_id(self) -> str | None:
        return self.checkpoint_ids[0]


class BlobRow(NamedTuple):
    """A blob without its content."""

    address: bytes
    size: int


class ExecutionRow(NamedTuple):
    """The references of an execution."""

    id: str
    branch_id: str
    workflow_id: str
    workflow_name: str
    status: str
    is_sealed: bool
    """Whether it was written after seals were introduced."""


class CallRow(NamedTuple):
    """A recorded call; `problem` says why it cannot be read."""

    execution_id: str
    node_run_id: str
    identity: str
    has_node_run: bool
    problem: str = ""


class CheckedRow(NamedTuple):
    """A row with a seal; `problem` says what is wrong with it, and `execution_id` names the affected run."""

    kind: FaultKind
    name: str
    execution_id: str | None
    problem: str = ""
    is_whole_row: bool = True
    """False for the head of a branch, because the branch's row is checked separately."""


class WrittenRow(NamedTuple):
    """A blob that a pending write holds."""

    address: bytes
    write: CheckedRow


class RollbackRow(NamedTuple):
    """A completed rollback or redo, which moved the head to the target."""

    branch_id: str
    target_id: str


class UpkeepRows(Protocol):
    """All rows of a storage inside one transaction. Iterators hold few rows at a time."""

    def checkpoints(self) -> Iterator[tuple[CheckpointRow, bytes]]:
        """Yield every checkpoint with its payload, tombstones included."""
        ...

    def keyframes(self) -> Iterator[tuple[str, bytes]]:
        """Yield the checkpoint and the payload of every keyframe."""
        ...

    def file_commits(self) -> Iterator[FileCommitRow]:
        """Yield every file commit."""
        ...

    def blobs(self, before_us: int | None = None) -> Iterator[BlobRow]:
        """Yield every blob, or only those that were last used before this time."""
        ...

    def get_blobs(self, addresses: Collection[bytes]) -> dict[bytes, bytes]:
        """Return the blobs that exist."""
        ...

    def executions(self) -> Iterator[ExecutionRow]:
        """Yield every execution."""
        ...

    def branches(self) -> Iterator[BranchRow]:
        """Yield every branch."""
        ...

    def node_runs(self) -> Iterator[NodeRunRow]:
        """Yield every node run."""
        ...

    def calls(self) -> Iterator[CallRow]:
        """Yield every recorded call."""
        ...

    def rollbacks(self) -> Iterator[RollbackRow]:
        """Yield every completed rollback and redo."""
        ...

    def sealed_rows(self) -> Iterator[CheckedRow]:
        """Yield every row with a seal that no other method checks."""
        ...

    def list_tables(self) -> list[str]:
        """Return the tables that the database can check by itself."""
        ...

    def check_table(self, table: str) -> str:
        """Let the database check the pages of a table; return the problems.

        It may be the last call that works in this transaction.
        """
        ...

    def shared_commits(self) -> Iterator[str]:
        """Yield the file commits in shared results of node runs."""
        ...

    def written_blobs(self) -> Iterator[WrittenRow]:
        """Yield the blobs that pending writes hold."""
        ...

    def events(self) -> Iterator[EventRow]:
        """Yield every event, by stream and sequence."""
        ...

    def drop_blobs(self, addresses: Collection[bytes], before_us: int) -> set[bytes]:
        """Remove the blobs that are still unused, and return them."""
        ...

    def drop_file_commits(self, commit_ids: Collection[str], before_us: int) -> set[str]:
        """Remove the commits that are still unused and that no other commit builds on, and return them."""
        ...

    def replace_blob(self, address: bytes, data: bytes) -> None:
        """Replace a wrong or missing content with the right one; it counts as unused for a long time."""
        ...

    def remove_blob(self, address: bytes) -> None:
        """Remove a blob, used or not."""
        ...

    def drop_keyframe(self, checkpoint_id: str) -> None:
        """Remove a keyframe."""
        ...


def node_run_row(
    execution_id: str, id: str, status: str, checkpoint_ids: tuple[str | None, ...], pending: bytes | None
) -> NodeRunRow:
    """Return the references of a stored node run; its result may hold any of the user's types."""
    may_go_on = status in (NodeStatus.STARTED, NodeStatus.FAILED) or pending is not None
    row = NodeRunRow(execution_id, id, may_go_on, checkpoint_ids, None)
    if status not in set(NodeStatus):
        return row._replace(problem=f"node run {id!r} is damaged: its status {status!r} does not exist")
    if pending is None:
        return row
    try:
        return row._replace(file_commit=file_commit_in(pending))
    except (ValueError, AttributeError) as error:
        return row._replace(problem=f"node run {id!r} is damaged: its result cannot be read: {error}")


def file_commit_in(result: bytes) -> str | None:
    """Return the file commit of a stored result, which may hold any of the user's types."""
    found: str | None = ormsgpack.unpackb(result, ext_hook=lambda tag, data: None).get("file_commit")
    return found
