"""SqlUpkeepRows: all rows of the tables, read in the order of their keys, a page at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from wtb.domain.checkpoint import NodeStatus
from wtb.domain.errors import DamagedData
from wtb.domain.integrity import FaultKind
from wtb.domain.ports import Codec
from wtb.infrastructure.checkpoints.rows import CheckpointRow
from wtb.infrastructure.event_chain import EventRow
from wtb.infrastructure.files.commits import FileCommitRow
from wtb.infrastructure.sql.baselines import BASELINE_SEAL, RESULT_SEAL, lost_results
from wtb.infrastructure.sql.batches import BATCH_SEAL, JOB_SEAL, shared_result_in
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.evaluations import EVALUATION_SEAL
from wtb.infrastructure.sql.node_runs import NODE_RUN_FIELDS, check_node_run, pending_in
from wtb.infrastructure.sql.observations import OBSERVATION_SEAL
from wtb.infrastructure.sql.pending_writes import WRITE_SEAL
from wtb.infrastructure.sql.repositories import BRANCH_SEAL, HEAD_SEAL
from wtb.infrastructure.sql.rollbacks import ROLLBACK_SEAL
from wtb.infrastructure.sql.seals import TELLS_MORE, RowSeal
from wtb.infrastructure.sql.tool_calls import CALL_FIELDS, FIGURES_SEAL, result_in
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
    node_run_row,
)

_MOST_TOLD = 5
"""The most lines of SQLite's report about a table that are repeated."""
_SMALL, _LARGE = 500, 32
"""Rows per page: for small rows, and for rows that may hold a whole manifest or tree."""

