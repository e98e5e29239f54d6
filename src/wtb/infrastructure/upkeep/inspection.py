"""StoredInspection: verifies all rows and objects, and names each fault with the runs that it affects."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from wtb.domain.errors import DamagedData, NotFound, ObjectNotFound, StorageError, UnknownFormat, WTBError
from wtb.domain.events import EventType
from wtb.domain.execution import THREAD
from wtb.domain.ids import ExecutionId, WorkflowId
from wtb.domain.integrity import Fault, FaultKind
from wtb.domain.ports import Codec, Inspected, ObjectStore, Swept
from wtb.infrastructure.event_chain import EventRow, read_event
from wtb.infrastructure.files.blocks import SIZES, BlockSizes, find_blocks
from wtb.infrastructure.files.scanner import SMALL_BYTES
from wtb.infrastructure.upkeep.garbage import UpkeepStorage, UpkeepUnitOfWork
from wtb.infrastructure.upkeep.ledger import Ledger
from wtb.infrastructure.upkeep.references import References
from wtb.infrastructure.upkeep.repair import Repair
from wtb.infrastructure.upkeep.rows import BlobRow, UpkeepRows
from wtb.infrastructure.upkeep.structure import cut_streams, event_fault, fault, structure

_READ_BYTES = 16 << 20
"""The most bytes of blobs that are read at a time."""
_CHUNK_BYTES = 1 << 20
_EVER = datetime.max.replace(tzinfo=UTC)

Watch = Callable[[str], None]
FoundFault = tuple[FaultKind, str, StorageError]

_LOST_VALUES = """
SELECT DISTINCT address FROM value
WHERE NOT EXISTS (SELECT 1 FROM kept WHERE digest = address AND place = 'blob')
"""
_LOST_CONTENTS = """
SELECT digest, coalesce(
    (SELECT max(size) FROM entry WHERE entry.digest = needed.digest),
    (SELECT max(size) FROM block WHERE block.digest = needed.digest)
) FROM needed
WHERE NOT EXISTS (SELECT 1 FROM kept WHERE kept.digest = needed.digest)
"""
_GARBAGE = """
SELECT place, count(*), sum(size) FROM kept
WHERE whole AND digest NOT IN needed AND (place = 'object' OR NOT EXISTS (SELECT 1 FROM value WHERE address = digest))
GROUP BY place
"""
_TURNS = frozenset(
    {
        EventType.EXECUTION_STARTED,
        EventType.EXECUTION_RESUMED,
        EventType.EXECUTION_PAUSED,
        EventType.EXECUTION_COMPLETED,
        EventType.EXECUTION_FAILED,
        EventType.EXECUTION_CANCELLED,
    }
)
"""Events that set the status of a run."""

_OF_RUNS = (FaultKind.PENDING_WRITE, FaultKind.EVALUATION)
"""Rows that are deleted with their run."""

_FILE_OF = "SELECT path FROM entry WHERE digest = ? LIMIT 1"
_FILE_OF_BLOCK = """
SELECT path FROM entry WHERE digest IN (SELECT file_digest FROM block WHERE block.digest = ?) LIMIT 1
"""
_TELLS_MORE = "; `wtb doctor` shows more"
_CAN_BE_DERIVED = "rebuilds it from the deltas before it, if they are whole"
_CAN_BE_FOUND = "looks for the same content elsewhere, and takes it from there"
_UNUSED = "removes it, because nothing refers to it"


class StoredInspection:
    """Checks one moment of a storage and its objects; `folders` are other places where contents may be."""

    def __init__(
        self,
        storage: UpkeepStorage,
        objects: ObjectStore,
        folders: Path,
        *,
        codec: Codec,
        sizes: BlockSizes = SIZES,
    ) -> None:
        self._storage = storage
        self._objects = objects
        self._codec = codec
        self._sizes = sizes
        self._repair = Repair(storage, objects, folders, codec=codec, sizes=sizes)

    def inspect(self, watch: Watch) -> Inspected:
        counts: Counter[str] = Counter()

        def seen(kind: str) -> None:
            counts[kind] += 1
            watch(kind)

        faults = self._tables(watch)
        try:
            found, garbage = self._rows(seen)
            faults += found
        except DamagedData as error:
            if not faults:
                raise
            faults.append(fault(FaultKind.DATABASE, "", f"not everything can be read: {error}", ()))
            garbage = Swept()
        return Inspected(tuple(dict.fromkeys(faults)), dict(counts), garbage)

    def _tables(self, watch: Watch) -> list[Fault]:
        """Return the tables that the database itself finds damaged, each in its own transaction, which may fail."""
        faults: list[Fault] = []
        with self._storage.unit_of_work(readonly=True) as uow:
            tables = uow.upkeep_rows().list_tables()
        for table in tables:
            watch(FaultKind.DATABASE)
            with self._storage.unit_of_work(readonly=True) as uow:
                problem = uow.upkeep_rows().check_table(table)
            if problem:
                said = f"table {table!r} of the database is damaged: {problem}"
                faults.append(fault(FaultKind.DATABASE, table, said, ()))
        return faults

    def _rows(self, seen: Watch) -> tuple[list[Fault], Swept]:
        found: list[FoundFault] = []
        with Ledger() as ledger, self._storage.unit_of_work(readonly=True) as uow:
            rows = uow.upkeep_rows()
            for kind in References(rows, ledger, self._codec, lambda *fault: found.append(fault)).read():
                seen(kind)
            self._read_heads(rows, ledger)
            self._read_blobs(rows, ledger, seen)
            self._read_blocks(ledger)
            self._read_objects(ledger, seen)
            # Pending writes are checked below, with the runs that they belong to.
            faults = [_described(ledger, *each) for each in found if each[0] is not FaultKind.PENDING_WRITE]
            faults += [*structure(ledger), *_contents(ledger), *self._runs(uow, seen)]
            faults += [*self._events(rows, ledger, seen), *cut_streams(ledger)]
            faults += [*_calls(rows, seen), *_sealed(rows, ledger, seen)]
            return faults, _garbage(ledger)

    def repair(self, faults: Sequence[Fault]) -> None:
        self._repair.run(faults)

    def _read_heads(self, rows: UpkeepRows, ledger: Ledger) -> None:
        for branch in rows.branches():
            ledger.add("branch", branch)
        for row in rows.executions():
            is_thread = row.workflow_name == THREAD
            ledger.add("execution", (row.id, row.branch_id, row.status, is_thread, row.is_sealed))
        for rollback in rows.rollbacks():
            ledger.add("rollback", rollback)

    def _read_blobs(self, rows: UpkeepRows, ledger: Ledger, seen: Watch) -> None:
        for batch in _bounded(rows.blobs()):
            for address, data in rows.get_blobs([blob.address for blob in batch]).items():
                ledger.add("kept", (address, "blob", self._codec.digest(data) == address, len(data)))
                seen(FaultKind.BLOB)

    def _read_blocks(self, ledger: Ledger) -> None:
        for digest in ledger.large_files(self._sizes.above_bytes):
            with suppress(DamagedData):  # reported as a damaged object
                ledger.note_blocks(digest, find_blocks(self._objects, digest))

    def _read_objects(self, ledger: Ledger, seen: Watch) -> None:
        for found in self._objects.list_objects(unused_since=_EVER):
            try:
                whole = _hash(self._objects, found.digest) == found.digest
            except ObjectNotFound:
                continue  # collected since it was listed
            except DamagedData:  # the list of its blocks, or one of them is missing
                whole = False
            ledger.add("kept", (found.digest, "object", whole, found.size))
            seen(FaultKind.OBJECT)

    def _runs(self, uow: UpkeepUnitOfWork, seen: Watch) -> Iterator[Fault]:
        """Yield the runs that cannot be read, or whose workflow cannot."""
        for row in uow.upkeep_rows().executions():
            seen(FaultKind.RUN)
            try:
                uow.executions.get(ExecutionId(row.id))
                uow.workflows.get(WorkflowId(row.workflow_id))
            except (StorageError, NotFound) as error:
                yield fault(FaultKind.RUN, row.id, str(error).removesuffix(_TELLS_MORE), (row.id,))

    def _events(self, rows: UpkeepRows, ledger: Ledger, seen: Watch) -> Iterator[Fault]:
        """Yield events that are damaged or missing in the middle; note what they record, because the end may be cut."""
        end = _StreamEnd("")
        for row in rows.events():
            if row.stream != end.stream:
                ledger.add("stream_end", end.noted())
                end = _StreamEnd(row.stream)
            wrong = self._event(row, end, ledger)
            if wrong is not None:
                end.is_whole = False
                yield wrong
            end.sequence = row.sequence
            seen(FaultKind.EVENT)
        ledger.add("stream_end", end.noted())

    def _event(self, row: EventRow, end: _StreamEnd, ledger: Ledger) -> Fault | None:
        expected = end.sequence + 1
        if row.sequence > expected:
            last = f" to {row.sequence - 1}" if row.sequence - 1 > expected else ""
            return event_fault(row.stream, expected, f"event {expected}{last} of {row.stream!r} is missing")
        try:
            event = read_event(self._codec, row)
        except DamagedData as error:
            return event_fault(row.stream, row.sequence, str(error))
        if event.type in _TURNS:
            end.turn = event.type.value
        if event.type is EventType.NODE_COMPLETED and (checkpoint_id := event.data.get("checkpoint")):
            ledger.add("told", (row.stream, checkpoint_id))
        return None


@dataclass(slots=True)
class _StreamEnd:
    """The position in the events of a run: the last number, and the last event that set the status of the run."""

    stream: str
    sequence: int = 0
    turn: str | None = None
    is_whole: bool = True

    def noted(self) -> tuple[str, int, str | None, bool]:
        """Return the row of the ledger."""
        return self.stream, self.sequence, self.turn, self.is_whole


def _calls(rows: UpkeepRows, seen: Watch) -> Iterator[Fault]:
    for row in rows.calls():
        seen(FaultKind.TOOL_CALL)
        what = f"{row.execution_id}/{row.node_run_id}/{row.identity}"
        if row.problem:
            yield fault(FaultKind.TOOL_CALL, what, row.problem.removesuffix(_TELLS_MORE), (row.execution_id,))
        elif not row.has_node_run:
            problem = f"call {row.identity!r} of run {row.execution_id!r} has lost its node run {row.node_run_id!r}"
            yield fault(FaultKind.TOOL_CALL, what, problem, (row.execution_id,))


def _sealed(rows: UpkeepRows, ledger: Ledger, seen: Watch) -> Iterator[Fault]:
    """Yield the rows that do not match their checksums, and leftover rows of runs that do not exist."""
    known: dict[str, bool] = {}
    for row in rows.sealed_rows():
        if row.is_whole_row:
            seen(row.kind)
        run, problem = row.execution_id, row.problem
        if row.kind in _OF_RUNS and run is not None and not problem:
            if run not in known:
                known[run] = any(ledger.rows("SELECT 1 FROM execution WHERE id = ?", run))
            if not known[run]:
                problem = f"{row.kind} {row.name!r} belongs to run {run!r}, which does not exist"
        if problem:
            yield fault(row.kind, row.name, problem, () if run is None else (run,))


def _bounded(blobs: Iterator[BlobRow]) -> Iterator[list[BlobRow]]:
    """Yield blobs in lists whose contents fit into memory together."""
    batch: list[BlobRow] = []
    size = 0
    for blob in blobs:
        if batch and (size + blob.size > _READ_BYTES or len(batch) == 500):
            yield batch
            batch, size = [], 0
        batch.append(blob)
        size += blob.size
    if batch:
        yield batch


def _hash(objects: ObjectStore, digest: bytes) -> bytes:
    found = hashlib.sha256()
    with objects.open(digest) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            found.update(chunk)
    return found.digest()


def _described(ledger: Ledger, kind: FaultKind, what: str, error: WTBError) -> Fault:
    """Return the fault of something that could not be read."""
    known, problem = not isinstance(error, UnknownFormat), str(error).removesuffix(_TELLS_MORE)
    match kind:
        case FaultKind.FILE_COMMIT:
            runs = ledger.runs_of_commit(what)
            return fault(kind, what, problem, runs, None if runs or not known else _UNUSED)
        case FaultKind.NODE_RUN:
            owners = [run for (run,) in ledger.rows("SELECT execution_id FROM node_run WHERE id = ?", what)]
            return fault(kind, what, problem, sorted(set(owners)))
        case FaultKind.KEYFRAME if known:
            return fault(kind, what, problem, ledger.runs_of_checkpoint(what), _CAN_BE_DERIVED)
    return fault(kind, what, problem, ledger.runs_of_checkpoint(what))


def _contents(ledger: Ledger) -> Iterator[Fault]:
    """Yield blobs and objects that are damaged or missing."""
    for digest, place in list(ledger.rows("SELECT digest, place FROM kept WHERE NOT whole ORDER BY digest")):
        used = not ledger.unused([digest])
        runs = ledger.runs_of_value(digest) if used else ()
        problem = f"{_named(ledger, place, digest)} is damaged: its content does not match its hash"
        yield fault(FaultKind(place), digest.hex(), problem, runs, _CAN_BE_FOUND if used else _UNUSED)
    lost = [(digest, 0) for (digest,) in ledger.rows(_LOST_VALUES)]
    lost += [each for each in ledger.rows(_LOST_CONTENTS) if each[0] not in {digest for digest, _ in lost}]
    for digest, size in lost:
        kind = FaultKind.BLOB if size <= SMALL_BYTES else FaultKind.OBJECT
        problem = f"{_named(ledger, kind, digest)} is missing"
        yield fault(kind, digest.hex(), problem, ledger.runs_of_value(digest), _CAN_BE_FOUND)


def _named(ledger: Ledger, kind: str, digest: bytes) -> str:
    """Return the name of a content, with the name of a file that has it."""
    for statement, what in ((_FILE_OF, "the file"), (_FILE_OF_BLOCK, "a block of the file")):
        for (path,) in list(ledger.rows(statement, digest)):
            return f"{kind} {digest.hex()[:16]} ({what} {os.fsdecode(path)!r})"
    return f"{kind} {digest.hex()[:16]}"


def _garbage(ledger: Ledger) -> Swept:
    found = {place: (count, size) for place, count, size in ledger.rows(_GARBAGE)}
    blobs, blob_bytes = found.get("blob", (0, 0))
    objects, object_bytes = found.get("object", (0, 0))
    return Swept(blobs, len(ledger.dead_commits()), objects, blob_bytes + object_bytes)
