"""`wtb doctor`: every flipped byte and everything that is missing is named with the runs that it concerns."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.integration.damaged_disk import HASHED, Disk, flipped
from tests.upkeep import GRACE, Copy, World
from tests.workspaces import described
from wtb.application.runs.steps import Ending, Position
from wtb.domain.batch import CacheEntry, CacheStatus
from wtb.domain.errors import DamagedData, WTBError
from wtb.domain.events import EventType
from wtb.domain.execution import ExecutionStatus
from wtb.domain.files import FileCommitId
from wtb.domain.ids import ExecutionId
from wtb.domain.integrity import Fault, FaultKind
from wtb.domain.ports import Storage
from wtb.domain.state import Append, SetValue, StateDelta
from wtb.domain.tools import CallKind, Effects, ToolCall
from wtb.domain.values import evolve
from wtb.infrastructure.files.index import StatIndex, save_index
from wtb.infrastructure.files.local_objects import LocalObjectStore
from wtb.infrastructure.files.staging import HALF_DONE
from wtb.infrastructure.sql import tables

pytestmark = pytest.mark.parametrize("storage", ["sqlite", "postgres"], indirect=True)

STEPS = 30


@pytest.fixture
def world(storage: Storage, tmp_path: Path) -> World:
    """Two runs with large values, keyframes, small and large files; a third one forked from the first."""
    world = World(storage, tmp_path, objects=LocalObjectStore(tmp_path / "objects", durable=False))
    for letter in "ab":
        told(world, letter)
    fork = world.fork_run(world.copies[lineage(world, 0)[10]].checkpoint)
    world.step(fork, StateDelta.of(f=SetValue(1)))
    assert world.faults() == []
    return world


def told(world: World, letter: str) -> Position:
    at = world.start(items=[letter], text=f"{letter} " * 1_000)
    for step in range(STEPS):
        files = {"large": f"{letter}{step} ".encode() * 3_000, "small": f"{letter}{step}".encode()}
        delta = StateDelta.of(items=Append((f"{letter}{step} " * 400,)))
        returned = {"raw": f"{letter}{step} raw " * 100}
        at = world.step(at, delta, files if step % 10 == 5 else None, returned=returned)
    return at


@pytest.fixture
def disk(storage: Storage) -> Disk:
    return Disk(storage)


@pytest.fixture
def runs(world: World) -> tuple[ExecutionId, ExecutionId, ExecutionId]:
    """The first run, the second, and the one forked from the first."""
    first, second, fork = (at.execution.id for at in world.ends)
    return first, second, fork


def lineage(world: World, number: int) -> list[Any]:
    at = world.ends[number]
    with world.storage.unit_of_work(readonly=True) as uow:
        return [each.id for each in uow.checkpoints.load_history(at.execution.id).lineage()]


def found(world: World, kind: FaultKind, what: str) -> Fault:
    """Return the fault that is expected, and check that nothing wrong is returned as right."""
    faults = world.faults()
    (fault,) = [fault for fault in faults if (fault.kind, fault.what) == (kind, what)]
    assert all(fault.problem for fault in faults)
    check_nothing_wrong(world)
    return fault


def check_nothing_wrong(world: World) -> None:
    """Whatever can still be read is what was written, states and files."""
    commits: dict[str, Copy] = {}
    for copy in world.copies.values():
        with suppress(WTBError), world.storage.unit_of_work(readonly=True) as uow:
            snapshot = uow.checkpoints.load(copy.checkpoint.id)
            assert dict(snapshot.state) == dict(copy.state)
            assert snapshot.checkpoint == copy.checkpoint
        if copy.checkpoint.file_commit is not None:
            commits[copy.checkpoint.file_commit] = copy
    for commit, copy in commits.items():
        with suppress(WTBError):
            place = world.workspaces.materialise(world.folder / "restored", FileCommitId(commit))
            assert described(place) == copy.files


def test_a_flipped_bit_in_a_checkpoint_row_is_named(world: World, disk: Disk, runs: tuple[ExecutionId, ...]) -> None:
    chance = random.Random(1)
    for number, column in enumerate(column for column in HASHED if column != "id"):
        id = lineage(world, 0)[(7, 10, STEPS)[number % 3]]
        (row,) = disk.rows(tables.checkpoints, id=id)
        value = getattr(row, column)
        if value in (None, "", b""):
            continue
        disk.set(tables.checkpoints, "id", id, **{column: flipped(value, chance, any_bytes=disk.keeps_any_bytes)})
        fault = found(world, FaultKind.CHECKPOINT, id)
        assert fault.remedy is None
        if column != "execution_id":
            assert runs[0] in fault.runs
            assert runs[1] not in fault.runs
        disk.set(tables.checkpoints, "id", id, **{column: value})
    assert world.faults() == []


def test_a_checkpoint_whose_id_was_changed_is_named(world: World, disk: Disk, runs: tuple[ExecutionId, ...]) -> None:
    id = lineage(world, 0)[5]
    disk.set(tables.checkpoints, "id", id, id="another")
    assert runs[0] in found(world, FaultKind.CHECKPOINT, id).runs
    assert "missing" in found(world, FaultKind.CHECKPOINT, id).problem
    assert found(world, FaultKind.CHECKPOINT, "another").runs


@pytest.mark.parametrize("how", ["flipped", "emptied"])
def test_a_damaged_delta_is_named(world: World, disk: Disk, runs: tuple[ExecutionId, ...], how: str) -> None:
    id = lineage(world, 0)[7]
    (row,) = disk.rows(tables.checkpoints, id=id)
    changed = flipped(row.payload, random.Random(1), any_bytes=True) if how == "flipped" else b""
    disk.set(tables.checkpoints, "id", id, payload=changed)
    fault = found(world, FaultKind.DELTA, id)
    assert set(fault.runs) == {runs[0], runs[2]}
    assert not world.integrity.repair().is_healthy


def test_deleted_checkpoints_that_are_not_and_others_that_are_not_are_named(world: World, disk: Disk) -> None:
    id = lineage(world, 0)[7]
    disk.set(tables.checkpoints, "id", id, deleted=1)
    found(world, FaultKind.CHECKPOINT, id)
    disk.set(tables.checkpoints, "id", id, deleted=0)
    with world.storage.unit_of_work() as uow:
        uow.checkpoints.delete([id])
        uow.commit()
    assert world.faults() == []
    disk.set(tables.checkpoints, "id", id, deleted=0)
    found(world, FaultKind.DELTA, id)


@pytest.mark.parametrize("step", [0, 7, STEPS])
def test_a_missing_checkpoint_is_named(world: World, disk: Disk, runs: tuple[ExecutionId, ...], step: int) -> None:
    id = lineage(world, 0)[step]
    disk.remove(tables.checkpoints, "id", id)
    kind, what = (FaultKind.CHECKPOINT, id) if step < STEPS else (FaultKind.BRANCH, world.ends[0].branch.id)
    fault = found(world, kind, what)
    assert runs[0] in fault.runs
    assert (runs[2] in fault.runs) == (step < STEPS)
    assert not world.integrity.repair().is_healthy


def keyframe_of(world: World, disk: Disk, number: int) -> Any:
    """The last keyframe of a run: the lists in it are sealed into chunks."""
    line = lineage(world, number)
    return max(
        (row for row in disk.rows(tables.keyframes) if row.checkpoint_id in line),
        key=lambda row: line.index(row.checkpoint_id),
    )


def test_a_damaged_keyframe_is_named_and_rebuilt(world: World, disk: Disk, runs: tuple[ExecutionId, ...]) -> None:
    row = keyframe_of(world, disk, 0)
    disk.set(
        tables.keyframes,
        "checkpoint_id",
        row.checkpoint_id,
        payload=flipped(row.payload, random.Random(1), any_bytes=True),
    )
    fault = found(world, FaultKind.KEYFRAME, row.checkpoint_id)
    assert runs[0] in fault.runs
    check_repaired(world, fault)


def test_a_keyframe_that_stood_for_deleted_checkpoints_is_lost(
    world: World, disk: Disk, runs: tuple[ExecutionId, ...]
) -> None:
    line = lineage(world, 0)
    with world.storage.unit_of_work() as uow:
        uow.checkpoints.delete(line[3:9])
        uow.commit()
    (row,) = disk.rows(tables.keyframes, checkpoint_id=line[9])
    disk.set(tables.keyframes, "checkpoint_id", line[9], payload=row.payload[:-1])
    fault = found(world, FaultKind.KEYFRAME, line[9])
    assert runs[0] in fault.runs
    assert not world.integrity.repair().is_healthy
    disk.remove(tables.keyframes, "checkpoint_id", line[9])
    assert runs[0] in found(world, FaultKind.DELTA, line[9]).runs


def test_a_keyframe_of_nothing_is_removed(world: World, disk: Disk) -> None:
    disk.change(sa.insert(tables.keyframes).values(checkpoint_id="nothing", payload=b"x"))
    check_repaired(world, found(world, FaultKind.KEYFRAME, "nothing"))
    assert disk.rows(tables.keyframes, checkpoint_id="nothing") == []


def blob_holding(disk: Disk, *texts: bytes) -> Any:
    """Return the only blob that contains these texts."""
    (row,) = [row for row in disk.rows(tables.blobs) if all(text in row.data for text in texts)]
    return row


def blob_of(disk: Disk, content: bytes) -> Any:
    """Return the blob that is this content; short texts are also in other blobs, and by chance in hashes."""
    (row,) = [row for row in disk.rows(tables.blobs) if row.data == content]
    return row


@pytest.mark.parametrize("how", ["flipped", "cut", "emptied", "removed"])
def test_a_damaged_value_is_named(world: World, disk: Disk, runs: tuple[ExecutionId, ...], how: str) -> None:
    for text, concerned in ((b"a a a", {runs[0], runs[2]}), (b"a7 raw", {runs[0], runs[2]}), (b"b b b", {runs[1]})):
        row = blob_holding(disk, text)
        damage_blob(disk, row, how)
        fault = found(world, FaultKind.BLOB, row.address.hex())
        assert set(fault.runs) == concerned
        damage_blob(disk, row, "restored", removed=how == "removed")
    assert world.faults() == []


def damage_blob(disk: Disk, row: Any, how: str, *, removed: bool = False) -> None:
    data = {
        "flipped": flipped(row.data, random.Random(1), any_bytes=True),
        "cut": row.data[:-1],
        "emptied": b"",
        "restored": row.data,
    }
    if how == "removed":
        disk.remove(tables.blobs, "address", row.address)
    elif removed:
        disk.change(sa.insert(tables.blobs).values(row._asdict()))
    else:
        disk.set(tables.blobs, "address", row.address, data=data[how])


@pytest.mark.parametrize("how", ["flipped", "removed"])
def test_a_damaged_chunk_of_a_keyframe_is_rebuilt_from_the_deltas(world: World, disk: Disk, how: str) -> None:
    row = blob_holding(disk, b"a1 a1", b"a2 a2")
    damage_blob(disk, row, how)
    check_repaired(world, found(world, FaultKind.BLOB, row.address.hex()))


@pytest.mark.parametrize("how", ["flipped", "removed"])
def test_a_damaged_small_file_is_named_and_taken_from_the_workspace(
    world: World, disk: Disk, runs: tuple[ExecutionId, ...], how: str
) -> None:
    lost, kept = blob_of(disk, b"a5"), blob_of(disk, b"a25")
    for row in (lost, kept):
        damage_blob(disk, row, how)
    assert set(found(world, FaultKind.BLOB, lost.address.hex()).runs) == {runs[0], runs[2]}
    report = world.integrity.repair()
    repaired = {fault.what: fault.repaired for fault in report.faults}
    assert repaired[kept.address.hex()]  # it still lies in the workspace of its run
    assert not repaired[lost.address.hex()]
    assert [fault.what for fault in world.faults()] == [lost.address.hex()]


def objects_of(world: World, letter: str) -> list[Path]:
    paths = (world.folder / "objects").glob("??/*")
    return sorted(path for path in paths if path.read_bytes().startswith(letter.encode()))


def damage_object(path: Path, how: str) -> None:
    content = path.read_bytes()
    match how:
        case "flipped":
            path.write_bytes(flipped(content, random.Random(1), any_bytes=True))
        case "cut":
            path.write_bytes(content[:-1])
        case _:
            path.unlink()


@pytest.mark.parametrize("how", ["flipped", "cut", "removed"])
def test_a_damaged_object_is_named_and_taken_from_the_workspace(
    world: World, runs: tuple[ExecutionId, ...], how: str
) -> None:
    for path in objects_of(world, "a25"):
        damage_object(path, how)
        fault = found(world, FaultKind.OBJECT, path.parent.name + path.name)
        assert runs[0] in fault.runs
        assert runs[1] not in fault.runs
        check_repaired(world, fault)
    (lost,) = objects_of(world, "a15")
    damage_object(lost, how)
    assert not world.integrity.repair().is_healthy


def test_a_content_that_lies_in_both_stores_is_healed_from_the_whole_one(world: World, disk: Disk) -> None:
    row = blob_of(disk, b"a5")
    with (world.folder / "content").open("w+b") as stream:
        stream.write(b"a5")
        stream.seek(0)
        assert world.objects is not None
        world.objects.put(stream)
    damage_blob(disk, row, "flipped")
    check_repaired(world, found(world, FaultKind.BLOB, row.address.hex()))


def test_damaged_things_that_nothing_refers_to_are_removed(world: World, disk: Disk) -> None:
    disk.change(sa.insert(tables.blobs).values(address=b"\x01" * 32, data=b"x", touched_at_us=0))
    path = world.folder / "objects" / "01" / ("01" * 31)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x")
    disk.change(
        sa.insert(tables.file_commits).values(
            id="0" * 64, base_id=None, format=1, created_at_us=0, pending=0, payload=b"x"
        )
    )
    faults = world.faults()
    assert {fault.kind for fault in faults} == {FaultKind.BLOB, FaultKind.OBJECT, FaultKind.FILE_COMMIT}
    assert all(fault.runs == () for fault in faults)
    assert {fault for fault in world.integrity.repair().faults if fault.repaired} == {each.mended() for each in faults}
    assert world.faults() == []


@pytest.mark.parametrize("how", ["payload", "base_id", "format", "removed"])
def test_a_damaged_file_commit_is_named(world: World, disk: Disk, runs: tuple[ExecutionId, ...], how: str) -> None:
    commit = world.copies[lineage(world, 0)[8]].checkpoint.file_commit
    (row,) = disk.rows(tables.file_commits, id=commit)
    if how == "removed":
        disk.remove(tables.file_commits, "id", commit)
    else:
        changed = {"payload": row.payload[:-1] + b"\x07", "base_id": "0" * 64, "format": 7}
        disk.set(tables.file_commits, "id", commit, **{how: changed[how]})
    assert set(found(world, FaultKind.FILE_COMMIT, str(commit)).runs) == {runs[0], runs[2]}
    assert not world.integrity.repair().is_healthy


def recorded_call(world: World) -> ToolCall:
    """A call that the first run made."""
    at = world.ends[0]
    now = world.clock.now()
    run = world.recorder.node_run(at, "node", 1)
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
    with world.storage.unit_of_work() as uow:
        uow.node_runs.save(run)
        uow.tool_calls.save(call)
        uow.commit()
    return call


def test_a_flipped_bit_in_a_recorded_call_is_named(world: World, disk: Disk, runs: tuple[ExecutionId, ...]) -> None:
    call, chance = recorded_call(world), random.Random(1)
    assert world.faults() == []
    (row,) = disk.rows(tables.tool_calls)
    for column, value in row._asdict().items():
        if value is None or column in ("execution_id", "node_run_id", "identity"):
            continue
        bits = range(8 * len(value)) if column == "result" else range(3)
        for bit in bits:
            changed = (
                flipped(value, chance, any_bytes=disk.keeps_any_bytes)
                if column != "result"
                else value[: bit // 8] + bytes([value[bit // 8] ^ 1 << bit % 8]) + value[bit // 8 + 1 :]
            )
            disk.set(tables.tool_calls, "identity", call.identity, **{column: changed})
            with world.storage.unit_of_work(readonly=True) as uow, pytest.raises(DamagedData, match="send:1"):
                uow.tool_calls.list_calls(runs[0])
        what = f"{runs[0]}/{call.node_run_id}/{call.identity}"
        assert found(world, FaultKind.TOOL_CALL, what).runs == (runs[0],)
        disk.set(tables.tool_calls, "identity", call.identity, **{column: value})
    for column in ("node_run_id", "identity"):
        disk.set(tables.tool_calls, "tool", "send", **{column: f"{getattr(row, column)}x"})
        assert [fault.kind for fault in world.faults()] == [FaultKind.TOOL_CALL]
        disk.set(tables.tool_calls, "tool", "send", **{column: getattr(row, column)})
    assert world.faults() == []


def test_a_call_that_was_recorded_before_there_were_checksums_is_read(world: World, disk: Disk) -> None:
    call = recorded_call(world)
    (row,) = disk.rows(tables.tool_calls)
    disk.set(tables.tool_calls, "identity", call.identity, result=row.result[20:])
    with world.storage.unit_of_work(readonly=True) as uow:
        assert uow.tool_calls.list_calls(call.execution_id) == (call,)
    assert world.faults() == []


def test_a_flipped_bit_in_a_result_that_waits_for_its_siblings_is_named(
    world: World, disk: Disk, runs: tuple[ExecutionId, ...]
) -> None:
    with world.storage.unit_of_work() as uow:
        run = uow.node_runs.list_runs(runs[0])[-1]
        uow.node_runs.save(evolve(run, pending={"returned": {"price": 1234}, "file_commit": None}))
        uow.commit()
    assert world.faults() == []
    (row,) = [row for row in disk.rows(tables.node_runs) if row.id == run.id]
    for bit in range(8 * len(row.pending)):
        changed = bytearray(row.pending)
        changed[bit // 8] ^= 1 << bit % 8
        disk.set(tables.node_runs, "id", run.id, pending=bytes(changed))
        with world.storage.unit_of_work(readonly=True) as uow, pytest.raises(DamagedData, match=run.id):
            uow.node_runs.get(runs[0], run.id)
    assert found(world, FaultKind.NODE_RUN, run.id).runs == (runs[0],)


def test_a_shared_result_with_a_flipped_bit_is_taken_by_nobody(world: World, disk: Disk) -> None:
    now = datetime.now(UTC)
    entry = CacheEntry(key=b"key", status=CacheStatus.RUNNING, owner="me", attempt="1", expires_at=now)
    with world.storage.unit_of_work() as uow:
        uow.cache.claim(entry)
        uow.cache.settle(replace(entry, status=CacheStatus.DONE, value={"returned": {"price": 1234}}))
        uow.commit()
    (row,) = disk.rows(tables.node_cache)
    for bit in range(8 * len(row.value)):
        changed = bytearray(row.value)
        changed[bit // 8] ^= 1 << bit % 8
        disk.set(tables.node_cache, "key", b"key", value=bytes(changed))
        with world.storage.unit_of_work(readonly=True) as uow:
            kept = uow.cache.find(b"key")
            assert kept is not None
            assert kept.value is None


@pytest.mark.parametrize("column", ["type", "at_us", "data", "hash"])
def test_a_damaged_event_is_named(world: World, disk: Disk, runs: tuple[ExecutionId, ...], column: str) -> None:
    events = [row for row in disk.rows(tables.events) if row.stream == runs[0]]
    for row in (events[0], events[9], events[-1]):
        value = flipped(getattr(row, column), random.Random(column), any_bytes=disk.keeps_any_bytes)
        disk.set(tables.events, "position", row.position, **{column: value})
        assert found(world, FaultKind.EVENT, f"{runs[0]}/{row.sequence}").runs == (runs[0],)
        disk.set(tables.events, "position", row.position, **{column: getattr(row, column)})
    assert world.faults() == []


def test_missing_events_are_named(world: World, disk: Disk, runs: tuple[ExecutionId, ...]) -> None:
    events = sorted((row for row in disk.rows(tables.events) if row.stream == runs[0]), key=lambda row: row.position)
    for row in (events[0], events[4], events[5]):
        disk.remove(tables.events, "position", row.position)
    assert found(world, FaultKind.EVENT, f"{runs[0]}/1").runs == (runs[0],)
    assert "event 5 to 6" in found(world, FaultKind.EVENT, f"{runs[0]}/5").problem


def test_what_refers_to_nothing_is_named(world: World, disk: Disk, runs: tuple[ExecutionId, ...]) -> None:
    """Rows without seals, as earlier versions left them: what is wrong must show in what they refer to."""
    node_run = next(row for row in disk.rows(tables.node_runs) if row.execution_id == runs[0])
    disk.set(tables.node_runs, "id", node_run.id, last_id="nothing", seal=None)
    assert found(world, FaultKind.NODE_RUN, node_run.id).runs == (runs[0],)
    disk.set(tables.node_runs, "id", node_run.id, last_id=node_run.last_id, status="no such")
    assert found(world, FaultKind.NODE_RUN, node_run.id).runs == (runs[0],)
    disk.set(tables.node_runs, "id", node_run.id, status=node_run.status)
    branch = world.ends[1].branch.id
    disk.set(tables.branches, "id", branch, head_id="nothing", head_seal=None)
    assert found(world, FaultKind.BRANCH, branch).runs == (runs[1],)
    disk.remove(tables.branches, "id", branch)
    assert found(world, FaultKind.BRANCH, branch).runs == (runs[1],)


def test_runs_that_cannot_be_read_are_named(world: World, disk: Disk, runs: tuple[ExecutionId, ...]) -> None:
    disk.set(tables.executions, "id", runs[1], status="no such")
    assert found(world, FaultKind.RUN, runs[1]).runs == (runs[1],)
    disk.remove(tables.executions, "id", runs[1])
    assert found(world, FaultKind.RUN, runs[1]).runs == (runs[1],)


def check_repaired(world: World, fault: Fault) -> None:
    assert fault.remedy
    report = world.integrity.repair()
    assert any(each.repaired and (each.kind, each.what) == (fault.kind, fault.what) for each in report.faults)
    world.check()


@pytest.mark.parametrize("how", ["flipped", "cut"])
def test_a_damaged_stat_index_is_named_and_removed(world: World, runs: tuple[ExecutionId, ...], how: str) -> None:
    at = world.ends[0]
    folder = world.workspaces.path(at.execution.id, at.branch.id)
    index = world.integrity._folders.index_of(folder)
    save_index(StatIndex(), index)
    assert world.faults() == []
    damage_object(index, how)
    assert found(world, FaultKind.STAT_INDEX, str(index)).runs == (runs[0],)
    report = world.integrity.repair()
    assert [fault.repaired for fault in report.faults if fault.kind is FaultKind.STAT_INDEX] == [True]
    assert not index.exists()


def test_a_removed_stat_index_costs_time_only(world: World) -> None:
    at = world.ends[0]
    folder = world.workspaces.path(at.execution.id, at.branch.id)
    (folder / "small").write_bytes(b"changed")
    commit = FileCommitId(at.head.file_commit or "")
    with_index = world.workspaces.prepare(folder, commit).delta
    world.integrity._folders.index_of(folder).unlink()
    assert world.faults() == []
    assert world.workspaces.prepare(folder, commit).delta == with_index
    assert set(with_index.put) == {"small"}


def test_half_restored_workspaces_are_named_and_restored(world: World, runs: tuple[ExecutionId, ...]) -> None:
    world.clock.advance(timedelta(hours=2))  # or the runs count as running
    at = world.ends[0]
    folder = world.workspaces.path(at.execution.id, at.branch.id)
    member = world.workspaces.path(at.execution.id, at.branch.id, "member")
    nobody = world.workspaces.path(ExecutionId("gone"), at.branch.id)
    for place in (folder, member, nobody):
        (place / HALF_DONE).mkdir(parents=True)
        (place / "large").write_bytes(b"half")
    assert {(fault.what, fault.runs) for fault in world.faults()} == {
        (str(folder), (runs[0],)),
        (str(member), (runs[0],)),
        (str(nobody), ()),
    }
    assert all(fault.repaired for fault in world.integrity.repair().faults if fault.kind is FaultKind.WORKSPACE)
    assert world.faults() == []
    commit = world.copies[at.head.id].checkpoint.file_commit
    assert commit is not None
    assert (
        world.workspaces.prepare(folder, FileCommitId(commit)).delta
        == type(world.workspaces.prepare(folder, None).delta)()
    )


def test_a_folder_that_a_member_of_an_ended_run_left_half_restored_is_no_fault(
    world: World, runs: tuple[ExecutionId, ...]
) -> None:
    at = world.ends[0]
    member = world.workspaces.path(at.execution.id, at.branch.id, "member:2")
    (member / HALF_DONE).mkdir(parents=True)
    world.recorder.end(at, Ending(status=ExecutionStatus.COMPLETED))
    assert world.faults() == []


def test_runs_of_processes_that_are_gone_are_named_and_paused(world: World, runs: tuple[ExecutionId, ...]) -> None:
    me = world.integrity._owners.me()
    machine = me.split("/")[0]
    for number, owner in enumerate((me, f"{machine}/999999999/1")):
        world.recorder.begin(world.recorder.load(runs[number]), owner)
    (fault,) = [fault for fault in world.integrity.check().faults if fault.kind is FaultKind.ABANDONED_RUN]
    assert (fault.what, fault.runs) == (runs[1], (runs[1],))
    report = world.integrity.repair()
    assert report.is_healthy
    with world.storage.unit_of_work(readonly=True) as uow:
        assert uow.executions.get(runs[0]).status is ExecutionStatus.RUNNING
        assert uow.executions.get(runs[1]).status is ExecutionStatus.PAUSED
        assert len(uow.events.list_events(stream=runs[1], types=[EventType.EXECUTION_ABANDONED])) == 1


def test_garbage_is_counted_and_collected_by_a_repair(world: World, disk: Disk) -> None:
    lost = world.ends[1]
    with world.storage.unit_of_work() as uow:
        uow.checkpoints.delete_run(lost.execution.id)
        uow.executions.delete(lost.execution.id)
        uow.commit()
    garbage = world.integrity.check().garbage
    assert garbage.blobs > 10
    assert garbage.commits == 3
    assert garbage.objects == 3
    world.clock.advance(GRACE * 2)
    for path in objects_of(world, "b"):
        os.utime(path, (0, 0))
    report = world.integrity.repair()
    assert report.swept == garbage
    assert not any(world.integrity.check().garbage)


def test_many_faults_are_all_named(world: World, disk: Disk) -> None:
    chance = random.Random(1)
    line = lineage(world, 0)
    for id in line[3:6]:
        (row,) = disk.rows(tables.checkpoints, id=id)
        disk.set(tables.checkpoints, "id", id, payload=flipped(row.payload, chance, any_bytes=True))
    disk.set(tables.checkpoints, "id", line[9], description="changed")
    disk.remove(tables.checkpoints, "id", line[20])
    row = blob_holding(disk, b"b b b")
    damage_blob(disk, row, "cut")
    named = {(fault.kind, fault.what) for fault in world.faults()}
    assert named >= {
        *((FaultKind.DELTA, id) for id in line[3:6]),
        (FaultKind.CHECKPOINT, line[9]),
        (FaultKind.CHECKPOINT, line[20]),
        (FaultKind.BLOB, row.address.hex()),
    }


def test_a_run_that_cannot_be_read_hides_nothing_else(world: World, disk: Disk, runs: tuple[ExecutionId, ...]) -> None:
    machine = world.integrity._owners.me().split("/")[0]
    world.recorder.begin(world.recorder.load(runs[2]), f"{machine}/999999999/1")
    at = world.ends[1]
    folder = world.workspaces.path(at.execution.id, at.branch.id)
    (folder / HALF_DONE).mkdir(parents=True)
    disk.set(tables.executions, "id", runs[1], metadata="no JSON")
    named = {(fault.kind, fault.what): fault for fault in world.integrity.check().faults}
    assert (FaultKind.RUN, runs[1]) in named
    assert (FaultKind.ABANDONED_RUN, runs[2]) in named
    assert named[FaultKind.WORKSPACE, str(folder)].remedy is None
    assert not world.integrity.repair().is_healthy
    assert (folder / "large").exists()
