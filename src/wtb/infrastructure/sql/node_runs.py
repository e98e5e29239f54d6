"""SqlNodeRunRepository: node runs; the boundaries of visits are a view of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from wtb.domain.checkpoint import Checkpoint, NodeBoundary, NodeRun, NodeStatus
from wtb.domain.errors import NodeRunNotFound
from wtb.domain.figures import Figures
from wtb.domain.ids import BranchId, ExecutionId, NodeRunId
from wtb.domain.integrity import FaultKind
from wtb.domain.ports import Codec
from wtb.domain.values import evolve
from wtb.infrastructure.json_text import json_text
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.mapping import mapping
from wtb.infrastructure.sql.repositories import failure_of, failure_text
from wtb.infrastructure.sql.seals import RowSeal, sealed, unsealed
from wtb.infrastructure.timestamps import from_us, to_us

_STATUSES = {status.value: status for status in NodeStatus}

NODE_RUN_SEAL = RowSeal(
    kind=FaultKind.NODE_RUN,
    table="wtb_node_runs",
    key=("id",),
    rest=(
        "execution_id",
        "branch_id",
        "node",
        "visit",
        "attempt",
        "status",
        "input_id",
        "first_id",
        "last_id",
        "checkpoint_count",
        "tool_count",
        "failure",
        "started_at_us",
        "ended_at_us",
        "pending",
        "figures",
    ),
)
"""Covers only the beginning of `pending`, which is its own seal, so that a step need not hash a large result twice."""
_PENDING = 15
_PENDING_BYTES = 20

NODE_RUN_FIELDS = f"{NODE_RUN_SEAL.covered}, seal"
_SAVE_RUN = (
    f"INSERT INTO wtb_node_runs ({NODE_RUN_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (execution_id, id) DO UPDATE SET branch_id = excluded.branch_id, node = excluded.node, "
    "visit = excluded.visit, attempt = excluded.attempt, status = excluded.status, input_id = excluded.input_id, "
    "first_id = excluded.first_id, last_id = excluded.last_id, checkpoint_count = excluded.checkpoint_count, "
    "tool_count = excluded.tool_count, failure = excluded.failure, started_at_us = excluded.started_at_us, "
    "ended_at_us = excluded.ended_at_us, pending = excluded.pending, figures = excluded.figures, "
    "seal = excluded.seal"
)
_UNFINISHED = (
    f"SELECT {NODE_RUN_FIELDS} FROM wtb_node_runs WHERE execution_id = ? "
    "AND (status NOT IN ('completed', 'failed', 'skipped') OR pending IS NOT NULL) ORDER BY id"
)


class SqlNodeRunRepository:
    """Node runs; the view `wtb_node_boundaries` shows their boundaries to readers of SQL."""

    def __init__(self, transaction: Transaction, codec: Codec) -> None:
        self._transaction = transaction
        self._codec = codec

    def save(self, run: NodeRun) -> None:
        started_us = to_us(run.started_at)
        ended_us = None if run.ended_at is None else to_us(run.ended_at)
        identity = (run.id, run.execution_id, run.branch_id, run.node, run.visit)
        counts = (run.first_id, run.last_id, run.checkpoint_count, run.tool_count)
        failure = failure_text(run.failure)
        pending = None
        if run.pending is not None:
            kept, _ = self._codec.encode(dict(run.pending), f"returned.{run.node}")
            pending = sealed(self._codec, (run.execution_id, run.id), kept)
        result = (failure, started_us, ended_us, pending, _figures_text(run))
        row = (*identity, run.attempt, run.status.value, run.input_id, *counts, *result)
        self._transaction.run(_SAVE_RUN, (*row, NODE_RUN_SEAL.of(_facts(row))))

    def get(self, execution_id: ExecutionId, node_run_id: NodeRunId) -> NodeRun:
        statement = f"SELECT {NODE_RUN_FIELDS} FROM wtb_node_runs WHERE execution_id = ? AND id = ?"
        row = self._transaction.row(statement, (execution_id, node_run_id))
        if row is None:
            raise NodeRunNotFound(node_run_id, f"run {execution_id}")
        return self._node_run(row)

    def list_runs(self, execution_id: ExecutionId) -> tuple[NodeRun, ...]:
        statement = f"SELECT {NODE_RUN_FIELDS} FROM wtb_node_runs WHERE execution_id = ? ORDER BY id"
        return tuple(self._node_run(row) for row in self._transaction.rows(statement, (execution_id,)))

    def list_leading_to(self, execution_id: ExecutionId, checkpoints: Sequence[Checkpoint]) -> tuple[NodeRun, ...]:
        select = f"SELECT {NODE_RUN_FIELDS} FROM wtb_node_runs WHERE execution_id = ? AND "
        own = {checkpoint.node_run_id for checkpoint in checkpoints} - {None}
        barriers = [checkpoint.id for checkpoint in checkpoints if checkpoint.node_run_id is None]
        rows = {row[0]: row for row in self._transaction.rows(f"{select} last_id IS NULL", (execution_id,))}
        rows |= {row[0]: row for row in self._transaction.run_in(f"{select} id IN (??)", own, execution_id)}
        rows |= {row[0]: row for row in self._transaction.run_in(f"{select} last_id IN (??)", barriers, execution_id)}
        return tuple(self._node_run(rows[id]) for id in sorted(rows))

    def list_unfinished(self, execution_id: ExecutionId) -> tuple[NodeRun, ...]:
        return tuple(self._node_run(row) for row in self._transaction.rows(_UNFINISHED, (execution_id,)))

    def _node_run(self, row: Any) -> NodeRun:
        check_node_run(row)
        run, pending = _node_run(row), pending_in(self._codec, row[1], row[0], row[_PENDING])
        return run if pending is None else evolve(run, pending=self._codec.decode(pending))

    def list_boundaries(self, execution_id: ExecutionId) -> tuple[NodeBoundary, ...]:
        return tuple(run.boundary() for run in self.list_runs(execution_id))


def _facts(row: Any) -> Any:
    """Return the values that the seal covers."""
    if row[_PENDING] is None:
        return row
    return (*row[:_PENDING], bytes(row[_PENDING][:_PENDING_BYTES]), *row[_PENDING + 1 :])


def check_node_run(row: Any) -> None:
    """Raise DamagedData if a row with all fields does not match its seal."""
    NODE_RUN_SEAL.check(_facts(row[:-1]), row[-1])


def pending_in(codec: Codec, execution_id: str, id: str, stored: bytes | None) -> bytes | None:
    """Return the result in a row that waits for its siblings, or raise DamagedData if it does not match its seal."""
    return None if stored is None else unsealed(codec, (execution_id, id), stored, f"the result of node run {id!r}")


_TEMPLATE = NodeRun(
    id=NodeRunId(""),
    execution_id=ExecutionId(""),
    branch_id=BranchId(""),
    node="",
    visit=0,
    input_id=None,
    started_at=from_us(0),
)
"""The base for copies with a row's values: a history has thousands, and __init__ takes as long as reading the row."""


@mapping("node run")
def _node_run(row: Any) -> NodeRun:
    return evolve(
        _TEMPLATE,
        id=NodeRunId(row[0]),
        execution_id=ExecutionId(row[1]),
        branch_id=BranchId(row[2]),
        node=row[3],
        visit=row[4],
        attempt=row[5],
        status=_STATUSES[row[6]],
        input_id=row[7],
        first_id=row[8],
        last_id=row[9],
        checkpoint_count=row[10],
        tool_count=row[11],
        failure=failure_of(row[12]),
        started_at=from_us(row[13]),
        ended_at=None if row[14] is None else from_us(row[14]),
        figures=None if row[16] is None else Figures.from_data(json.loads(row[16])),
    )


def _figures_text(run: NodeRun) -> str | None:
    if run.figures is None:
        return None
    data = run.figures.to_data()
    if len(data) == 1:  # most nodes only take time, and every step pays for this
        return f'{{"ms":{data["ms"]}}}'
    return json_text(data, f"the figures of {run.node!r}")
