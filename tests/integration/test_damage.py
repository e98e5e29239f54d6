"""Damage on disk is found when it is read: an error names the checkpoint, a wrong state is never returned."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa

from tests.integration.damaged_disk import HASHED, Disk, flipped
from tests.run_writer import RunWriter
from wtb.application.runs.steps import Position
from wtb.application.upkeep import listing
from wtb.domain.checkpoint import Checkpoint
from wtb.domain.errors import CheckpointNotFound, DamagedData, NotFound, UnknownFormat, WTBError
from wtb.domain.events import EventType
from wtb.domain.ids import ExecutionId
from wtb.domain.ports import Storage
from wtb.domain.state import Append, Change, DeleteKey, SetValue, Splice, State, StateDelta
from wtb.infrastructure.sql import tables
from wtb.infrastructure.system import Uuid7Ids
from wtb.testing.fakes import FakeClock, SequentialIds

pytestmark = pytest.mark.parametrize("storage", ["sqlite", "postgres"], indirect=True)

STEPS = 24


@dataclass
class Told:
    """A run as it was written: each checkpoint and the state at it."""

    id: ExecutionId
    line: list[Checkpoint]
    states: list[State]


def delta_at(step: int, letter: str) -> StateDelta:
    changes: dict[str, tuple[Change, ...]] = {
        "messages": (Append((f"{letter}{step} " * 700,)),),
        "n": (SetValue(step),),
    }
    if step % 3 == 0:
        changes["blob"] = (SetValue({"text": f"{letter}{step} blob " * 90, "step": step}),)
    if step % 5 == 0:
        changes["log"] = (Append(tuple(f"{letter}{step}.{number} log " * 200 for number in range(4))),)
    if step % 8 == 0:
        changes["messages"] = (Splice(1, 1, (f"{letter}{step} spliced",)),)
    if step % 10 == 0:
        changes["blob"] = (DeleteKey(),)
    return StateDelta(changes)


def tell(storage: Storage, letter: str) -> Told:
    recorder = RunWriter(storage, FakeClock(), SequentialIds(ord(letter)))
    at: Position = recorder.start({"name": "w", "version": "1", "nodes": []}, {"messages": [letter, letter]})
    line, states = [at.head], [State({"messages": [letter, letter]})]
    for step in range(1, STEPS):
        delta = delta_at(step, letter)
        run = recorder.node_run(at, f"node-{step}", 1)
        at = recorder.complete(
            at, run, delta, returned={"raw": f"{letter}{step} raw"}, next_nodes=(f"node-{step + 1}",)
        )
        line.append(at.head)
        states.append(states[-1].apply(delta))
    return Told(at.execution.id, line, states)


@pytest.fixture
def run(storage: Storage) -> Told:
    """The run that is going to be damaged."""
    return tell(storage, "a")


@pytest.fixture
def other(storage: Storage) -> Told:
    """A run in the same database that must not notice."""
    return tell(storage, "b")


@pytest.fixture
def disk(storage: Storage) -> Disk:
    return Disk(storage)


def outcome(read: Callable[[], object]) -> object:
    """What reading gives: the answer, or the error."""
    try:
        return read()
    except WTBError as error:
        return error


def check_loads(storage: Storage, told: Told) -> dict[int, WTBError]:
    """Load every checkpoint of a run: the right state comes, or an error that names a checkpoint of it."""
    errors: dict[int, WTBError] = {}
    for step, checkpoint in enumerate(told.line):
        with storage.unit_of_work(readonly=True) as uow:
            found = outcome(lambda: uow.checkpoints.load(checkpoint.id))  # noqa: B023
        if isinstance(found, WTBError):
            errors[step] = found
            assert isinstance(found, DamagedData | CheckpointNotFound)
            assert any(each.id in str(found) for each in told.line), found
        else:
            snapshot: Any = found
            assert dict(snapshot.state) == dict(told.states[step])
            assert snapshot.checkpoint == checkpoint
    return errors


def check_whole(storage: Storage, told: Told) -> None:
    assert check_loads(storage, told) == {}
    with storage.unit_of_work(readonly=True) as uow:
        assert list(uow.checkpoints.load_history(told.id).lineage()) == told.line
        assert len(uow.events.list_events(stream=told.id, types=[EventType.NODE_COMPLETED])) == STEPS - 1


def check_nothing_is_built_on_it(storage: Storage, told: Told, step: int) -> None:
    """A step that is taken on damaged ground raises, or the damage is not under it and the new state is right."""
    recorder = RunWriter(storage, FakeClock(), Uuid7Ids())
    with storage.unit_of_work(readonly=True) as uow:
        execution = uow.executions.get(told.id)
        branch = uow.branches.get(execution.branch_id)
    at = Position(execution=execution, branch=branch, head=told.line[step])
    delta = StateDelta({"messages": (Splice(0, 1, ("new",)),)})
    found = outcome(lambda: recorder.fork(at, told.line[step].id, f"fork {execution.version}"))
    if isinstance(found, Position):
        fork = found
        found = outcome(lambda: recorder.complete(fork, recorder.node_run(fork, "new", 1), delta))
    if isinstance(found, Position):
        with storage.unit_of_work(readonly=True) as uow:
            snapshot = outcome(lambda: uow.checkpoints.load(found.head.id))
        if not isinstance(snapshot, DamagedData):
            loaded: Any = snapshot
            assert dict(loaded.state) == dict(told.states[step].apply(delta))
    else:
        assert isinstance(found, DamagedData | CheckpointNotFound)
        assert any(each.id in str(found) for each in told.line), found


@pytest.mark.parametrize("column", HASHED)
def test_a_flipped_bit_in_a_row_is_found(storage: Storage, disk: Disk, run: Told, other: Told, column: str) -> None:
    chance = random.Random(column)
    for step in (0, STEPS // 2, STEPS - 1):
        checkpoint = run.line[step]
        (row,) = disk.rows(tables.checkpoints, id=checkpoint.id)
        value = getattr(row, column)
        if value in (None, "", b""):
            continue
        disk.set(tables.checkpoints, "id", row.id, **{column: flipped(value, chance, any_bytes=disk.keeps_any_bytes)})
        expected = {"format": UnknownFormat, "id": CheckpointNotFound}.get(column, DamagedData)
        with storage.unit_of_work(readonly=True) as uow:
            for read in (uow.checkpoints.get, uow.checkpoints.load):
                with pytest.raises(expected, match=checkpoint.id):
                    read(checkpoint.id)
            if column != "execution_id":  # the row is then in the list of a run that does not exist
                with pytest.raises(UnknownFormat if column == "format" else DamagedData):
                    uow.checkpoints.list_infos(run.id)
        if column not in ("format", "id"):
            check_loads(storage, run)
            check_nothing_is_built_on_it(storage, run, step)
        check_whole(storage, other)
        if column != "id":
            disk.set(tables.checkpoints, "id", row.id, **{column: value})


@pytest.mark.parametrize(
    ("column", "value"), [("node", "another"), ("description", "changed"), ("kind", "manual"), ("created_by", "eve")]
)
def test_a_changed_fact_is_found_in_lists_and_histories(
    storage: Storage, disk: Disk, run: Told, other: Told, column: str, value: str
) -> None:
    checkpoint = run.line[7]
    disk.set(tables.checkpoints, "id", checkpoint.id, **{column: value})
    with storage.unit_of_work(readonly=True) as uow:
        for read in (uow.checkpoints.list_infos, uow.checkpoints.load_history):
            with pytest.raises(DamagedData, match=checkpoint.id):
                read(run.id)
    check_whole(storage, other)


@pytest.mark.parametrize("what", ["payload", "keyframe"])
def test_flipped_bits_in_deltas_and_keyframes_are_found(
    storage: Storage, disk: Disk, run: Told, other: Told, what: str
) -> None:
    chance = random.Random(what)
    table, key = (tables.checkpoints, "id") if what == "payload" else (tables.keyframes, "checkpoint_id")
    ids = {checkpoint.id for checkpoint in run.line}
    rows = [row for row in disk.rows(table) if getattr(row, key) in ids]
    assert len(rows) > 1
    for row in rows:
        checkpoint_id = getattr(row, key)
        disk.set(table, key, checkpoint_id, payload=flipped(row.payload, chance, any_bytes=True))
        step = [checkpoint.id for checkpoint in run.line].index(checkpoint_id)
        assert step in check_loads(storage, run)
        check_nothing_is_built_on_it(storage, run, step)
        disk.set(table, key, checkpoint_id, payload=row.payload)
    assert check_loads(storage, run) == {}
    check_whole(storage, other)


@pytest.mark.parametrize("how", ["flipped", "cut", "emptied", "exchanged", "removed"])
def test_a_damaged_blob_is_found(storage: Storage, disk: Disk, run: Told, other: Told, how: str) -> None:
    chance = random.Random(how)
    mine = [row for row in disk.rows(tables.blobs) if b"a" in row.data and b"b1" not in row.data]
    assert len(mine) > 5
    for row, next_row in zip(mine, mine[1:] + mine[:1], strict=True):
        damaged = {
            "flipped": flipped(row.data, chance, any_bytes=True),
            "cut": row.data[:-1],
            "emptied": b"",
            "exchanged": next_row.data,
        }
        if how == "removed":
            disk.remove(tables.blobs, "address", row.address)
        else:
            disk.set(tables.blobs, "address", row.address, data=damaged[how])
        errors = check_loads(storage, run)
        assert errors
        assert all(run.line[step].id in str(error) for step, error in errors.items())
        check_nothing_is_built_on_it(storage, run, min(errors))
        check_whole(storage, other)
        if how == "removed":
            disk.change(sa.insert(tables.blobs).values(row._asdict()))
        else:
            disk.set(tables.blobs, "address", row.address, data=row.data)
    check_whole(storage, other)


def test_a_lost_keyframe_costs_time_only_while_the_deltas_are_there(
    storage: Storage, disk: Disk, run: Told, other: Told
) -> None:
    ids = {checkpoint.id for checkpoint in run.line}
    for row in disk.rows(tables.keyframes):
        if row.checkpoint_id in ids:
            disk.remove(tables.keyframes, "checkpoint_id", row.checkpoint_id)
    assert check_loads(storage, run) == {}
    check_whole(storage, other)


def test_a_lost_keyframe_that_stood_for_deleted_checkpoints_is_found(
    storage: Storage, disk: Disk, run: Told, other: Told
) -> None:
    with storage.unit_of_work() as uow:
        uow.checkpoints.delete([checkpoint.id for checkpoint in run.line[3:9]])
        uow.commit()
    disk.remove(tables.keyframes, "checkpoint_id", run.line[9].id)
    errors = check_loads(storage, run)
    assert isinstance(errors[9], DamagedData)
    assert run.line[9].id in str(errors[9])
    check_nothing_is_built_on_it(storage, run, 9)
    check_whole(storage, other)


@pytest.mark.parametrize("step", [0, 1, 5, STEPS - 2])
def test_a_lost_row_is_found(storage: Storage, disk: Disk, run: Told, other: Told, step: int) -> None:
    disk.remove(tables.checkpoints, "id", run.line[step].id)
    errors = check_loads(storage, run)
    assert isinstance(errors.pop(step), CheckpointNotFound)
    assert all(isinstance(error, DamagedData) for error in errors.values())
    following = run.line[step + 1].id
    assert (step + 1 in errors) == (not disk.rows(tables.keyframes, checkpoint_id=following))
    check_nothing_is_built_on_it(storage, run, step + 1)
    with storage.unit_of_work(readonly=True) as uow, pytest.raises(NotFound, match=run.line[step].id):
        uow.checkpoints.load_history(run.id).lineage()
    check_whole(storage, other)


def test_pruning_does_not_make_a_damaged_checkpoint_look_whole(
    storage: Storage, disk: Disk, run: Told, other: Told
) -> None:
    keyframes = {row.checkpoint_id for row in disk.rows(tables.keyframes)}
    step = next(step for step in range(4, STEPS) if not keyframes & {run.line[step].id, run.line[step + 1].id})
    disk.remove(tables.checkpoints, "id", run.line[step - 1].id)
    with storage.unit_of_work() as uow, pytest.raises(DamagedData, match=run.line[step + 1].id):
        uow.checkpoints.delete([run.line[step].id])
    check_loads(storage, run)
    check_whole(storage, other)


def test_payloads_that_were_exchanged_are_found(storage: Storage, disk: Disk, run: Told) -> None:
    one, two = (disk.rows(tables.checkpoints, id=run.line[step].id)[0] for step in (6, 7))
    disk.set(tables.checkpoints, "id", one.id, payload=two.payload)
    disk.set(tables.checkpoints, "id", two.id, payload=one.payload)
    errors = check_loads(storage, run)
    assert {6, 7} <= errors.keys()


def test_what_nodes_returned_is_verified_too(storage: Storage, disk: Disk) -> None:
    """Two checkpoints of the same state: the payload of one is whole, but it is not that of the other."""
    recorder = RunWriter(storage, FakeClock(), SequentialIds(7))
    at = recorder.start({"name": "w", "version": "1", "nodes": []}, {"n": 1})
    ids = []
    for text in ("one", "two"):
        at = recorder.complete(at, recorder.node_run(at, "n", 1), StateDelta(), returned={"text": text})
        ids.append(at.head.id)
    (row,) = disk.rows(tables.checkpoints, id=ids[1])
    disk.set(tables.checkpoints, "id", ids[0], payload=row.payload)
    with storage.unit_of_work(readonly=True) as uow, pytest.raises(DamagedData, match=ids[0]):
        uow.checkpoints.load(ids[0])


def test_a_tombstone_that_came_back_to_life_is_found(storage: Storage, disk: Disk, run: Told) -> None:
    gone = run.line[4].id
    with storage.unit_of_work() as uow:
        uow.checkpoints.delete([gone])
        uow.commit()
    disk.set(tables.checkpoints, "id", gone, deleted=0)
    with storage.unit_of_work(readonly=True) as uow, pytest.raises(DamagedData, match=gone):
        uow.checkpoints.load(gone)


@pytest.mark.parametrize("column", ["stream", "sequence", "type", "at_us", "data", "hash"])
def test_a_damaged_event_is_found(storage: Storage, disk: Disk, run: Told, other: Told, column: str) -> None:
    chance = random.Random(column)
    events = [row for row in disk.rows(tables.events) if row.stream == run.id]
    for row in (events[0], events[9], events[-1]):
        value = flipped(getattr(row, column), chance, any_bytes=disk.keeps_any_bytes)
        disk.set(tables.events, "position", row.position, **{column: value})
        with storage.unit_of_work(readonly=True) as uow, pytest.raises(DamagedData):
            uow.events.list_events()
        check_whole(storage, other)
        disk.set(tables.events, "position", row.position, **{column: getattr(row, column)})


@pytest.mark.parametrize("value", [2**62, -(2**62), 0])
def test_an_event_at_an_impossible_time_is_found(storage: Storage, disk: Disk, run: Told, value: int) -> None:
    row = disk.rows(tables.events)[3]
    disk.set(tables.events, "position", row.position, at_us=value)
    with storage.unit_of_work(readonly=True) as uow, pytest.raises(DamagedData, match=f"event {row.sequence} of"):
        uow.events.list_events(stream=run.id)


def test_a_removed_event_is_found(storage: Storage, disk: Disk, run: Told, other: Told) -> None:
    row = [row for row in disk.rows(tables.events) if row.stream == run.id][5]
    disk.remove(tables.events, "position", row.position)
    with storage.unit_of_work(readonly=True) as uow, pytest.raises(DamagedData, match=run.id):
        uow.events.list_events(stream=run.id)
    check_whole(storage, other)


def test_a_list_of_runs_goes_past_damaged_ones_and_reads_whole_pages_again(
    storage: Storage, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = RunWriter(storage, FakeClock(), SequentialIds(1))
    ids = [recorder.start({"name": "w", "version": "1", "nodes": []}, {}).execution.id for _ in range(12)]
    for damaged in (ids[2], ids[7]):
        disk.set(tables.executions, "id", damaged, options="[")
    monkeypatch.setattr(listing, "_PAGE", 4)
    units = 0
    begin = storage.unit_of_work

    def counted(**how: Any) -> Any:
        nonlocal units
        units += 1
        return begin(**how)

    monkeypatch.setattr(storage, "unit_of_work", counted)
    found = {execution.id for execution in listing.every_execution(storage)}
    assert found == {*ids} - {ids[2], ids[7]}
    assert units == 8  # three pages, two of them again by one, and the end
