"""Seals: a row that decides something and was changed on disk is named by doctor and refused by whoever reads it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from tests.integration.damaged_disk import flipped
from tests.integration.sealed_rows import READERS, Kept, kept_rows
from tests.run_writer import RunWriter
from wtb.application.runs.steps import Ending, Position
from wtb.domain.batch import CacheEntry, CacheStatus
from wtb.domain.errors import DamagedData
from wtb.domain.execution import ExecutionStatus
from wtb.domain.integrity import FaultKind
from wtb.domain.ports import Storage
from wtb.domain.state import SetValue, StateDelta
from wtb.infrastructure.files.memory_objects import MemoryObjectStore
from wtb.infrastructure.langgraph.pending_writes import PendingWrite
from wtb.infrastructure.sql import evaluations, node_runs, observations, pending_writes, repositories, tool_calls
from wtb.infrastructure.sql.seals import RowSeal
from wtb.infrastructure.sql.tables import metadata
from wtb.infrastructure.upkeep.garbage import SweptGarbage
from wtb.testing.fakes import FakeClock, SequentialIds

pytestmark = pytest.mark.parametrize("storage", ["sqlite", "postgres"], indirect=True)

FOUND_BY = {"wtb_branches": "execution_id", "wtb_node_runs": "execution_id", "wtb_rollbacks": "execution_id"}
FOUND_BY |= {"wtb_evaluations": "execution_id"}
FOUND_BY |= {"wtb_batch_jobs": "batch_id", "wtb_observations": "trace_id", "wtb_tool_calls": "execution_id"}
"""The column by which a reader looks for rows: one in which it is damaged is not found there any more."""

COLUMNS = [(seal, column) for seal in READERS for column in (*seal.key, *seal.rest)]

WRITTEN_ONCE = {evaluations.EVALUATION_SEAL, observations.OBSERVATION_SEAL, pending_writes.WRITE_SEAL}
"""Seals of rows that are never written again."""

UNSEALED = {
    "wtb_executions": {"version", "updated_at_us", "lease_expires_at_us", "request", "batch_id"},
    "wtb_batches": {"spent_us", "driver", "driver_seen_at_us"},
    "wtb_pending_writes": {"execution_id"},
    "wtb_tool_calls": {*tool_calls.CALL_FIELDS.split(", ")} - {"execution_id", "node_run_id", "identity"},
}
"""Columns that are changed without the rest of their row, that another seal covers, or that repeat a part of another
column for an index, as `batch_id` does of the metadata."""


@pytest.fixture
def kept(storage: Storage) -> Kept:
    return kept_rows(storage)


def changed(value: Any, column: sa.Column[Any], *, any_bytes: bool) -> Any:
    """Another value for a column: one bit of what is there, or something where nothing is."""
    if value in (None, "", b""):
        return {"TEXT": "x", "BLOB": b"x"}.get(str(column.type), 1)
    return flipped(value, random.Random(column.name), any_bytes=any_bytes)


@pytest.mark.parametrize(
    ("seal", "column"), COLUMNS, ids=[f"{seal.column}.{seal.table}.{name}" for seal, name in COLUMNS]
)
def test_a_changed_column_is_named_by_doctor_and_refused_by_readers(kept: Kept, seal: RowSeal, column: str) -> None:
    row = kept.row(seal)
    other = changed(row[column], metadata.tables[seal.table].c[column], any_bytes=kept.disk.keeps_any_bytes)
    kept.set(seal, row, **{column: other})
    assert seal.kind in {fault.kind for fault in kept.faults()}
    if column == FOUND_BY.get(seal.table):
        found: Any = kept.read(seal)
        assert not found or row["id"] not in {each.id for each in found}
    else:
        with pytest.raises(DamagedData, match="damaged"):
            kept.read(seal)


@pytest.mark.parametrize("seal", READERS, ids=lambda seal: f"{seal.table}.{seal.column}")
def test_every_bit_of_a_seal_counts(kept: Kept, seal: RowSeal) -> None:
    row = kept.row(seal)
    stored = row[seal.column]
    assert len(stored) == 16
    for bit in (0, 63, 127):
        value = bytearray(stored)
        value[bit // 8] ^= 1 << bit % 8
        kept.set(seal, row, **{seal.column: bytes(value)})
        with pytest.raises(DamagedData, match="does not match its checksum; `wtb doctor` shows more"):
            kept.read(seal)


@pytest.mark.parametrize("seal", READERS, ids=lambda seal: f"{seal.table}.{seal.column}")
def test_a_row_from_before_there_were_seals_is_read_as_it_is(kept: Kept, seal: RowSeal) -> None:
    before = kept.read(seal)
    kept.set(seal, kept.row(seal), **{seal.column: None})
    assert kept.read(seal) == before
    assert kept.faults() == []


def test_a_seal_covers_every_column_that_is_not_changed_by_itself(kept: Kept) -> None:
    covered: dict[str, set[str]] = {}
    for seal in READERS:
        covered.setdefault(seal.table, set()).update({*seal.key, *seal.rest, seal.column})
    for name, columns in covered.items():
        assert columns | UNSEALED.get(name, set()) == set(metadata.tables[name].c.keys()), name
        assert not columns & UNSEALED.get(name, set()), name


def test_what_is_changed_by_itself_leaves_the_seal_right(kept: Kept) -> None:
    now, id = kept.storage.clock.now(), kept.at.execution.id
    with kept.storage.unit_of_work() as uow:
        execution = uow.executions.get(id).stepped(now).owned("me", now, now - now)
        uow.executions.save(execution)
        uow.executions.renew(id, execution.lease_token, now)
        uow.executions.request(id, "pause")
        uow.executions.advance(execution.stepped(now), token=execution.lease_token)
        uow.branches.move_head(kept.at.branch.id, kept.at.head.id, expected=kept.at.head.id)
        uow.branches.fork_from(kept.at.branch.id, kept.at.head.id)
        uow.batches.took("batch", 9.5)
        uow.commit()
    assert kept.faults() == []
    for seal in READERS:
        kept.read(seal)


def test_a_row_that_is_written_again_is_sealed(kept: Kept) -> None:
    for seal in READERS:
        kept.set(seal, kept.row(seal), **{seal.column: None})
    with kept.storage.unit_of_work() as uow:
        for run in uow.node_runs.list_runs(kept.at.execution.id):
            uow.node_runs.save(run)
        for call in uow.tool_calls.list_calls(kept.at.execution.id):
            uow.tool_calls.save(call)
        for rollback in uow.rollbacks.list_rollbacks(kept.at.execution.id):
            uow.rollbacks.save(rollback)
        uow.batches.save(uow.batches.get("batch"))
        uow.batches.save_jobs(uow.batches.list_jobs("batch"))
        uow.baselines.save(uow.baselines.get("main"), uow.baselines.list_results("main"))
        uow.executions.save(uow.executions.get(kept.at.execution.id).stepped(kept.storage.clock.now()))
        uow.branches.move_head(kept.at.branch.id, kept.at.head.id, expected=kept.at.head.id)
        uow.branches.fork_from(kept.at.branch.id, kept.at.head.id)
        uow.commit()
    for seal in READERS.keys() - WRITTEN_ONCE:
        assert kept.row(seal)[seal.column] is not None
    assert kept.faults() == []


def test_a_pending_write_of_a_run_that_does_not_exist_is_named(kept: Kept) -> None:
    seal = pending_writes.WRITE_SEAL
    kept.set(seal, kept.row(seal), execution_id="nobody")
    assert [(fault.kind, fault.runs) for fault in kept.faults()] == [(FaultKind.PENDING_WRITE, ("nobody",))]


def test_a_score_of_a_run_that_does_not_exist_is_named(kept: Kept) -> None:
    seal = evaluations.EVALUATION_SEAL
    row = kept.row(seal)
    lost = {**row, "execution_id": "nobody"}
    facts = [lost[column] for column in (*seal.key, *seal.rest)]
    kept.set(seal, row, execution_id="nobody", seal=seal.of(facts))
    assert [(fault.kind, fault.runs) for fault in kept.faults()] == [(FaultKind.EVALUATION, ("nobody",))]


@pytest.mark.parametrize("seal", [node_runs.NODE_RUN_SEAL, pending_writes.WRITE_SEAL], ids=lambda seal: seal.table)
def test_nothing_is_collected_while_a_row_is_damaged_that_may_refer_to_it(kept: Kept, seal: RowSeal) -> None:
    if seal is pending_writes.WRITE_SEAL:
        write = PendingWrite(
            kept.at.execution.id, kept.at.head.id, "large", 0, "", "answer", "yes " * 9_000, kept.storage.clock.now()
        )
        with kept.storage.unit_of_work() as uow:
            uow.pending_writes.add([write])
            uow.commit()
        row = next(row._asdict() for row in kept.disk.rows(metadata.tables[seal.table]) if row.task_id == "large")
        kept.set(seal, row, address=b"x" * 32)
    else:
        kept.set(seal, kept.row(seal), input_id=None)
    clock = FakeClock()
    garbage = SweptGarbage(kept.storage, MemoryObjectStore(clock), codec=kept.storage.codec, clock=clock)
    with pytest.raises(DamagedData, match="does not match its checksum"):
        garbage.sweep(clock.now() - clock.now())


def test_a_shared_result_whose_status_was_changed_is_made_again(kept: Kept) -> None:
    now = kept.storage.clock.now()
    entry = CacheEntry(key=b"key", status=CacheStatus.RUNNING, owner="me", attempt="1", expires_at=now)
    with kept.storage.unit_of_work() as uow:
        uow.cache.claim(entry)
        uow.cache.settle(replace(entry, status=CacheStatus.FAILED, value={"type": "E", "message": "m"}))
        uow.commit()
    cache = metadata.tables["wtb_node_cache"]
    kept.disk.set(cache, "key", b"key", status="done")
    with kept.storage.unit_of_work() as uow:
        found = uow.cache.find(b"key")
        assert found is not None
        assert found.value is None
    kept.disk.set(cache, "key", b"key", status="dond")
    with kept.storage.unit_of_work() as uow:
        assert uow.cache.find(b"key") is None
        assert uow.cache.claim(entry)
        assert not uow.cache.claim(replace(entry, owner="other"))
        uow.commit()
    assert kept.faults() == []


def steps(kept: Kept, count: int) -> tuple[RunWriter, list[Position]]:
    """Go on with the run for a few steps."""
    recorder, line = RunWriter(kept.storage, FakeClock(), SequentialIds(7)), [kept.at]
    for number in range(count):
        run = recorder.node_run(line[-1], "more", number + 1)
        line.append(recorder.complete(line[-1], run, StateDelta.of(n=SetValue(number))))
    return recorder, line


def test_a_head_that_went_back_without_a_rollback_is_named(kept: Kept) -> None:
    _, line = steps(kept, 3)
    head = (line[0].branch.id, line[1].head.id)
    assert kept.faults() == []
    seal = repositories.HEAD_SEAL.of(head)  # as it was before a write that never reached the disk
    kept.disk.set(metadata.tables["wtb_branches"], "id", head[0], head_id=head[1], head_seal=seal)
    (fault,) = kept.faults()
    assert (fault.kind, fault.what, fault.runs) == (FaultKind.BRANCH, head[0], (kept.at.execution.id,))
    assert "there was no rollback" in fault.problem


def test_a_head_at_a_checkpoint_of_another_run_is_named_unless_it_was_forked_there(kept: Kept) -> None:
    recorder, line = steps(kept, 3)
    fork = recorder.creator.fork(line[0].execution, line[2].head, name="fork")
    assert kept.faults() == []
    branches = metadata.tables["wtb_branches"]
    kept.disk.set(branches, "id", fork.branch.id, head_id=line[1].head.id, head_seal=None)
    assert kept.faults() == []  # where a rollback of the fork may go
    kept.disk.set(branches, "id", fork.branch.id, head_id=line[3].head.id)
    (fault,) = kept.faults()
    assert (fault.kind, fault.what, fault.runs) == (FaultKind.BRANCH, fork.branch.id, (fork.execution.id,))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_events_that_are_cut_off_at_the_end_of_a_run_are_named(kept: Kept, count: int) -> None:
    recorder, line = steps(kept, 3)
    recorder.end(line[-1], Ending(status=ExecutionStatus.COMPLETED))
    assert kept.faults() == []
    events = metadata.tables["wtb_events"]
    mine = [row for row in kept.disk.rows(events) if row.stream == kept.at.execution.id]
    for row in mine[-count:]:
        kept.disk.remove(events, "position", row.position)
    (fault,) = kept.faults()
    assert (fault.kind, fault.runs) == (FaultKind.EVENT, (kept.at.execution.id,))
    assert fault.what == f"{kept.at.execution.id}/{mine[-count].sequence}"
    assert "the last events" in fault.problem


def test_a_gap_in_the_middle_is_not_taken_for_a_cut_end(kept: Kept) -> None:
    steps(kept, 3)
    events = metadata.tables["wtb_events"]
    mine = [row for row in kept.disk.rows(events) if row.stream == kept.at.execution.id]
    kept.disk.remove(events, "position", mine[-2].position)
    (fault,) = kept.faults()
    assert fault.problem == f"event {mine[-2].sequence} of {kept.at.execution.id!r} is missing"


def test_a_run_that_lost_all_its_events_is_named(kept: Kept) -> None:
    with kept.disk._storage.database.engine.begin() as connection:
        connection.execute(sa.delete(metadata.tables["wtb_events"]))
    assert [fault.what for fault in kept.faults()] == [f"{kept.at.execution.id}/1"]


def test_a_damaged_run_says_so_where_it_is_loaded(kept: Kept) -> None:
    kept.disk.set(metadata.tables["wtb_executions"], "id", kept.at.execution.id, options='{"seed": 1}')
    recorder = RunWriter(kept.storage, FakeClock(), SequentialIds(7))
    with pytest.raises(DamagedData, match=f"run '{kept.at.execution.id}' is damaged: its row does not match"):
        recorder.load(kept.at.execution.id)
