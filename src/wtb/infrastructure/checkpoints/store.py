"""DeltaCheckpointStore: every checkpoint is a delta from its parent, with a keyframe now and then."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from threading import Lock
from typing import Any

import ormsgpack

from wtb.domain.checkpoint import Checkpoint, CheckpointDraft, Snapshot
from wtb.domain.errors import CheckpointNotFound, Conflict, DamagedData
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.domain.ports import (
    BranchRepository,
    Clock,
    Codec,
    ExecutionRepository,
    NodeRunRepository,
)
from wtb.domain.state import StateDelta
from wtb.infrastructure.checkpoints.encoder import DeltaEncoder, EncodedDelta
from wtb.infrastructure.checkpoints.manifest import EMPTY, Manifest
from wtb.infrastructure.checkpoints.rows import (
    CheckpointRow,
    CheckpointRows,
    checkpoint_of,
    new_checkpoint,
    row_of,
    seal,
    unpacked,
    unseal,
)
from wtb.infrastructure.timestamps import to_us

KEYFRAME_BYTES = 32 * 1024
"""Deltas since the last keyframe may grow to this size, or to that of a keyframe if it is larger."""
_ROW_BYTES = 512
"""What reading one more row costs, in bytes: bounds the number of small deltas between keyframes."""


class ManifestCache:
    """Manifests of recently used checkpoints, shared by all units of work of a storage.

    A checkpoint never changes and its id is never given again, so an entry cannot become wrong. It can come to
    name chunks that a sweep has collected (after others rewrote keyframes); writing a keyframe checks for that.
    """

    def __init__(self, size: int = 256) -> None:
        self._size = size
        self._manifests: OrderedDict[str, Manifest] = OrderedDict()
        self._lock = Lock()

    def find(self, checkpoint_id: str) -> Manifest | None:
        with self._lock:
            manifest = self._manifests.get(checkpoint_id)
            if manifest is not None:
                self._manifests.move_to_end(checkpoint_id)
            return manifest

    def put(self, checkpoint_id: str, manifest: Manifest) -> None:
        with self._lock:
            self._manifests[checkpoint_id] = manifest
            if len(self._manifests) > self._size:
                self._manifests.popitem(last=False)

    def forget(self, checkpoint_ids: Collection[str]) -> None:
        with self._lock:
            for checkpoint_id in checkpoint_ids:
                self._manifests.pop(checkpoint_id, None)


class DeltaCheckpointStore:
    """The CheckpointStore of every backend; only the rows differ."""

    def __init__(
        self,
        rows: CheckpointRows,
        *,
        cache: ManifestCache,
        encoder: DeltaEncoder,
        codec: Codec,
        clock: Clock,
        executions: ExecutionRepository,
        branches: BranchRepository,
        node_runs: NodeRunRepository,
    ) -> None:
        self._rows = rows
        self._cache = cache
        self._codec = codec
        self._clock = clock
        self._encoder = encoder
        self._executions = executions
        self._branches = branches
        self._node_runs = node_runs

    def save(
        self,
        draft: CheckpointDraft,
        delta: StateDelta,
        returned: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Checkpoint:
        parent_hash, base = self._base(draft)
        return self.write(draft, parent_hash, base, self._encoder.encode(base, delta, returned, self._read_blobs))

    def write(self, draft: CheckpointDraft, parent_hash: bytes, base: Manifest, encoded: EncodedDelta) -> Checkpoint:
        """Keep a delta that is encoded already; `base` is the manifest of the parent."""
        payload = seal(self._codec, ormsgpack.packb([encoded.operations, encoded.returned]))
        manifest = base.apply(encoded.operations, _ROW_BYTES + len(payload))
        row = row_of(
            self._codec,
            draft,
            state_hash=manifest.root(self._codec),
            returned_hash=self._encoder.returned_digest(encoded),
            parent_hash=parent_hash,
            size=len(payload) + sum(map(len, encoded.blobs.values())),
        )
        if encoded.blobs:
            self._rows.put_blobs(encoded.blobs, row.created_at_us)
        self._rows.insert(row, payload)
        if draft.parent_id is not None and manifest.pending > _limit(manifest):
            manifest = self._write_keyframe(draft.id, manifest)
        self._cache.put(draft.id, manifest)
        return new_checkpoint(row)

    def _base(self, draft: CheckpointDraft) -> tuple[bytes, Manifest]:
        """Return the parent's hash and manifest; a branch that leaves the parent here begins at a keyframe.

        Without that, each of many forks from one point would soon write a keyframe of its own.
        """
        if draft.parent_id is None:
            return b"", EMPTY
        parent = self._rows.find_parent(draft.parent_id)
        if parent is None or parent.deleted:
            raise CheckpointNotFound(draft.parent_id)
        manifest = self._manifest(draft.parent_id)
        if parent.branch_id != draft.branch_id and manifest.pending > _limit(manifest) // 4:
            manifest = self._ensure_keyframe(draft.parent_id, manifest)
        return parent.hash, manifest

    def _manifest(self, checkpoint_id: str) -> Manifest:
        manifest = self._cache.find(checkpoint_id)
        if manifest is None:
            manifest = self._read_manifest(checkpoint_id)
            self._cache.put(checkpoint_id, manifest)
        return manifest

    def _read_manifest(self, checkpoint_id: str) -> Manifest:
        manifest = EMPTY
        for link in self._rows.chain(checkpoint_id):
            if link.keyframe is not None:
                body = unseal(self._codec, link.keyframe, f"the keyframe of checkpoint {link.id!r}")
                manifest = EMPTY.apply(unpacked(body))
            elif not link.payload:
                raise DamagedData(
                    f"checkpoint {checkpoint_id!r} cannot be loaded: {link.id!r}, which it builds on, has no content; "
                    "`wtb doctor` tells more"
                )
            else:
                body = unseal(self._codec, link.payload, f"checkpoint {link.id!r}")
                manifest = manifest.apply(unpacked(body)[0], _ROW_BYTES + len(link.payload))
        return manifest

    def _write_keyframe(self, checkpoint_id: str, manifest: Manifest) -> Manifest:
        now_us = to_us(self._clock.now())
        addresses = {address for _, entry in manifest for address in entry.addresses}
        if addresses and self._rows.touch_blobs(addresses, now_us) < len(addresses):
            # The manifest came from the cache and names chunks that have been collected meanwhile: read it anew.
            manifest = self._read_manifest(checkpoint_id)
        operations, blobs, sealed = manifest.keyframe(self._codec)
        if blobs:
            self._rows.put_blobs(blobs, now_us)
        self._rows.put_keyframe(checkpoint_id, seal(self._codec, ormsgpack.packb(operations)))
        return sealed

    def get(self, checkpoint_id: CheckpointId) -> Checkpoint:
        return checkpoint_of(self._codec, self._living(checkpoint_id)[0])

    def _living(self, checkpoint_id: CheckpointId) -> tuple[CheckpointRow, bytes]:
        found = self._rows.find(checkpoint_id)
        if found is None or found[0].deleted:
            raise CheckpointNotFound(checkpoint_id)
        return found

    def load(self, checkpoint_id: CheckpointId) -> Snapshot:
        row, payload = self._living(checkpoint_id)
        checkpoint = checkpoint_of(self._codec, row)
        manifest = self._read_manifest(checkpoint_id)
        if manifest.root(self._codec) != checkpoint.state_hash:
            raise DamagedData(
                f"checkpoint {checkpoint_id!r} is damaged: its state does not match its hash; `wtb doctor` tells more"
            )
        operations, returned = unpacked(unseal(self._codec, payload, f"checkpoint {checkpoint_id!r}"))
        addresses = {address for _, entry in manifest for address in entry.addresses}
        addresses |= self._encoder.returned_addresses(operations, returned)
        blobs = self._read_blobs(tuple(addresses), checkpoint_id)
        self._cache.put(checkpoint_id, manifest)
        return Snapshot(
            checkpoint=checkpoint,
            state=self._encoder.state(manifest, blobs),
            returned=self._encoder.returned(operations, returned, blobs),
        )

    def _read_blobs(self, addresses: Sequence[bytes], checkpoint_id: str | None = None) -> dict[bytes, bytes]:
        if not addresses:
            return {}
        blobs = self._rows.get_blobs(addresses)
        needed = f"checkpoint {checkpoint_id!r} needs" if checkpoint_id else "a list that is spliced needs"
        for address in addresses:
            data = blobs.get(address)
            if data is None:
                raise DamagedData(f"{needed} blob {address.hex()[:16]}, which is missing; `wtb doctor` tells more")
            if self._codec.digest(data) != address:
                raise DamagedData(f"{needed} blob {address.hex()[:16]}, which is damaged; `wtb doctor` tells more")
        return blobs

    def list_infos(self, execution_id: ExecutionId) -> tuple[Checkpoint, ...]:
        rows = self._rows.list_rows(execution_id)
        return tuple([checkpoint_of(self._codec, row) for row in rows if not row.deleted])

    def load_history(self, execution_id: ExecutionId) -> ExecutionHistory:
        execution = self._executions.get(execution_id)
        rows = {row.id: row for row in self._rows.list_rows(execution_id)}
        node_runs = list(self._node_runs.list_runs(execution_id))
        foreign = {row.parent_id for row in rows.values() if row.parent_id and row.parent_id not in rows}
        for checkpoint_id in foreign:
            ancestors = self._rows.list_ancestors(checkpoint_id)
            for other in {row.execution_id for row in ancestors}:
                node_runs += self._node_runs.list_runs(ExecutionId(other))
            rows |= {row.id: row for row in ancestors}
        return ExecutionHistory(
            execution_id=execution_id,
            active_branch_id=execution.branch_id,
            branches=self._branches.list_branches(execution_id),
            checkpoints=tuple([checkpoint_of(self._codec, row) for row in rows.values()]),
            node_runs=tuple(node_runs),
        )

    def delete(self, checkpoint_ids: Collection[CheckpointId]) -> None:
        gone = set(checkpoint_ids)
        if self._rows.condemn(gone) < len(gone):
            raise CheckpointNotFound(", ".join(sorted(gone)))
        heads = self._rows.heads_among(gone)
        if heads:
            raise Conflict(f"checkpoint {heads[0]!r} is the head of a branch; move the branch before deleting it")
        self._uproot(gone)
        self._rows.bury(gone)
        self._cache.forget(gone)

    def delete_run(self, execution_id: ExecutionId) -> None:
        own = {row.id for row in self._rows.list_rows(execution_id)}
        self._rows.condemn(own)
        stumps = self._uproot(own)
        self._rows.bury(stumps)
        self._rows.remove(own - stumps)
        self._cache.forget(own)

    def _uproot(self, gone: Collection[str]) -> set[str]:
        """Give a keyframe to every survivor that builds on one of these, and return those that were built on."""
        children = self._rows.children_of(gone)
        for child in children:
            self._ensure_keyframe(child.id, self._read_manifest(child.id))
        return {child.parent_id for child in children if child.parent_id}

    def _ensure_keyframe(self, checkpoint_id: str, manifest: Manifest) -> Manifest:
        if self._rows.has_keyframe(checkpoint_id):
            manifest = self._read_manifest(checkpoint_id)  # a cached one may not know of it
        else:
            manifest = self._write_keyframe(checkpoint_id, manifest)
        self._cache.put(checkpoint_id, manifest)
        return manifest


def _limit(manifest: Manifest) -> int:
    return max(manifest.weight, KEYFRAME_BYTES)
