"""StoredInspection: verifies all rows and objects, and says what is wrong with which, and whom it concerns."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from wtb.domain.errors import DamagedData, NotFound, ObjectNotFound, StorageError, UnknownFormat, WTBError
from wtb.domain.ids import ExecutionId, WorkflowId
from wtb.domain.integrity import Fault, FaultKind
from wtb.domain.ports import Codec, Inspected, ObjectStore, Swept
from wtb.infrastructure.event_chain import read_event
from wtb.infrastructure.files.blocks import SIZES, BlockSizes, find_blocks
from wtb.infrastructure.files.scanner import SMALL_BYTES
from wtb.infrastructure.upkeep.garbage import UpkeepStorage, UpkeepUnitOfWork
from wtb.infrastructure.upkeep.ledger import Ledger
from wtb.infrastructure.upkeep.references import References
from wtb.infrastructure.upkeep.repair import Repair
from wtb.infrastructure.upkeep.rows import BlobRow, UpkeepRows

_READ_BYTES = 16 << 20
"""Contents of blobs that are read at a time."""
_CHUNK_BYTES = 1 << 20
_EVER = datetime.max.replace(tzinfo=UTC)

Watch = Callable[[str], None]
Told = tuple[FaultKind, str, StorageError]

_LOST_PARENTS = """
SELECT child.parent_id, child.execution_id
FROM checkpoint AS child LEFT JOIN checkpoint AS parent ON parent.id = child.parent_id
WHERE child.parent_id IS NOT NULL AND parent.id IS NULL ORDER BY child.parent_id
"""
_BROKEN_LINKS = """
SELECT child.id, child.parent_id FROM checkpoint AS child JOIN checkpoint AS parent ON parent.id = child.parent_id
WHERE parent.hash <> child.parent_hash
UNION SELECT id, NULL FROM checkpoint WHERE parent_id IS NULL AND length(parent_hash) > 0
"""
_LOST_CONTENT = """
SELECT child.id FROM checkpoint AS child LEFT JOIN checkpoint AS parent ON parent.id = child.parent_id
WHERE child.deleted = 0 AND child.parent_id IS NOT NULL AND (parent.id IS NULL OR parent.deleted)
AND NOT EXISTS (SELECT 1 FROM keyframe WHERE checkpoint_id = child.id)
"""
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
_LOST_COMMITS = """
SELECT commit_id FROM living WHERE NOT EXISTS (SELECT 1 FROM file_commit WHERE id = commit_id)
"""
_LOST_HEADS = """
SELECT branch.id, branch.execution_id, branch.head_id FROM branch LEFT JOIN checkpoint ON checkpoint.id = head_id
WHERE head_id IS NOT NULL AND (checkpoint.id IS NULL OR deleted)
"""
_LOST_STEPS = """
SELECT DISTINCT node_run.id, node_run.execution_id, checkpoint_id FROM node_run
LEFT JOIN checkpoint ON checkpoint.id = checkpoint_id WHERE checkpoint.id IS NULL
"""
_LOST_BRANCHES = """
SELECT execution.id, branch_id FROM execution WHERE NOT EXISTS (SELECT 1 FROM branch WHERE branch.id = branch_id)
"""
_LOST_RUNS = """
SELECT DISTINCT execution_id FROM checkpoint
WHERE deleted = 0 AND NOT EXISTS (SELECT 1 FROM execution WHERE execution.id = execution_id)
"""
_GARBAGE = """
SELECT place, count(*), sum(size) FROM kept
WHERE whole AND digest NOT IN needed AND (place = 'object' OR NOT EXISTS (SELECT 1 FROM value WHERE address = digest))
GROUP BY place
"""
_FILE_OF = "SELECT path FROM entry WHERE digest = ? LIMIT 1"
_FILE_OF_BLOCK = """
SELECT path FROM entry WHERE digest IN (SELECT file_digest FROM block WHERE block.digest = ?) LIMIT 1
"""
_TELLS_MORE = "; `wtb doctor` tells more"
_CAN_BE_DERIVED = "rebuilt from the deltas before it, when they are whole"
_CAN_BE_FOUND = "taken from where the same content lies, if it does"
_UNUSED = "removed, since nothing refers to it"


class StoredInspection:
    """Looks at one moment of a storage, and at the objects beside it; `folders` is where else contents may lie."""

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
        told: list[Told] = []
        counts: Counter[str] = Counter()

        def seen(kind: str) -> None:
            counts[kind] += 1
            watch(kind)

        with Ledger() as ledger, self._storage.unit_of_work(readonly=True) as uow:
            rows = uow.upkeep_rows()
            for kind in References(rows, ledger, self._codec, lambda *fault: told.append(fault)).read():
                seen(kind)
            self._read_heads(rows, ledger)
            self._read_blobs(rows, ledger, seen)
            self._read_blocks(ledger)
            self._read_objects(ledger, seen)
            faults = [_described(ledger, *fault) for fault in told]
            faults += [*_structure(ledger), *_contents(ledger), *self._runs(uow, seen), *self._events(rows, seen)]
            faults += _calls(rows, seen)
            garbage = _garbage(ledger)
        return Inspected(tuple(dict.fromkeys(faults)), dict(counts), garbage)

    def repair(self, faults: Sequence[Fault]) -> None:
        self._repair.run(faults)

    def _read_heads(self, rows: UpkeepRows, ledger: Ledger) -> None:
        for branch in rows.branches():
            ledger.add("branch", branch)
        for execution in rows.executions():
            ledger.add("execution", execution[:2])

    def _read_blobs(self, rows: UpkeepRows, ledger: Ledger, seen: Watch) -> None:
        for batch in _bounded(rows.blobs()):
            for address, data in rows.get_blobs([blob.address for blob in batch]).items():
                ledger.add("kept", (address, "blob", self._codec.digest(data) == address, len(data)))
                seen(FaultKind.BLOB)

    def _read_blocks(self, ledger: Ledger) -> None:
        for digest in ledger.large_files(self._sizes.above_bytes):
            with suppress(DamagedData):  # told of as an object that is damaged
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
                yield Fault(kind=FaultKind.RUN, what=row.id, problem=str(error), runs=(ExecutionId(row.id),))

    def _events(self, rows: UpkeepRows, seen: Watch) -> Iterator[Fault]:
        stream, sequence = "", 0
        for row in rows.events():
            expected = sequence + 1 if row.stream == stream else 1
            if row.sequence > expected:
                last = f" to {row.sequence - 1}" if row.sequence - 1 > expected else ""
                yield _event(row.stream, expected, f"event {expected}{last} of {row.stream!r} is missing")
            else:
                try:
                    read_event(self._codec, row)
                except DamagedData as error:
                    yield _event(row.stream, row.sequence, str(error))
            stream, sequence = row.stream, row.sequence
            seen(FaultKind.EVENT)


def _calls(rows: UpkeepRows, seen: Watch) -> Iterator[Fault]:
    for row in rows.calls():
        seen(FaultKind.TOOL_CALL)
        if row.problem:
            what = f"{row.execution_id}/{row.node_run_id}/{row.identity}"
            yield _fault(FaultKind.TOOL_CALL, what, row.problem.removesuffix(_TELLS_MORE), (row.execution_id,))


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


def _fault(kind: FaultKind, what: str, problem: str, runs: Sequence[str], remedy: str | None = None) -> Fault:
    return Fault(kind=kind, what=what, problem=problem, runs=tuple(map(ExecutionId, runs)), remedy=remedy)


def _event(stream: str, sequence: int, problem: str) -> Fault:
    return _fault(FaultKind.EVENT, f"{stream}/{sequence}", problem, (stream,))


def _described(ledger: Ledger, kind: FaultKind, what: str, error: WTBError) -> Fault:
    """Return the fault of something that could not be read."""
    known, problem = not isinstance(error, UnknownFormat), str(error).removesuffix(_TELLS_MORE)
    match kind:
        case FaultKind.FILE_COMMIT:
            runs = ledger.runs_of_commit(what)
            return _fault(kind, what, problem, runs, None if runs or not known else _UNUSED)
        case FaultKind.NODE_RUN:
            owners = [run for (run,) in ledger.rows("SELECT execution_id FROM node_run WHERE id = ?", what)]
            return _fault(kind, what, problem, sorted(set(owners)))
        case FaultKind.KEYFRAME if known:
            return _fault(kind, what, problem, ledger.runs_of_checkpoint(what), _CAN_BE_DERIVED)
    return _fault(kind, what, problem, ledger.runs_of_checkpoint(what))


def _structure(ledger: Ledger) -> Iterator[Fault]:
    """Yield what refers to something that is not there, or not what it was."""
    lost: dict[str, list[str]] = {}
    for parent_id, run in ledger.rows(_LOST_PARENTS):
        lost.setdefault(parent_id, []).append(run)
    for id, runs in lost.items():
        problem = f"checkpoint {id!r} is missing, and others follow it"
        yield _fault(FaultKind.CHECKPOINT, id, problem, ledger.with_forks(runs))
    for id, parent_id in list(ledger.rows(_BROKEN_LINKS)):
        problem = f"checkpoint {id!r} does not follow the checkpoint {parent_id!r} that is there"
        yield _fault(FaultKind.CHAIN, id, problem, ledger.runs_of_checkpoint(id))
    for (id,) in list(ledger.rows(_LOST_CONTENT)):
        problem = f"checkpoint {id!r} has lost its content: what it builds on is gone, and so is its keyframe"
        yield _fault(FaultKind.DELTA, id, problem, ledger.runs_of_checkpoint(id))
    for (id,) in list(ledger.rows(_LOST_COMMITS)):
        yield _fault(FaultKind.FILE_COMMIT, id, f"file commit {id!r} is missing", ledger.runs_of_commit(id))
    for id, run, head_id in ledger.rows(_LOST_HEADS):
        yield _fault(FaultKind.BRANCH, id, f"branch {id!r} points at checkpoint {head_id!r}, which is gone", (run,))
    for id, run, checkpoint_id in ledger.rows(_LOST_STEPS):
        problem = f"node run {id!r} refers to checkpoint {checkpoint_id!r}, which is missing"
        yield _fault(FaultKind.NODE_RUN, id, problem, (run,))
    for run, branch_id in ledger.rows(_LOST_BRANCHES):
        yield _fault(FaultKind.BRANCH, branch_id, f"branch {branch_id!r} of run {run!r} is missing", (run,))
    for (run,) in ledger.rows(_LOST_RUNS):
        yield _fault(FaultKind.RUN, run, f"run {run!r} is missing, but its checkpoints are there", (run,))


def _contents(ledger: Ledger) -> Iterator[Fault]:
    """Yield blobs and objects that are damaged or missing."""
    for digest, place in list(ledger.rows("SELECT digest, place FROM kept WHERE NOT whole ORDER BY digest")):
        used = not ledger.unused([digest])
        runs = ledger.runs_of_value(digest) if used else ()
        problem = f"{_named(ledger, place, digest)} is damaged: its content does not match its hash"
        yield _fault(FaultKind(place), digest.hex(), problem, runs, _CAN_BE_FOUND if used else _UNUSED)
    lost = [(digest, 0) for (digest,) in ledger.rows(_LOST_VALUES)]
    lost += [each for each in ledger.rows(_LOST_CONTENTS) if each[0] not in {digest for digest, _ in lost}]
    for digest, size in lost:
        kind = FaultKind.BLOB if size <= SMALL_BYTES else FaultKind.OBJECT
        problem = f"{_named(ledger, kind, digest)} is missing"
        yield _fault(kind, digest.hex(), problem, ledger.runs_of_value(digest), _CAN_BE_FOUND)


def _named(ledger: Ledger, kind: str, digest: bytes) -> str:
    """Return the name of a content, and of a file that holds it."""
    for statement, what in ((_FILE_OF, "the file"), (_FILE_OF_BLOCK, "a block of the file")):
        for (path,) in list(ledger.rows(statement, digest)):
            return f"{kind} {digest.hex()[:16]} ({what} {os.fsdecode(path)!r})"
    return f"{kind} {digest.hex()[:16]}"


def _garbage(ledger: Ledger) -> Swept:
    found = {place: (count, size) for place, count, size in ledger.rows(_GARBAGE)}
    blobs, blob_bytes = found.get("blob", (0, 0))
    objects, object_bytes = found.get("object", (0, 0))
    return Swept(blobs, len(ledger.dead_commits()), objects, blob_bytes + object_bytes)
