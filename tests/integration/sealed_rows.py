"""Kept: one row of every kind that is sealed, to be damaged and read again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tests.integration.damaged_disk import Disk
from tests.run_writer import RunWriter
from wtb.application.runs.steps import Position
from wtb.domain.batch import Baseline, Batch, Job
from wtb.domain.batch_record import BatchRecord
from wtb.domain.figures import Figures, Usage
from wtb.domain.integrity import Fault
from wtb.domain.observation import Observation, ObservedSource, SourceKind
from wtb.domain.ports import Storage, UnitOfWork
from wtb.domain.rollback import CallKey, Rollback, RollbackDirection, RollbackStatus
from wtb.domain.run_scores import RunScore
from wtb.domain.state import SetValue, StateDelta
from wtb.domain.tools import CallKind, Effects, ToolCall
from wtb.domain.values import evolve
from wtb.infrastructure.files.memory_objects import MemoryObjectStore
from wtb.infrastructure.langgraph.pending_writes import PendingWrite, pending_writes_of
from wtb.infrastructure.sql import (
    baselines,
    batches,
    evaluations,
    node_runs,
    observations,
    pending_writes,
    repositories,
    rollbacks,
    tool_calls,
)
from wtb.infrastructure.sql.seals import RowSeal
from wtb.infrastructure.sql.tables import metadata
from wtb.infrastructure.sql.unit_of_work import SqlStorage
from wtb.infrastructure.upkeep.inspection import StoredInspection
from wtb.testing.fakes import FakeClock, SequentialIds

READERS: dict[RowSeal, Callable[[UnitOfWork, Kept], object]] = {
    repositories.EXECUTION_SEAL: lambda uow, kept: uow.executions.list_executions(),
    repositories.BRANCH_SEAL: lambda uow, kept: uow.branches.list_branches(kept.at.execution.id),
    repositories.HEAD_SEAL: lambda uow, kept: uow.branches.list_branches(kept.at.execution.id),
    node_runs.NODE_RUN_SEAL: lambda uow, kept: uow.node_runs.list_runs(kept.at.execution.id),
    tool_calls.FIGURES_SEAL: lambda uow, kept: uow.tool_calls.list_calls(kept.at.execution.id),
    rollbacks.ROLLBACK_SEAL: lambda uow, kept: uow.rollbacks.list_rollbacks(kept.at.execution.id),
    pending_writes.WRITE_SEAL: lambda uow, kept: pending_writes_of(uow).list_writes([kept.at.execution.id]),
    batches.BATCH_SEAL: lambda uow, kept: uow.batches.list_batches(),
    batches.JOB_SEAL: lambda uow, kept: uow.batches.list_jobs("batch"),
    baselines.BASELINE_SEAL: lambda uow, kept: uow.baselines.list_baselines(),
    baselines.RESULT_SEAL: lambda uow, kept: uow.baselines.list_results("main"),
    evaluations.EVALUATION_SEAL: lambda uow, kept: uow.evaluations.list_scores(kept.at.execution.id),
    observations.OBSERVATION_SEAL: lambda uow, kept: uow.observations.list_observations("trace"),
}
"""Every seal, and who reads its rows when a run goes on or back, or a gate decides."""


@dataclass
class Kept:
    """One row of every kind."""

    storage: SqlStorage
    disk: Disk
    at: Position

    @property
    def inspection(self) -> StoredInspection:
        return StoredInspection(self.storage, MemoryObjectStore(FakeClock()), Path("nowhere"), codec=self.storage.codec)

    def faults(self) -> list[Fault]:
        return list(self.inspection.inspect(lambda kind: None).faults)

    def row(self, seal: RowSeal) -> dict[str, Any]:
        rows = [row._asdict() for row in self.disk.rows(metadata.tables[seal.table])]
        return next(row for row in rows if row[seal.column] is not None)

    def set(self, seal: RowSeal, row: dict[str, Any], /, **changed: Any) -> None:
        table = metadata.tables[seal.table]
        same = [column == row[column.name] for column in table.primary_key]
        self.disk.change(sa.update(table).where(*same).values(**changed))

    def read(self, seal: RowSeal) -> object:
        with self.storage.unit_of_work(readonly=True) as uow:
            return READERS[seal](uow, self)


def kept_rows(storage: Storage) -> Kept:
    """Write one row of every kind."""
    assert isinstance(storage, SqlStorage)
    clock, ids = FakeClock(), SequentialIds(1)
    recorder = RunWriter(storage, clock, ids)
    at = recorder.start({"name": "w", "version": "1", "nodes": []}, {"n": 0}, created_by="ann")
    run = evolve(recorder.node_run(at, "node", 1), figures=Figures(ms=1.5), pending={"returned": {"n": 1}})
    at = recorder.complete(at, evolve(run, pending=None), StateDelta.of(n=SetValue(1)))
    waits = evolve(recorder.node_run(at, "node", 2), pending={"returned": {"n": 2}, "file_commit": None})
    now = clock.now()
    call = ToolCall(
        execution_id=at.execution.id,
        node_run_id=run.id,
        identity="send:1",
        sequence=1,
        kind=CallKind.TOOL,
        tool="send",
        effects=Effects.EXTERNAL,
        arguments={"to": "ann"},
        started_at=now,
    ).succeeded({"price": 1234}, now)
    rollback = Rollback(
        id="rollback",
        number=0,
        execution_id=at.execution.id,
        branch_id=at.branch.id,
        direction=RollbackDirection.ROLLBACK,
        head_id=at.head.id,
        target_id=at.head.id,
        safety_id=at.head.id,
        calls=(CallKey(node_run_id=run.id, identity="send:1"),),
        created_at=now,
    ).ended(RollbackStatus.COMPLETED, now)
    record = BatchRecord(combinations=("a",), baseline="a", cases=("c1",), repeats=1, metrics=())
    batch = Batch(id="batch", name="qa", workflow_name="w", record=record, created_at=now, updated_at=now)
    job = Job(batch_id="batch", number=0, combination="a", case_id="c1", repeat=0, fingerprint="f")
    baseline = Baseline(
        name="main",
        batch_id="saved",
        workflow_name="w",
        combination="a",
        record=record,
        results=1,
        created_at=now,
    )
    score = RunScore(
        id="score",
        execution_id=at.execution.id,
        checkpoint_id=at.head.id,
        metric="f1",
        fingerprint="f",
        score=0.5,
        created_by="ann",
        created_at=now,
    )
    seen = Observation("node", ObservedSource(SourceKind.FILE, "prompt.txt"), "digest")
    with storage.unit_of_work() as uow:
        uow.node_runs.save(waits)
        uow.tool_calls.save(call.using(Usage(input_tokens=3, output_tokens=1, cost_usd=0.1, models=("m",))))
        uow.rollbacks.save(rollback)
        uow.batches.save(batch)
        uow.batches.save_jobs([job])
        uow.baselines.save(baseline, [replace(job, batch_id="saved")])
        uow.evaluations.add([score])
        uow.observations.add("trace", {0: seen})
        pending_writes_of(uow).add([PendingWrite(at.execution.id, at.head.id, "task", 0, "", "answer", "yes", now)])
        uow.commit()
    kept = Kept(storage, Disk(storage), at)
    assert kept.faults() == []
    return kept
