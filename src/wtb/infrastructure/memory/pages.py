"""MemoryPages: pages, counts and sums over dictionaries."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Unpack

from wtb.domain.checkpoint import Checkpoint, NodeRun, NodeStatus
from wtb.domain.execution import Execution, ExecutionStatus
from wtb.domain.figures import NOTHING, Usage
from wtb.domain.ids import CheckpointId, ExecutionId, WorkflowId
from wtb.domain.ports import CheckpointCounts, Codec, WorkflowUse
from wtb.domain.run_filters import RunFilters
from wtb.infrastructure.checkpoints.rows import CheckpointRow, checkpoint_of
from wtb.infrastructure.memory.checkpoint_rows import MemoryCheckpointRows
from wtb.infrastructure.memory.fitting_runs import fitting_runs
from wtb.infrastructure.memory.tables import MemoryTransaction


class MemoryPages:
    """Reads inside one transaction."""

    def __init__(self, transaction: MemoryTransaction, rows: MemoryCheckpointRows, codec: Codec) -> None:
        self._transaction = transaction
        self._rows = rows
        self._codec = codec

    def list_line(self, head_id: CheckpointId, *, upto: int | None = None, limit: int) -> tuple[Checkpoint, ...]:
        line = [row for row in self._rows.list_ancestors(head_id) if upto is None or row.step <= upto]
        return self._checkpoints(line[:limit][::-1])

    def list_checkpoints(
        self, execution_id: ExecutionId, *, before: tuple[int, CheckpointId] | None = None, limit: int
    ) -> tuple[Checkpoint, ...]:
        rows = self._rows.list_rows(execution_id)
        return self._checkpoints([row for row in rows if before is None or (row.step, row.id) < before][-limit:])

    def _checkpoints(self, rows: Iterable[CheckpointRow]) -> tuple[Checkpoint, ...]:
        return tuple(checkpoint_of(self._codec, row) for row in rows)

    def count_checkpoints(self, execution_id: ExecutionId) -> CheckpointCounts:
        living = [row for row in self._rows.list_rows(execution_id) if not row.deleted]
        return CheckpointCounts(len(living), sum(row.restore_point for row in living))

    def sum_line(self, head_id: CheckpointId) -> Usage | None:
        line = self._rows.list_ancestors(head_id)
        ends = {row.id for row in line}
        runs = [run for each in {row.execution_id for row in line} for run in self._runs(each) if run.last_id in ends]
        runs = [run for run in runs if run.status is NodeStatus.COMPLETED]
        if any(run.figures is None for run in runs):
            return None
        return sum((run.figures.usage for run in runs if run.figures is not None), NOTHING)

    def sum_spent(self, execution_id: ExecutionId) -> Usage | None:
        runs = self._runs(execution_id)
        if any(run.figures is None and run.status is NodeStatus.COMPLETED and run.last_id is not None for run in runs):
            return None
        return sum((run.figures.spent for run in runs if run.figures is not None), NOTHING)

    def _runs(self, execution_id: str) -> list[NodeRun]:
        return sorted(self._transaction.group("node_runs", 0, execution_id), key=lambda run: run.id)

    def count_runs(self, **filters: Unpack[RunFilters]) -> dict[ExecutionStatus, int]:
        return dict(Counter(execution.status for execution in fitting_runs(self._transaction, filters)))

    def list_workflows(self) -> tuple[WorkflowUse, ...]:
        runs: dict[tuple[str, WorkflowId], list[Execution]] = defaultdict(list)
        for execution in self._transaction.all("executions"):
            runs[execution.workflow_name, execution.workflow_id].append(execution)
        found = [self._workflow_use(*key, each) for key, each in runs.items()]
        return tuple(sorted(found, key=lambda use: (use.name, use.last_at, use.workflow_id)))

    def _workflow_use(self, name: str, workflow_id: WorkflowId, runs: list[Execution]) -> WorkflowUse:
        text = self._transaction.find("workflows", workflow_id)
        version = None if text is None else json.loads(text)["version"]
        times = [execution.created_at for execution in runs]
        return WorkflowUse(name, version, workflow_id, len(runs), min(times), max(times))
