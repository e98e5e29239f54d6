"""Repositories over tables: workflows, executions and branches."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from datetime import datetime
from functools import cache
from typing import Any, NoReturn, Unpack

from wtb.domain.errors import (
    AlreadyExists,
    BranchNotFound,
    CheckpointNotFound,
    Conflict,
    DamagedData,
    ExecutionNotFound,
    WorkflowNotFound,
)
from wtb.domain.execution import Branch, Execution, ExecutionStatus, Failure, Lease, Pause
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, WorkflowId
from wtb.domain.integrity import FaultKind
from wtb.domain.job_origin import JobOrigin
from wtb.domain.ports import HeadMove, RunPosition
from wtb.domain.run_filters import RunFilters
from wtb.domain.values import evolve
from wtb.infrastructure.json_text import json_text, workflow_id_of
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.mapping import mapping
from wtb.infrastructure.sql.run_conditions import run_conditions
from wtb.infrastructure.sql.seals import RowSeal, text_of
from wtb.infrastructure.timestamps import from_us, to_us


class SqlWorkflowRepository:
    """Definitions by the hash of their text."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def save(self, definition: Mapping[str, Any]) -> WorkflowId:
        text = json_text(definition, f"the definition of workflow {definition['name']!r}")
        workflow_id = workflow_id_of(text)
        self._transaction.run(
            "INSERT INTO wtb_workflows (id, name, version, definition) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (workflow_id, definition["name"], definition["version"], text),
        )
        return workflow_id

    def get(self, workflow_id: WorkflowId) -> Mapping[str, Any]:
        row = self._transaction.row("SELECT definition FROM wtb_workflows WHERE id = ?", (workflow_id,))
        if row is None:
            raise WorkflowNotFound(workflow_id)
        if workflow_id_of(row[0]) != workflow_id:
            raise DamagedData(f"workflow {workflow_id!r} is damaged: its definition does not match its id")
        found: dict[str, Any] = json.loads(row[0])
        return found


