"""SweptGarbage: mark and sweep over the rows of any storage and an object store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Protocol

from wtb.domain.ids import CheckpointId
from wtb.domain.ports import (
    NO_TELEMETRY,
    Clock,
    Codec,
    Measure,
    ObjectStore,
    StoredObject,
    Swept,
    Telemetry,
    UnitOfWork,
    measured,
)
from wtb.infrastructure.files.blocks import SIZES, BlockSizes, find_blocks
from wtb.infrastructure.timestamps import to_us
from wtb.infrastructure.upkeep.ledger import Ledger, batches
from wtb.infrastructure.upkeep.references import References
from wtb.infrastructure.upkeep.rows import BlobRow, UpkeepRows


class UpkeepUnitOfWork(UnitOfWork, Protocol):
    """A unit of work that also shows its rows."""

    def upkeep_rows(self) -> UpkeepRows: ...
    def rebuild_keyframe(self, checkpoint_id: CheckpointId) -> None: ...


class UpkeepStorage(Protocol):
    """A storage whose units of work also show their rows."""

    def unit_of_work(self, *, readonly: bool = False) -> UpkeepUnitOfWork: ...


class SweptGarbage:
    """Finds data that nothing refers to, and removes it if it is still unused at that moment.

    Marking sees one moment. Data that gets a new reference later either had one before, and so is marked, or was used
    just now, which the removing statement itself checks.
    """

    def __init__(
        self,
        storage: UpkeepStorage,
        objects: ObjectStore,
        *,
        codec: Codec,
        clock: Clock,
        sizes: BlockSizes = SIZES,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        self._storage = storage
        self._objects = objects
        self._codec = codec
        self._clock = clock
        self._sizes = sizes
        self._telemetry = telemetry

    def count(self, grace: timedelta) -> Swept:
        before = self._clock.now() - grace
        with Ledger() as ledger:
            self._mark(ledger)
            with self._storage.unit_of_work(readonly=True) as uow:
                blobs = [blob.size for blob in _unused_blobs(uow.upkeep_rows(), ledger, to_us(before))]
            objects = [found.size for found in self._unused_objects(ledger, before)]
            commits = len(ledger.dead_commits())
        return Swept(len(blobs), commits, len(objects), sum(blobs) + sum(objects))

    def sweep(self, grace: timedelta) -> Swept:
        return measured(self._telemetry, Measure.SWEEP, "", self._swept)(grace)

    def _swept(self, grace: timedelta) -> Swept:
        before = self._clock.now() - grace
        with Ledger() as ledger:
            self._mark(ledger)
            commits = self._sweep_commits(ledger, to_us(before))
            blobs, blob_bytes = self._sweep_blobs(ledger, to_us(before))
            objects, object_bytes = self._sweep_objects(ledger, before)
        self._objects.discard_unfinished(unused_since=before)
        return Swept(blobs, commits, objects, blob_bytes + object_bytes)

    def _mark(self, ledger: Ledger) -> None:
        with self._storage.unit_of_work(readonly=True) as uow:
            for _ in References(uow.upkeep_rows(), ledger, self._codec).read():
                pass
        for digest in ledger.large_files(self._sizes.above_bytes):
            ledger.note_blocks(digest, find_blocks(self._objects, digest))

    def _sweep_commits(self, ledger: Ledger, before_us: int) -> int:
        """Remove commits; a commit that others build on can go once the others are gone."""
        remaining, removed = ledger.dead_commits(), 0
        while remaining:
            gone: set[str] = set()
            for batch in batches(remaining):
                with self._storage.unit_of_work() as uow:
                    gone |= uow.upkeep_rows().drop_file_commits(batch, before_us)
                    uow.commit()
            if not gone:
                break
            removed += len(gone)
            remaining = [commit_id for commit_id in remaining if commit_id not in gone]
        return removed

    def _sweep_blobs(self, ledger: Ledger, before_us: int) -> tuple[int, int]:
        with self._storage.unit_of_work(readonly=True) as uow:
            ledger.note_garbage(_unused_blobs(uow.upkeep_rows(), ledger, before_us))
        count = size = 0
        for batch in ledger.garbage():
            with self._storage.unit_of_work() as uow:
                gone = uow.upkeep_rows().drop_blobs(list(batch), before_us)
                uow.commit()
            count += len(gone)
            size += sum(batch[address] for address in gone)
        return count, size

    def _sweep_objects(self, ledger: Ledger, before: datetime) -> tuple[int, int]:
        count = size = 0
        for found in self._unused_objects(ledger, before):
            if self._objects.delete(found.digest, unused_since=before):
                count += 1
                size += found.size
        return count, size

    def _unused_objects(self, ledger: Ledger, before: datetime) -> Iterator[StoredObject]:
        for batch in batches(self._objects.list_objects(unused_since=before)):
            unused = set(ledger.unused([found.digest for found in batch]))
            yield from (found for found in batch if found.digest in unused)


def _unused_blobs(rows: UpkeepRows, ledger: Ledger, before_us: int) -> Iterator[BlobRow]:
    for batch in batches(rows.blobs(before_us)):
        unused = set(ledger.unused([blob.address for blob in batch]))
        yield from (blob for blob in batch if blob.address in unused)
