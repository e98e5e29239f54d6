"""Repair: restores data that can be derived from intact data or found in it; it never invents anything."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from wtb.domain.errors import NotFound, ObjectNotFound, StorageError
from wtb.domain.ids import CheckpointId
from wtb.domain.integrity import Fault, FaultKind
from wtb.domain.ports import Codec, ObjectStore
from wtb.infrastructure.checkpoints.rows import unpacked, unseal_keyframe
from wtb.infrastructure.files.blocks import BlockSizes, blocks_in
from wtb.infrastructure.files.scanner import open_file
from wtb.infrastructure.upkeep.garbage import UpkeepStorage, UpkeepUnitOfWork
from wtb.infrastructure.upkeep.references import addresses_in

_EVER = 1 << 62
"""Later than any use, in microseconds."""


class Repair:
    """Tries every remedy that it knows; each has its own transaction, which is kept only if it worked."""

    def __init__(
        self, storage: UpkeepStorage, objects: ObjectStore, folders: Path, *, codec: Codec, sizes: BlockSizes
    ) -> None:
        self._storage = storage
        self._objects = objects
        self._folders = folders
        self._codec = codec
        self._sizes = sizes

    def run(self, faults: Sequence[Fault]) -> None:
        """Try to repair these faults."""
        repairable = [fault for fault in faults if fault.remedy is not None]
        for fault in repairable:
            if fault.kind is FaultKind.KEYFRAME:
                self._rebuild([fault.what])
            elif fault.kind is FaultKind.FILE_COMMIT:
                self._drop_commit(fault.what)
        self._heal_contents([fault for fault in repairable if fault.kind in (FaultKind.BLOB, FaultKind.OBJECT)])

    def _heal_contents(self, faults: Sequence[Fault]) -> None:
        lost: dict[bytes, Fault] = {}
        for fault in faults:
            digest = bytes.fromhex(fault.what)
            if not fault.runs:
                self._drop_content(digest, fault.kind)
            elif not self._heal_from_the_other(digest, fault.kind):
                lost[digest] = fault
        self._heal_from_folders(lost)
        self._heal_from_deltas([digest for digest, fault in lost.items() if fault.kind is FaultKind.BLOB])

    def _rebuild(self, checkpoint_ids: Sequence[str], *, without: bytes | None = None) -> None:
        """Rewrite all these keyframes from the earlier deltas, or none."""
        with suppress(StorageError, NotFound), self._storage.unit_of_work() as uow:
            rows = uow.upkeep_rows()
            for checkpoint_id in checkpoint_ids:
                rows.drop_keyframe(checkpoint_id)
            if without is not None:
                rows.remove_blob(without)
            for checkpoint_id in checkpoint_ids:
                uow.rebuild_keyframe(CheckpointId(checkpoint_id))
            uow.commit()

    def _drop_commit(self, commit_id: str) -> None:
        with self._storage.unit_of_work() as uow:
            uow.upkeep_rows().drop_file_commits([commit_id], _EVER)
            uow.commit()

    def _drop_content(self, digest: bytes, kind: FaultKind) -> None:
        if kind is FaultKind.OBJECT:
            self._objects.delete(digest)
            return
        with self._storage.unit_of_work() as uow:
            uow.upkeep_rows().remove_blob(digest)
            uow.commit()

    def _heal_from_the_other(self, digest: bytes, kind: FaultKind) -> bool:
        """Copy an intact content from the database to the object store, or from there to the database."""
        with self._storage.unit_of_work(readonly=True) as uow:
            blob = uow.upkeep_rows().get_blobs([digest]).get(digest, b"")
        if kind is FaultKind.OBJECT:
            return self._healed(digest, kind, io.BytesIO(blob))
        try:
            with self._objects.open(digest) as stream:
                return self._healed(digest, kind, stream)
        except ObjectNotFound:
            return False

    def _healed(self, digest: bytes, kind: FaultKind, stream: BinaryIO) -> bool:
        """Restore a content, if the stream really holds it."""
        if hashlib.file_digest(stream, "sha256").digest() != digest:  # type: ignore[arg-type]
            return False
        stream.seek(0)
        if kind is FaultKind.OBJECT:
            self._objects.delete(digest)
            self._objects.put(stream)
            self._objects.sync()
            return True
        with self._storage.unit_of_work() as uow:
            uow.upkeep_rows().replace_blob(digest, stream.read())
            uow.commit()
        return True

    def _heal_from_folders(self, wanted: dict[bytes, Fault]) -> None:
        """Search the workspaces for contents; most contents came from there."""
        for path in _files(self._folders) if wanted else ():
            with suppress(OSError), open_file(path) as stream:
                self._heal_from_file(stream, wanted)
            if not wanted:
                return

    def _heal_from_file(self, stream: io.FileIO, wanted: dict[bytes, Fault]) -> None:
        """Restore wanted contents from a file: the whole file, or blocks of it."""
        digest = hashlib.file_digest(stream, "sha256").digest()
        stream.seek(0)
        if digest in wanted and self._healed(digest, wanted[digest].kind, stream):
            del wanted[digest]
        stream.seek(0)
        for block in blocks_in(stream, self._sizes.block_bytes) if wanted else ():
            digest = hashlib.sha256(block).digest()
            if digest in wanted and self._healed(digest, wanted[digest].kind, io.BytesIO(block)):
                del wanted[digest]

    def _heal_from_deltas(self, lost: Sequence[bytes]) -> None:
        """Rebuild the keyframes that refer to damaged chunks: the deltas may hold the same items."""
        for address in lost:
            with self._storage.unit_of_work(readonly=True) as uow:
                if self._is_whole(uow, address):
                    continue
                referring = [id for id, payload in uow.upkeep_rows().keyframes() if self._refers(id, payload, address)]
            if referring:
                self._rebuild(referring, without=address)

    def _is_whole(self, uow: UpkeepUnitOfWork, address: bytes) -> bool:
        data = uow.upkeep_rows().get_blobs([address]).get(address)
        return data is not None and self._codec.digest(data) == address

    def _refers(self, checkpoint_id: str, payload: bytes, address: bytes) -> bool:
        try:
            operations = unpacked(unseal_keyframe(self._codec, payload, checkpoint_id))
        except StorageError:
            return False
        return any(address in addresses_in(each) for changes in operations.values() for each in changes)


def _files(folder: Path) -> Iterator[str]:
    for place, _, names in os.walk(folder):
        yield from (os.path.join(place, name) for name in names)  # noqa: PTH118  names may be no text