EXECUTION_SEAL = RowSeal(
    kind=FaultKind.RUN,
    table="wtb_executions",
    key=("id",),
    rest=(
        "workflow_id",
        "workflow_name",
        "workflow_source",
        "status",
        "branch_id",
        "lease_owner",
        "lease_token",
        "failure",
        "metadata",
        "created_by",
        "created_at_us",
        "pause",
        "options",
        "degraded",
    ),
)
"""Does not cover columns that change alone: a step changes `version` and `updated_at_us`, a renewal the end of the
lease, and anyone `request`. Damage there stops or delays a run, but repeats nothing."""
_COVERED = len(EXECUTION_SEAL.rest) + 1
_EXECUTION_FIELDS = f"{EXECUTION_SEAL.covered}, seal, version, lease_expires_at_us, updated_at_us"
_ADD_EXECUTION = (
    f"INSERT INTO wtb_executions ({_EXECUTION_FIELDS}, batch_id) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)
_SAVE_EXECUTION = (
    f"UPDATE wtb_executions SET {', '.join(f'{column} = ?' for column in _EXECUTION_FIELDS.split(', ')[1:])} "
    "WHERE id = ? AND version = ?"
)
_FENCE = " AND lease_token = ? AND lease_owner IS NOT NULL"
_ADVANCE = "UPDATE wtb_executions SET version = ?, updated_at_us = ? WHERE id = ? AND version = ?"
_ADVANCE_FENCED = _ADVANCE + _FENCE


class SqlExecutionRepository:
    """Executions, guarded by version and lease token in the UPDATE itself."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def add(self, execution: Execution) -> None:
        if self._transaction.change(_ADD_EXECUTION, (*_execution_row(execution), _batch_of(execution))) == 0:
            raise AlreadyExists(f"there is already a run {execution.id!r}; give another id, or resume that run")

    def get(self, execution_id: ExecutionId) -> Execution:
        statement = f"SELECT {_EXECUTION_FIELDS} FROM wtb_executions WHERE id = ?"
        row = self._transaction.row(statement, (execution_id,))
        if row is None:
            raise ExecutionNotFound(execution_id)
        return _execution(row)

    def save(self, execution: Execution, *, token: int | None = None) -> None:
        row = (*_execution_row(execution)[1:], execution.id, execution.version - 1)
        fence = ("", ()) if token is None else (_FENCE, (token,))
        if self._transaction.change(_SAVE_EXECUTION + fence[0], row + fence[1]) == 0:
            self._explain(execution, token)

    def advance(self, execution: Execution, *, token: int | None = None, move: HeadMove | None = None) -> str | None:
        row: tuple[Any, ...] = (execution.version, to_us(execution.updated_at), execution.id, execution.version - 1)
        statement = _ADVANCE
        if token is not None:
            statement, row = _ADVANCE_FENCED, (*row, token)
        if self._transaction.database.dialect != "sqlite" and move is not None:
            return self._advance_and_move(execution, token, (statement, row), move)
        request: str | None = None
        # On SQLite RETURNING costs as much as another statement, and a request is rare.
        if not self._transaction.change(f"{statement} AND request IS NULL", row):
            found = self._transaction.row(f"{statement} RETURNING request", row)
            if found is None:
                self._explain(execution, token)
            request = found[0]
        if move is not None:
            SqlBranchRepository(self._transaction).move_head(move.branch_id, move.head_id, expected=move.expected)
        return request

    def _advance_and_move(
        self, execution: Execution, token: int | None, update: tuple[str, tuple[Any, ...]], move: HeadMove
    ) -> str | None:
        """Do both with one wait; whether the first was refused is known only when the second has been tried."""
        found: list[Any] = []
        statement, row = update
        self._transaction.ask(f"{statement} RETURNING request", row, lambda rows: found.__setitem__(slice(None), rows))
        branches = SqlBranchRepository(self._transaction)
        is_moved = branches.try_move(move)
        if not found or not is_moved:
            try:
                if not found:
                    self._explain(execution, token)
                branches.explain(move)
            finally:
                self._transaction.refuse()
        request: str | None = found[0][0]
        return request

    def _explain(self, execution: Execution, token: int | None) -> NoReturn:
        stored = self.get(execution.id)
        if token is not None:
            stored.check_lease(token)
        raise Conflict(
            f"run {execution.id!r} was changed by somebody else (version {stored.version}, expected "
            f"{execution.version - 1}); read it again"
        )

    def check_lease(self, execution_id: ExecutionId, token: int | None) -> None:
        if token is None:
            return
        statement = f"SELECT 1 FROM wtb_executions WHERE id = ?{_FENCE}{self._transaction.database.lock_suffix}"
        if self._transaction.row(statement, (execution_id, token)) is None:
            self.get(execution_id).check_lease(token)

    def renew(self, execution_id: ExecutionId, token: int, expires_at: datetime) -> None:
        statement = f"UPDATE wtb_executions SET lease_expires_at_us = ? WHERE id = ?{_FENCE}"
        if self._transaction.change(statement, (to_us(expires_at), execution_id, token)) == 0:
            self.get(execution_id).check_lease(token)

    def request(self, execution_id: ExecutionId, request: str | None) -> None:
        statement = "UPDATE wtb_executions SET request = ? WHERE id = ?"
        if self._transaction.change(statement, (request, execution_id)) == 0:
            raise ExecutionNotFound(execution_id)

    def list_executions(
        self,
        *,
        before: RunPosition | None = None,
        limit: int = 100,
        offset: int = 0,
        **filters: Unpack[RunFilters],
    ) -> tuple[Execution, ...]:
        where, values = run_conditions(filters, before)
        statement = (
            f"SELECT {_EXECUTION_FIELDS} FROM wtb_executions WHERE {where} "
            "ORDER BY created_at_us DESC, id DESC LIMIT ? OFFSET ?"
        )
        rows = self._transaction.rows(statement, (*values, limit, offset))
        return tuple(_execution(row) for row in rows)

    def delete(self, execution_id: ExecutionId) -> None:
        alive = "SELECT 1 FROM wtb_checkpoints WHERE execution_id = ? AND deleted = 0 LIMIT 1"
        if self._transaction.row(alive, (execution_id,)) is not None:
            raise Conflict(f"run {execution_id!r} still has checkpoints; delete them first")
        if self._transaction.change("DELETE FROM wtb_executions WHERE id = ?", (execution_id,)) == 0:
            raise ExecutionNotFound(execution_id)
        for table in ("wtb_branches", "wtb_tool_calls", "wtb_rollbacks", "wtb_evaluations", "wtb_pending_writes"):
            self._transaction.run(f"DELETE FROM {table} WHERE execution_id = ?", (execution_id,))
        # Node runs behind a checkpoint that a fork uses stay with it: the fork continues to count their visits.
        kept = "SELECT id FROM wtb_checkpoints WHERE execution_id = ?"
        statement = f"DELETE FROM wtb_node_runs WHERE execution_id = ? AND (last_id IS NULL OR last_id NOT IN ({kept}))"
        self._transaction.run(statement, (execution_id, execution_id))


def _execution_row(execution: Execution) -> tuple[Any, ...]:
    """Return the values of all fields."""
    owner, expires = _lease_columns(execution.lease)
    covered = (
        execution.id,
        execution.workflow_id,
        text_of(execution.workflow_name),
        execution.workflow_source,
        execution.status.value,
        execution.branch_id,
        owner,
        execution.lease_token,
        failure_text(execution.failure),
        json_text(execution.metadata, f"the metadata of run {execution.id!r}"),
        text_of(execution.created_by),
        to_us(execution.created_at),
        _pause_text(execution),
        json_text(execution.options, f"the options of run {execution.id!r}"),
        execution.degraded,
    )
    return (*covered, EXECUTION_SEAL.of(covered), execution.version, expires, to_us(execution.updated_at))


def _batch_of(execution: Execution) -> str | None:
    """Return the id of the batch that made a run; a copy of what its metadata say, to search by."""
    origin = JobOrigin.find(execution.metadata)
    return (
        None if origin is None or origin.is_fork or not isinstance(origin.batch_id, str) else text_of(origin.batch_id)
    )


def _pause_text(execution: Execution) -> str | None:
    return None if execution.pause is None else json_text(execution.pause.to_data(), f"the pause of {execution.id!r}")


def _lease_columns(lease: Lease | None) -> tuple[str | None, int | None]:
    return (None, None) if lease is None else (lease.owner, to_us(lease.expires_at))


@mapping("run")
def _execution(row: Any) -> Execution:
    EXECUTION_SEAL.check(row[:_COVERED], row[_COVERED])
    (owner, token), (version, expires, updated_us) = row[6:8], row[_COVERED + 1 :]
    return Execution(
        id=ExecutionId(row[0]),
        workflow_id=WorkflowId(row[1]),
        workflow_name=row[2],
        workflow_source=row[3],
        status=ExecutionStatus(row[4]),
        version=version,
        branch_id=BranchId(row[5]),
        lease=None if owner is None else Lease(owner=owner, token=token, expires_at=from_us(expires)),
        lease_token=token,
        failure=failure_of(row[8]),
        metadata=json.loads(row[9]),
        created_by=row[10],
        created_at=from_us(row[11]),
        updated_at=from_us(updated_us),
        pause=None if row[12] is None else Pause.from_data(json.loads(row[12])),
        options=json.loads(row[13]),
        degraded=row[14],
    )


def failure_text(failure: Failure | None) -> str | None:
    """Return a failure as JSON text."""
    return None if failure is None else json_text(asdict(failure), "a failure")


def failure_of(text: str | None) -> Failure | None:
    """Return the failure that the text describes."""
    return None if text is None else Failure(**json.loads(text))


BRANCH_SEAL = RowSeal(
    kind=FaultKind.BRANCH,
    table="wtb_branches",
    key=("id",),
    rest=("execution_id", "name", "forked_from_id", "created_at_us"),
)
HEAD_SEAL = RowSeal(
    kind=FaultKind.BRANCH, table="wtb_branches", key=("id",), rest=("head_id",), column="head_seal", part="head"
)
"""A separate seal, because every step moves the head and knows nothing else about the branch."""

_BRANCH_FIELDS = f"{BRANCH_SEAL.covered}, seal, head_id, head_seal"
_ADD_BRANCH = f"INSERT INTO wtb_branches ({_BRANCH_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_SELECT_BRANCH = f"SELECT {_BRANCH_FIELDS} FROM wtb_branches"
_FORK_FROM = "UPDATE wtb_branches SET forked_from_id = ?, seal = ? WHERE id = ?"
_DROP_WRITES = (
    "DELETE FROM wtb_pending_writes WHERE execution_id = (SELECT execution_id FROM wtb_branches WHERE id = ?) "
    "AND checkpoint_id = ?"
)


@cache
def _alive(lock: str) -> str:
    return f"EXISTS (SELECT 1 FROM wtb_checkpoints WHERE id = ? AND deleted = 0{lock})"


class SqlBranchRepository:
    """Branches; a head moves only from the expected checkpoint, and only to one that exists."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._alive = _alive(transaction.database.lock_suffix)

    def add(self, branch: Branch) -> None:
        if branch.head_id is not None:
            self._check_head(branch.head_id)
        facts, head = _branch_facts(branch), (branch.id, branch.head_id)
        row = (*facts, BRANCH_SEAL.of(facts), branch.head_id, HEAD_SEAL.of(head))
        if self._transaction.change(_ADD_BRANCH, row) == 0:
            raise AlreadyExists(
                f"run {branch.execution_id!r} already has a branch {branch.name!r}; choose another name"
            )

    def get(self, branch_id: BranchId) -> Branch:
        row = self._transaction.row(f"{_SELECT_BRANCH} WHERE id = ?", (branch_id,))
        if row is None:
            raise BranchNotFound(branch_id)
        return _branch(row)

    def move_head(self, branch_id: BranchId, head_id: CheckpointId, *, expected: CheckpointId | None) -> None:
        move = HeadMove(branch_id, head_id, expected)
        if not self.try_move(move):
            self.explain(move)

    def try_move(self, move: HeadMove) -> bool:
        """Move a head, and return whether that was allowed."""
        before, values = ("head_id IS NULL", ()) if move.expected is None else ("head_id = ?", (move.expected,))
        statement = f"UPDATE wtb_branches SET head_id = ?, head_seal = ? WHERE id = ? AND {before} AND {self._alive}"
        seal = HEAD_SEAL.of((move.branch_id, move.head_id))
        return self._transaction.change(statement, (move.head_id, seal, move.branch_id, *values, move.head_id)) > 0

    def explain(self, move: HeadMove) -> NoReturn:
        """Raise the error that says why a head could not be moved."""
        found = self.get(move.branch_id)
        self._check_head(move.head_id)
        raise Conflict(f"branch {found.name!r} has its head at {found.head_id!r}, not {move.expected!r}; read it again")

    def rewind(self, branch_id: BranchId, head_id: CheckpointId, *, expected: CheckpointId | None) -> None:
        self.move_head(branch_id, head_id, expected=expected)
        self._transaction.run(_DROP_WRITES, (branch_id, head_id))

    def fork_from(self, branch_id: BranchId, checkpoint_id: CheckpointId) -> None:
        branch = evolve(self.get(branch_id), forked_from_id=checkpoint_id)
        self._transaction.run(_FORK_FROM, (checkpoint_id, BRANCH_SEAL.of(_branch_facts(branch)), branch_id))

    def _check_head(self, head_id: CheckpointId) -> None:
        if self._transaction.rows(f"SELECT {self._alive}", (head_id,))[0][0] in (0, False):
            raise CheckpointNotFound(head_id)

    def delete(self, branch_id: BranchId) -> None:
        if self._transaction.change("DELETE FROM wtb_branches WHERE id = ?", (branch_id,)) == 0:
            raise BranchNotFound(branch_id)

    def list_branches(self, execution_id: ExecutionId) -> tuple[Branch, ...]:
        statement = f"{_SELECT_BRANCH} WHERE execution_id = ? ORDER BY created_at_us, id"
        return tuple(_branch(row) for row in self._transaction.rows(statement, (execution_id,)))

    def list_forks(self, checkpoint_ids: Collection[CheckpointId]) -> tuple[Branch, ...]:
        return self._among("forked_from_id", checkpoint_ids)

    def list_at(self, checkpoint_ids: Collection[CheckpointId]) -> tuple[Branch, ...]:
        return self._among("head_id", checkpoint_ids)

    def _among(self, column: str, checkpoint_ids: Collection[CheckpointId]) -> tuple[Branch, ...]:
        rows = self._transaction.run_in(f"{_SELECT_BRANCH} WHERE {column} IN (??)", set(checkpoint_ids))
        return tuple(sorted((_branch(row) for row in rows), key=lambda branch: (branch.created_at, branch.id)))


def _branch_facts(branch: Branch) -> tuple[Any, ...]:
    """Return the values that the seal covers."""
    return branch.id, branch.execution_id, text_of(branch.name), branch.forked_from_id, to_us(branch.created_at)


@mapping("branch")
def _branch(row: Any) -> Branch:
    BRANCH_SEAL.check(row[:5], row[5])
    HEAD_SEAL.check((row[0], row[6]), row[7])
    return Branch(
        id=BranchId(row[0]),
        execution_id=ExecutionId(row[1]),
        name=row[2],
        head_id=row[6],
        forked_from_id=row[3],
        created_at=from_us(row[4]),
    )
