"""References: reads every row that may refer to something, verifies it, and notes its references in a ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from wtb.domain.checkpoint import Kind, Trigger
from wtb.domain.errors import DamagedData, StorageError, UnknownFormat
from wtb.domain.files import path_bytes
from wtb.domain.integrity import FaultKind
from wtb.domain.ports import Codec
from wtb.infrastructure.checkpoints.manifest import EMPTY, Op, Operation
from wtb.infrastructure.checkpoints.rows import (
    CheckpointRow,
    checkpoint_of,
    unpacked,
    unseal_delta,
    unseal_keyframe,
)
from wtb.infrastructure.files.commits import FileCommitRow, file_commit_delta
from wtb.infrastructure.upkeep.ledger import Ledger
from wtb.infrastructure.upkeep.rows import NodeRunRow, UpkeepRows

ReportFault = Callable[[FaultKind, str, StorageError], None]
"""Called for each damaged thing with its kind, its id and the error."""


def refuse(kind: FaultKind, id: str, error: StorageError) -> None:
    """Stop at the first thing that cannot be read."""
    raise error


class References:
    """One pass over all rows. It reports damaged rows; their references are unknown."""

    def __init__(self, rows: UpkeepRows, ledger: Ledger, codec: Codec, report: ReportFault = refuse) -> None:
        self._rows = rows
        self._ledger = ledger
        self._codec = codec
        self._report = report

    def read(self) -> Iterator[str]:
        """Read everything; yield the kind of each row, to show progress."""
        for row, payload in self._rows.checkpoints():
            self._checkpoint(row, payload)
            yield FaultKind.CHECKPOINT
        for checkpoint_id, payload in self._rows.keyframes():
            self._keyframe(checkpoint_id, payload)
            yield FaultKind.KEYFRAME
        for commit in self._rows.file_commits():
            self._commit(commit)
            yield FaultKind.FILE_COMMIT
        for run in self._rows.node_runs():
            self._node_run(run)
            yield FaultKind.NODE_RUN
        for commit_id in self._rows.shared_commits():
            self._ledger.add("root", (commit_id, ""))
        for address, write in self._rows.written_blobs():
            if write.problem:
                self._report(FaultKind.PENDING_WRITE, write.name, DamagedData(write.problem))
            self._ledger.add("value", (address, write.execution_id))
        self._ledger.index()

    def _checkpoint(self, row: CheckpointRow, payload: bytes) -> None:
        facts = (row.id, row.execution_id, row.parent_id, row.parent_hash, row.hash, row.state_hash)
        is_inside = row.node_run_id is not None and row.cause != Trigger.NODE_END
        is_system = row.kind == Kind.SYSTEM
        self._ledger.add("checkpoint", (*facts, row.deleted, row.file_commit, is_inside, row.branch_id, is_system))
        try:
            checkpoint_of(self._codec, row)
        except (DamagedData, UnknownFormat) as error:
            self._report(FaultKind.CHECKPOINT, row.id, error)
        if row.deleted:
            if payload:
                problem = f"checkpoint {row.id!r} is marked as deleted, but its content is still there"
                self._report(FaultKind.CHECKPOINT, row.id, DamagedData(problem))
            return
        if row.file_commit is not None:
            self._ledger.add("root", (row.file_commit, row.execution_id))
        try:
            operations, returned = unpacked(unseal_delta(self._codec, payload, row.id, row.parent_id))
        except DamagedData as error:
            self._report(FaultKind.DELTA, row.id, error)
            return
        self._values(row.execution_id, operations)
        for update in returned.values():
            own = {key: (operation,) for key, operation in update.items() if operation is not None}
            self._values(row.execution_id, own)

    def _keyframe(self, checkpoint_id: str, payload: bytes) -> None:
        self._ledger.add("keyframe", (checkpoint_id,))
        rows = self._ledger.rows("SELECT execution_id, state_hash FROM checkpoint WHERE id = ?", checkpoint_id)
        owner, state_hash = next(rows, ("", b""))
        try:
            operations = unpacked(unseal_keyframe(self._codec, payload, checkpoint_id))
            if not owner or EMPTY.apply(operations).root(self._codec) != state_hash:
                raise DamagedData(f"the keyframe of checkpoint {checkpoint_id!r} does not match its state")
        except (DamagedData, UnknownFormat) as error:
            self._report(FaultKind.KEYFRAME, checkpoint_id, error)
            return
        self._values(owner, operations)

    def _values(self, execution_id: str, operations: Any) -> None:
        for changes in operations.values():
            for operation in changes:
                self._ledger.add("value", *((address, execution_id) for address in addresses_in(operation)))

    def _commit(self, row: FileCommitRow) -> None:
        self._ledger.add("file_commit", (row.id, row.base_id))
        try:
            delta = file_commit_delta(self._codec, row)
        except (DamagedData, UnknownFormat) as error:
            self._report(FaultKind.FILE_COMMIT, row.id, error)
            return
        put = ((row.id, path_bytes(path), entry.digest, entry.size) for path, entry in delta.put.items())
        self._ledger.add("entry", *put, *((row.id, path_bytes(path), b"", 0) for path in delta.removed))

    def _node_run(self, run: NodeRunRow) -> None:
        """Note what a node run needs to continue: its result, and the files that it began with."""
        if run.problem:
            self._report(FaultKind.NODE_RUN, run.id, DamagedData(run.problem))
        if run.completed_at is not None:
            self._ledger.add("completed", (run.execution_id, run.completed_at))
        self._ledger.add("node_run", *((run.id, run.execution_id, id) for id in run.checkpoint_ids if id is not None))
        if run.file_commit is not None:
            self._ledger.add("root", (run.file_commit, run.execution_id))
        if run.may_go_on and run.input_id is not None:
            rows = self._ledger.rows("SELECT file_commit FROM checkpoint WHERE id = ?", run.input_id)
            for (commit_id,) in list(rows):
                if commit_id is not None:
                    self._ledger.add("root", (commit_id, run.execution_id))


def addresses_in(operation: Operation) -> Iterator[bytes]:
    """Yield the blobs that one operation refers to."""
    match operation[0]:
        case Op.BLOB:
            yield operation[2]
        case Op.LIST | Op.APPEND | Op.MAPPING | Op.MERGE:
            yield from (segment[2] for segment in operation[2] if segment[2])
        case Op.KEEP:
            yield from (segment[2] for segment in operation[3] if segment[2])
        case Op.VALUE | Op.DROP | Op.STATE:
            pass
        case code:
            raise UnknownFormat(f"a checkpoint has the unknown operation {code!r}; a newer wtb may have written it")