_CHECKPOINTS = f"SELECT {', '.join(CheckpointRow._fields)}, payload FROM wtb_checkpoints WHERE id > ? ORDER BY id"
_KEYFRAMES = "SELECT checkpoint_id, payload FROM wtb_keyframes WHERE checkpoint_id > ? ORDER BY checkpoint_id"
_COMMITS = f"SELECT {', '.join(FileCommitRow._fields)} FROM wtb_file_commits WHERE id > ? ORDER BY id"
_BLOBS = "SELECT address, length(data) FROM wtb_blobs WHERE address > ?{since} ORDER BY address"
_EXECUTIONS = (
    "SELECT id, branch_id, workflow_id, workflow_name, status, seal IS NOT NULL FROM wtb_executions "
    "WHERE id > ? ORDER BY id"
)
_BRANCHES = "SELECT id, execution_id, head_id, forked_from_id FROM wtb_branches WHERE id > ? ORDER BY id"
_NODE_RUNS = f"SELECT {NODE_RUN_FIELDS} FROM wtb_node_runs WHERE (execution_id, id) > (?, ?) ORDER BY execution_id, id"
_CALLS = (
    f"SELECT {CALL_FIELDS}, figures, seal, EXISTS (SELECT 1 FROM wtb_node_runs WHERE id = node_run_id "
    "AND wtb_node_runs.execution_id = wtb_tool_calls.execution_id) FROM wtb_tool_calls "
    "WHERE (execution_id, node_run_id, identity) > (?, ?, ?) ORDER BY execution_id, node_run_id, identity"
)
_ROLLBACKS = (
    "SELECT branch_id, target_id, execution_id, id FROM wtb_rollbacks WHERE (execution_id, id) > (?, ?) "
    "AND status = 'completed' AND direction <> 'take_back' ORDER BY execution_id, id"
)
_SHARED = "SELECT key, status, value FROM wtb_node_cache WHERE key > ? AND status = 'done' ORDER BY key"
_WRITTEN = (
    f"SELECT execution_id, {WRITE_SEAL.covered}, seal FROM wtb_pending_writes "
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


_SEALS = (
    (BRANCH_SEAL, {"id": ""}),
    (HEAD_SEAL, {"id": ""}),
    (ROLLBACK_SEAL, {"execution_id": "", "id": ""}),
    (WRITE_SEAL, {"execution_id": "", "checkpoint_id": "", "task_id": "", "idx": -9}),
    (BATCH_SEAL, {"id": ""}),
    (JOB_SEAL, {"batch_id": "", "number": -1}),
    (BASELINE_SEAL, {"name": ""}),
    (RESULT_SEAL, {"batch_id": "", "number": -1}),
    (EVALUATION_SEAL, {"execution_id": "", "id": ""}),
    (OBSERVATION_SEAL, {"trace_id": "", "number": -1}),
)
"""Seals that are checked separately, each with its table's primary key and a value before all keys.

Runs, node runs and calls are read for other reasons, and checked on the way.
"""


_INCOMPLETE = """
SELECT name, results, found FROM (
    SELECT name, results, (SELECT count(*) FROM wtb_baseline_results r WHERE r.batch_id = b.batch_id) AS found
    FROM wtb_baselines b
) counted WHERE results <> found ORDER BY name
"""
_ORPHANS = """
SELECT batch_id, count(*) FROM wtb_baseline_results
WHERE batch_id NOT IN (SELECT batch_id FROM wtb_baselines) GROUP BY batch_id ORDER BY batch_id
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
        for row in self._pages(_NODE_RUNS, ("", ""), (1, 0), _SMALL):
            id, execution_id, status, ids, pending = row[0], row[1], row[6], row[7:10], row[15]
            try:
                check_node_run(row)
                result = pending_in(self._codec, execution_id, id, pending)
            except DamagedData as error:
                yield NodeRunRow(execution_id, id, True, ids, None, str(error))
            else:
                found = node_run_row(execution_id, id, status, ids, result)
                is_told = status == NodeStatus.COMPLETED and row[-1] is not None
                yield found._replace(completed_at=ids[2]) if is_told else found

    def calls(self) -> Iterator[CallRow]:
        for *fields, figures, seal, has_node_run in self._pages(_CALLS, ("", "", ""), (0, 1, 2), _SMALL):
            problem = ""
            try:
                result_in(self._codec, fields)
                FIGURES_SEAL.check((*fields[:3], figures), seal)
            except DamagedData as error:
                problem = str(error)
            yield CallRow(fields[0], fields[1], fields[2], bool(has_node_run), problem)

    def rollbacks(self) -> Iterator[RollbackRow]:
        for row in self._pages(_ROLLBACKS, ("", ""), (2, 3), _SMALL):
            yield RollbackRow(row[0], row[1])

    def sealed_rows(self) -> Iterator[CheckedRow]:
        for seal, keys in _SEALS:
            key = ", ".join(keys)
            marks = ", ".join("?" * len(keys))
            statement = (
                f"SELECT {key}, {seal.column}, {seal.covered} FROM {seal.table} "
                f"WHERE ({key}) > ({marks}) ORDER BY {key}"
            )
            for row in self._pages(statement, tuple(keys.values()), range(len(keys)), _SMALL):
                yield _checked(seal, dict(zip((*keys, "", *seal.key, *seal.rest), row, strict=True)), row[len(keys) :])
        yield from self._incomplete_baselines()

    def _incomplete_baselines(self) -> Iterator[CheckedRow]:
        """Yield baselines that have lost results, and results that have lost their baseline."""
        for name, saved, found in self._transaction.rows(_INCOMPLETE):
            yield CheckedRow(FaultKind.BASELINE, name, None, lost_results(name, saved, found), is_whole_row=False)
        for batch_id, found in self._transaction.rows(_ORPHANS):
            problem = f"the baseline of {found:,} saved results ({batch_id}) is missing"
            yield CheckedRow(FaultKind.BASELINE, batch_id, None, problem, is_whole_row=False)

    def list_tables(self) -> list[str]:
        if self._transaction.database.dialect != "sqlite":
            return []
        statement = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        return [name for (name,) in self._transaction.rows(statement)]

    def check_table(self, table: str) -> str:
        try:
            found = [str(text) for (text,) in self._transaction.rows(f"PRAGMA integrity_check('{table}')")]
        except DamagedData as error:
            return str(error)
        return "" if found == ["ok"] else "; ".join(found[:_MOST_TOLD])

    def shared_commits(self) -> Iterator[str]:
        for key, status, value in self._pages(_SHARED, (b"",), (0,), _SMALL):
            with suppress(ValueError, AttributeError, DamagedData):  # an unreadable result is made again
                commit_id = file_commit_in(shared_result_in(self._codec, bytes(key), status, value))
                if commit_id is not None:
                    yield commit_id

    def written_blobs(self) -> Iterator[WrittenRow]:
        for row in self._pages(_WRITTEN, ("", "", "", -9), (0, 1, 2, 3), _SMALL):
            yield WrittenRow(bytes(row[7]), _checked(WRITE_SEAL, {"execution_id": row[0]}, (row[9], *row[1:9])))

    def events(self) -> Iterator[EventRow]:
        for row in self._pages(_EVENTS, ("", 0), (2, 3), _SMALL):
            yield EventRow(*row)

    def _pages(self, statement: str, start: Sequence[Any], key: Sequence[int], size: int) -> Iterator[Any]:
        """Yield all rows; `key` names the columns from which the statement continues with the next page."""
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
        # The lock keeps others from saving the same tree, or building on it, until the end of the transaction.
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


def _checked(seal: RowSeal, facts: Mapping[str, Any], row: Sequence[Any]) -> CheckedRow:
    """Return a checked row; it begins with its seal, and the covered columns follow."""
    problem = ""
    try:
        seal.check(row[1:], row[0])
    except DamagedData as error:
        problem = str(error).removesuffix(TELLS_MORE)
    return CheckedRow(seal.kind, seal.name(row[1:]), facts.get("execution_id"), problem, seal.part == "row")
