"""MemoryUpkeepRows: all rows of the tables in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from wtb.domain.checkpoint import NodeStatus
from wtb.domain.rollback import RollbackDirection, RollbackStatus
from wtb.infrastructure.checkpoints.rows import CheckpointRow
from wtb.infrastructure.event_chain import EventRow
from wtb.infrastructure.files.commits import FileCommitRow
from wtb.infrastructure.memory.tables import MemoryTransaction
from wtb.infrastructure.upkeep.rows import (
    BlobRow,
    BranchRow,
    CallRow,
    CheckedRow,
    ExecutionRow,
    NodeRunRow,
    RollbackRow,
    WrittenRow,
    file_commit_in,
)


class MemoryUpkeepRows:
    """Rows inside one transaction."""

    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction

    def checkpoints(self) -> Iterator[tuple[CheckpointRow, bytes]]:
        yield from sorted(self._transaction.all("checkpoints"), key=lambda stored: str(stored[0].id))

    def keyframes(self) -> Iterator[tuple[str, bytes]]:
        for key, payload in sorted(self._transaction.items("keyframes")):
            yield str(key), payload

    def file_commits(self) -> Iterator[FileCommitRow]:
        yield from sorted(self._transaction.all("file_commits"))

    def blobs(self, before_us: int | None = None) -> Iterator[BlobRow]:
        for address, (data, touched_at_us) in sorted(self._transaction.items("blobs")):
            if before_us is None or touched_at_us < before_us:
                yield BlobRow(address, len(data))

    def get_blobs(self, addresses: Collection[bytes]) -> dict[bytes, bytes]:
        found = ((address, self._transaction.find("blobs", address)) for address in addresses)
        return {address: stored[0] for address, stored in found if stored is not None}

    def executions(self) -> Iterator[ExecutionRow]:
        for execution in self._transaction.all("executions"):
            ids = (execution.id, execution.branch_id, execution.workflow_id)
            yield ExecutionRow(*ids, execution.workflow_name, execution.status, is_sealed=True)

    def branches(self) -> Iterator[BranchRow]:
        for branch in self._transaction.all("branches"):
            yield BranchRow(branch.id, branch.execution_id, branch.head_id, branch.forked_from_id)

    def node_runs(self) -> Iterator[NodeRunRow]:
        for run in self._transaction.all("node_runs"):
            may_go_on = run.status in (NodeStatus.STARTED, NodeStatus.FAILED) or run.pending is not None
            found = None if run.pending is None else run.pending.get("file_commit")
            ids = (run.input_id, run.first_id, run.last_id)
            completed_at = run.last_id if run.status is NodeStatus.COMPLETED else None
            yield NodeRunRow(run.execution_id, run.id, may_go_on, ids, found, completed_at=completed_at)

    def calls(self) -> Iterator[CallRow]:
        for call, _, _ in self._transaction.all("tool_calls"):
            has_node_run = self._transaction.find("node_runs", call.node_run_id) is not None
            yield CallRow(call.execution_id, call.node_run_id, call.identity, has_node_run)

    def rollbacks(self) -> Iterator[RollbackRow]:
        for rollback in self._transaction.all("rollbacks"):
            has_moved = rollback.direction is not RollbackDirection.TAKE_BACK
            if rollback.status is RollbackStatus.COMPLETED and has_moved:
                yield RollbackRow(rollback.branch_id, rollback.target_id)

    def sealed_rows(self) -> Iterator[CheckedRow]:
        yield from ()  # nothing in memory is damaged

    def list_tables(self) -> list[str]:
        return []

    def check_table(self, table: str) -> str:
        return ""

    def shared_commits(self) -> Iterator[str]:
        for _, value in self._transaction.all("node_cache"):
            commit_id = None if value is None else file_commit_in(value)
            if commit_id is not None:
                yield commit_id

    def written_blobs(self) -> Iterator[WrittenRow]:
        yield from ()  # here writes hold their values themselves

    def events(self) -> Iterator[EventRow]:
        yield from sorted(self._transaction.all("events"), key=lambda row: (row.stream, row.sequence))

    def drop_blobs(self, addresses: Collection[bytes], before_us: int) -> set[bytes]:
        found = {address: self._transaction.find("blobs", address) for address in addresses}
        gone = {address for address, stored in found.items() if stored is not None and stored[1] < before_us}
        for address in gone:
            self._transaction.drop("blobs", address)
        return gone

    def drop_file_commits(self, commit_ids: Collection[str], before_us: int) -> set[str]:
        rows: list[FileCommitRow] = list(self._transaction.all("file_commits"))
        wanted = set(commit_ids)
        unused = {row.id for row in rows if row.id in wanted and row.created_at_us < before_us}
        while held := {row.base_id for row in rows if row.id not in unused and row.base_id in unused}:
            unused = unused - held
        for commit_id in unused:
            self._transaction.drop("file_commits", commit_id)
        return unused

    def replace_blob(self, address: bytes, data: bytes) -> None:
        touched_at_us = (self._transaction.find("blobs", address) or (b"", 0))[1]
        self._transaction.put("blobs", address, (data, touched_at_us))

    def remove_blob(self, address: bytes) -> None:
        self._transaction.drop("blobs", address)

    def drop_keyframe(self, checkpoint_id: str) -> None:
        self._transaction.drop("keyframes", checkpoint_id)
