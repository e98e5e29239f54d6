"""SqlUpkeepRows: all rows of the tables, read in the order of their keys, a page at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

from wtb.domain.errors import DamagedData
from wtb.domain.ports import Codec
from wtb.infrastructure.checkpoints.rows import CheckpointRow
from wtb.infrastructure.event_chain import EventRow
from wtb.infrastructure.files.commits import FileCommitRow
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.node_runs import pending_in
from wtb.infrastructure.sql.seals import unsealed
from wtb.infrastructure.sql.tool_calls import CALL_FIELDS, result_in
from wtb.infrastructure.upkeep.rows import (
    BlobRow,
    BranchRow,
    CallRow,
    ExecutionRow,
    NodeRunRow,
    file_commit_in,
    node_run_row,
)

_SMALL, _LARGE = 500, 32
"""Rows in a page: of those that are small, and of those that may hold a whole table of contents."""

_CHECKPOINTS = f"SELECT {', '.join(CheckpointRow._fields)}, payload FROM wtb_checkpoints WHERE id > ? ORDER BY id"
_KEYFRAMES = "SELECT checkpoint_id, payload FROM wtb_keyframes WHERE checkpoint_id > ? ORDER BY checkpoint_id"
_COMMITS = f"SELECT {', '.join(FileCommitRow._fields)} FROM wtb_file_commits WHERE id > ? ORDER BY id"
_BLOBS = "SELECT address, length(data) FROM wtb_blobs WHERE address > ?{since} ORDER BY address"
_EXECUTIONS = "SELECT id, branch_id, workflow_id FROM wtb_executions WHERE id > ? ORDER BY id"
_BRANCHES = "SELECT id, execution_id, head_id FROM wtb_branches WHERE id > ? ORDER BY id"
_NODE_RUNS = (
    "SELECT execution_id, id, status, input_id, first_id, last_id, pending FROM wtb_node_runs "
    "WHERE (execution_id, id) > (?, ?) ORDER BY execution_id, id"
)
_CALLS = (
    f"SELECT {CALL_FIELDS} FROM wtb_tool_calls WHERE (execution_id, node_run_id, identity) > (?, ?, ?) "
    "ORDER BY execution_id, node_run_id, identity"
)
_SHARED = "SELECT key, value FROM wtb_node_cache WHERE key > ? AND status = 'done' ORDER BY key"
_WRITTEN = (
    "SELECT address, execution_id, checkpoint_id, task_id, idx FROM wtb_pending_writes "
    "WHERE (execution_id, checkpoint_id, task_id, idx) > (?, ?, ?, ?) AND length(address) > 0 "
    "ORDER BY execution_id, checkpoint_id, task_id, idx"
)
_EVENTS = (
    "SELECT b.hash, e.position, e.stream, e.sequence, e.type, e.at_us, e.data, e.hash FROM wtb_events e "
    "LEFT JOIN wtb_events b ON b.stream = e.stream AND b.sequence = e.sequence - 1 "
    "WHERE (e.stream, e.sequence) > (?, ?) ORDER BY e.stream, e.sequence"
)
_REPLACE_BLOB = """
INSERT INTO wtb_blobs (address, data, touched_at_us) VALUES (?, ?, 0)
ON CONFLICT (address) DO UPDATE SET data = excluded.data
"""


class SqlUpkeepRows:
    """Rows inside one transaction."""

    def __init__(self, transaction: Transaction, codec: Codec) -> None:
        self._transaction = transaction
        self._codec = codec

    def checkpoints(self) -> Iterator[tuple[CheckpointRow, bytes]]:
        for row in self._pages(_CHECKPOINTS, ("",), (0,), _SMALL):
            yield CheckpointRow(*row[:-1]), row[-1]

    def keyframes(self) -> Iterator[tuple[str, bytes]]:
        for row in self._pages(_KEYFRAMES, ("",), (0,), _LARGE):
            yield row[0], row[1]

    def file_commits(self) -> Iterator[FileCommitRow]:
        for row in self._pages(_COMMITS, ("",), (0,), _LARGE):
            yield FileCommitRow(*row)

    def blobs(self, before_us: int | None = None) -> Iterator[BlobRow]:
        since = "" if before_us is None else f" AND touched_at_us < {before_us:d}"
        for row in self._pages(_BLOBS.format(since=since), (b"",), (0,), _SMALL):
            yield BlobRow(*row)

    def get_blobs(self, addresses: Collection[bytes]) -> dict[bytes, bytes]:
        return dict(self._transaction.run_in("SELECT address, data FROM wtb_blobs WHERE address IN (??)", addresses))

    def executions(self) -> Iterator[ExecutionRow]:
        for row in self._pages(_EXECUTIONS, ("",), (0,), _SMALL):
            yield ExecutionRow(*row)

    def branches(self) -> Iterator[BranchRow]:
        for row in self._pages(_BRANCHES, ("",), (0,), _SMALL):
            yield BranchRow(*row)

    def node_runs(self) -> Iterator[NodeRunRow]:
        for execution_id, id, status, *checkpoint_ids, pending in self._pages(_NODE_RUNS, ("", ""), (0, 1), _SMALL):
            try:
                result = pending_in(self._codec, execution_id, id, pending)
            except DamagedData as error:
                yield NodeRunRow(execution_id, id, True, tuple(checkpoint_ids), None, str(error))
            else:
                yield node_run_row(execution_id, id, status, tuple(checkpoint_ids), result)

    def calls(self) -> Iterator[CallRow]:
        for row in self._pages(_CALLS, ("", "", ""), (0, 1, 2), _SMALL):
            problem = ""
            try:
                result_in(self._codec, row)
            except DamagedData as error:
                problem = str(error)
            yield CallRow(row[0], row[1], row[2], problem)

    def shared_commits(self) -> Iterator[str]:
        for key, value in self._pages(_SHARED, (b"",), (0,), _SMALL):
            with suppress(ValueError, AttributeError, DamagedData):  # a result that nobody can read is made again
                commit_id = file_commit_in(unsealed(self._codec, (bytes(key),), value, "a shared result"))
                if commit_id is not None:
                    yield commit_id

    def written_blobs(self) -> Iterator[tuple[bytes, str]]:
        for row in self._pages(_WRITTEN, ("", "", "", -9), (1, 2, 3, 4), _SMALL):
            yield bytes(row[0]), row[1]

    def events(self) -> Iterator[EventRow]:
        for row in self._pages(_EVENTS, ("", 0), (2, 3), _SMALL):
            yield EventRow(*row)

    def _pages(self, statement: str, start: Sequence[Any], key: Sequence[int], size: int) -> Iterator[Any]:
        """Yield all rows; `key` says which columns are what the statement goes on from."""
        after = tuple(start)
        while True:
            rows = self._transaction.rows(f"{statement} LIMIT {size}", after)
            yield from rows
            if len(rows) < size:
                return
            after = tuple(rows[-1][column] for column in key)

    def drop_blobs(self, addresses: Collection[bytes], before_us: int) -> set[bytes]:
        statement = "DELETE FROM wtb_blobs WHERE touched_at_us < ? AND address IN (??) RETURNING address"
        return {bytes(address) for (address,) in self._transaction.run_in(statement, sorted(addresses), before_us)}

    def drop_file_commits(self, commit_ids: Collection[str], before_us: int) -> set[str]:
        # Locked against whoever saves the same tree, or builds on it, until the end of the transaction.
        lock = " FOR UPDATE" if self._transaction.database.lock_suffix else ""
        statement = f"SELECT id FROM wtb_file_commits WHERE created_at_us < ? AND id IN (??) ORDER BY id{lock}"
        unused = {id for (id,) in self._transaction.run_in(statement, sorted(commit_ids), before_us)}
        statement = "SELECT id, base_id FROM wtb_file_commits WHERE base_id IN (??)"
        built_on: dict[str, set[str]] = {}
        for id, base_id in self._transaction.run_in(statement, unused):
            built_on.setdefault(base_id, set()).add(id)
        while held := {id for id in unused if built_on.get(id, set()) - unused}:
            unused -= held
        self._transaction.change_in("DELETE FROM wtb_file_commits WHERE id IN (??)", sorted(unused))
        return unused

    def replace_blob(self, address: bytes, data: bytes) -> None:
        self._transaction.run(_REPLACE_BLOB, (address, data))

    def remove_blob(self, address: bytes) -> None:
        self._transaction.run("DELETE FROM wtb_blobs WHERE address = ?", (address,))

    def drop_keyframe(self, checkpoint_id: str) -> None:
        self._transaction.run("DELETE FROM wtb_keyframes WHERE checkpoint_id = ?", (checkpoint_id,))
