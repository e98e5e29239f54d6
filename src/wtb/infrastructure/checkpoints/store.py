"""DeltaCheckpointStore: stores every checkpoint as a delta from its parent, with a keyframe now and then."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import ormsgpack

from wtb.domain.checkpoint import Checkpoint, CheckpointDraft, Snapshot
from wtb.domain.errors import CheckpointNotFound, Conflict, DamagedData, InvalidInput
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.domain.ports import (
    BranchRepository,
    Clock,
    Codec,
    ExecutionRepository,
    NodeRunRepository,
)
from wtb.domain.state import State, StateDelta
from wtb.infrastructure.checkpoints.cache import Known, ManifestCache
from wtb.infrastructure.checkpoints.decoder import HistoryDecoder
from wtb.infrastructure.checkpoints.encoder import DeltaEncoder, EncodedDelta
from wtb.infrastructure.checkpoints.manifest import EMPTY, Manifest
from wtb.infrastructure.checkpoints.rows import (
    CheckpointRow,
    CheckpointRows,
    ParentRow,
    checkpoint_of,
    row_of,
    seal_delta,
    seal_keyframe,
    stored_checkpoint,
    unpacked,
    unseal_delta,
    unseal_keyframe,
)
from wtb.infrastructure.timestamps import to_us

KEYFRAME_BYTES = 32 * 1024
"""Deltas since the last keyframe may grow to this size, or to the size of a keyframe if that is larger."""
_ROW_BYTES = 512
"""The cost of reading one more row, in bytes; it limits the number of small deltas between keyframes."""
_FRESH = 256
"""The most manifests that one unit of work remembers."""
_MEMORY = "langgraph:memory"
"""The name under which a row stores the engine's memory among the nodes' updates; no node can have this name.

The name is from earlier versions, when only LangGraph's engine had a memory. Only this store knows it.
"""


class HistorySources(NamedTuple):
    """The repositories that a history reads besides its checkpoints."""

    executions: ExecutionRepository
    branches: BranchRepository
    node_runs: NodeRunRepository


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
        sources: Callable[[], HistorySources],
    ) -> None:
        self._rows = rows
        self._cache = cache
        self._codec = codec
        self._clock = clock
        self._encoder = encoder
        self._fresh: dict[str, Known] = {}
        self._sources = sources

    def keep_learned(self) -> None:
        """Share what this transaction cached; called after its commit, because nothing is certain before."""
        for checkpoint_id, known in self._fresh.items():
            self._cache.put(checkpoint_id, known)

    def _remember(self, checkpoint_id: str, manifest: Manifest, row: ParentRow | None = None) -> None:
        self._fresh[checkpoint_id] = Known(manifest, row)
        if len(self._fresh) > _FRESH:  # a reader may load thousands, and each holds the keys of a whole state
            del self._fresh[next(iter(self._fresh))]

    def save(
        self,
        draft: CheckpointDraft,
        delta: StateDelta,
        returned: Mapping[str, Mapping[str, Any]] | None = None,
        memory: Mapping[str, Any] | None = None,
    ) -> Checkpoint:
        if memory is not None:
            returned = {**(returned or {}), _MEMORY: memory}
        parent_hash, base = self._base(draft)
        read_blobs = partial(self._read_blobs, checkpoint_id=draft.parent_id)
        try:
            encoded = self._encoder.encode(base, delta, returned, read_blobs)
        except DamagedData:
            if draft.parent_id is None:
                raise
            # A cached manifest may name chunks that a sweep has collected meanwhile: read it again.
            base = self._read_manifest(draft.parent_id, base.root(self._codec))
            encoded = self._encoder.encode(base, delta, returned, read_blobs)
        return self.write(draft, parent_hash, base, encoded)

    def write(self, draft: CheckpointDraft, parent_hash: bytes, base: Manifest, encoded: EncodedDelta) -> Checkpoint:
        """Store an encoded delta; `base` is the manifest of the parent."""
        payload = self._payload(draft, encoded)
        manifest = base.apply(encoded.operations, _ROW_BYTES + len(payload))
        row = row_of(
            self._codec,
            draft,
            state_hash=manifest.root(self._codec),
            returned_hash=self._encoder.returned_digest(encoded.operations, encoded.returned),
            parent_hash=parent_hash,
            size=len(payload) + sum(map(len, encoded.blobs.values())),
        )
        if encoded.blobs:
            self._rows.put_blobs(encoded.blobs, row.created_at_us)
        self._rows.insert(row, payload)
        if draft.parent_id is not None and manifest.pending > _limit(manifest):
            manifest = self._write_keyframe(draft.id, manifest)
        self._remember(draft.id, manifest, ParentRow(row.hash, row.state_hash, row.branch_id, 0))
        return stored_checkpoint(draft, row)

    def _payload(self, draft: CheckpointDraft, encoded: EncodedDelta) -> bytes:
        try:
            body = ormsgpack.packb([encoded.operations, encoded.returned])
            return seal_delta(self._codec, body, draft.id, draft.parent_id)
        except (TypeError, UnicodeEncodeError) as error:  # an id, a node or a returned key that is no valid text
            raise InvalidInput(f"checkpoint {draft.id!r} cannot be stored: {error}") from error

    def _base(self, draft: CheckpointDraft) -> tuple[bytes, Manifest]:
        """Return the parent's hash and manifest. A parent on another branch, far from a keyframe, gets its own.

        Otherwise each of many forks from one point would soon write a keyframe.
        """
        if draft.parent_id is None:
            return b"", EMPTY
        known = self._fresh.get(draft.parent_id) or self._cache.find(draft.parent_id)
        parent = known.row if known is not None and self._rows.checks_parent else None
        if parent is None:
            parent = self._rows.find_parent(draft.parent_id)
        if parent is None or parent.deleted:
            raise CheckpointNotFound(draft.parent_id)
        if known is not None:
            manifest = known.manifest
        else:
            manifest = self._read_manifest(draft.parent_id, parent.state_hash)
            self._remember(draft.parent_id, manifest, parent)
        if parent.branch_id != draft.branch_id and manifest.pending > _limit(manifest) // 4:
            manifest = self._ensure_keyframe(draft.parent_id, manifest)
        return parent.hash, manifest

    def _read_manifest(self, checkpoint_id: str, state_hash: bytes) -> Manifest:
        """Read a manifest and verify it: a state built on a damaged one would look intact."""
        manifest = EMPTY
        at: str | None = None
        for link in self._rows.chain(checkpoint_id):
            if link.keyframe is not None:
                manifest = EMPTY.apply(unpacked(unseal_keyframe(self._codec, link.keyframe, link.id)))
            elif link.parent_id != at or not link.payload:
                lost = link.id if link.parent_id == at else link.parent_id
                raise DamagedData(
                    f"checkpoint {checkpoint_id!r} is damaged: {lost!r}, which it builds on, has lost its content; "
                    "`wtb doctor` shows more"
                )
            else:
                body = unseal_delta(self._codec, link.payload, link.id, link.parent_id)
                manifest = manifest.apply(unpacked(body)[0], _ROW_BYTES + len(link.payload))
            at = link.id
        if manifest.root(self._codec) != state_hash:
            raise DamagedData(
                f"checkpoint {checkpoint_id!r} is damaged: its state does not match its hash; `wtb doctor` shows more"
            )
        return manifest

    def _write_keyframe(self, checkpoint_id: str, manifest: Manifest) -> Manifest:
        now_us = to_us(self._clock.now())
        addresses = {address for _, entry in manifest for address in entry.addresses}
        if addresses and self._rows.touch_blobs(addresses, now_us) < len(addresses):
            # The manifest came from the cache and names chunks that a sweep has collected meanwhile: read it again.
            manifest = self._read_manifest(checkpoint_id, manifest.root(self._codec))
        operations, blobs, sealed = manifest.keyframe(self._codec)
        if blobs:
            self._rows.put_blobs(blobs, now_us)
        keyframe = seal_keyframe(self._codec, ormsgpack.packb(operations), checkpoint_id)
        self._rows.put_keyframe(checkpoint_id, keyframe)
        return sealed

    def rebuild_keyframe(self, checkpoint_id: CheckpointId) -> None:
        """Write a keyframe from the earlier deltas; raise DamagedData if they are damaged. Tombstones need none."""
        found = self._rows.find(checkpoint_id)
        if found is not None and not found[0].deleted:
            manifest = self._read_manifest(checkpoint_id, checkpoint_of(self._codec, found[0]).state_hash)
            addresses = {address for _, entry in manifest for address in entry.addresses}
            self._read_blobs(tuple(addresses), checkpoint_id)
            self._write_keyframe(checkpoint_id, manifest)
            self._forget([checkpoint_id])

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
        manifest = self._living_manifest(checkpoint)
        operations, returned = self._delta(row, payload)
        addresses = {address for _, entry in manifest for address in entry.addresses}
        addresses |= self._encoder.returned_addresses(operations, returned)
        blobs = self._read_blobs(tuple(addresses), checkpoint_id)
        self._remember(checkpoint_id, manifest)
        decoded = self._encoder.returned(operations, returned, manifest, blobs)
        return _snapshot(checkpoint, self._encoder.state(manifest, blobs), decoded)

    def _delta(self, row: CheckpointRow, payload: bytes) -> tuple[Any, Any]:
        """Return the operations of a checkpoint and its nodes' updates, verified."""
        operations, returned = unpacked(unseal_delta(self._codec, payload, row.id, row.parent_id))
        if self._encoder.returned_digest(operations, returned) != row.returned_hash:
            raise DamagedData(
                f"checkpoint {row.id!r} is damaged: what its nodes returned does not match its hash; "
                "`wtb doctor` shows more"
            )
        return operations, returned

    def load_many(self, checkpoint_ids: Sequence[CheckpointId]) -> Iterator[Snapshot]:
        rows = {row.id: (row, payload) for row, payload in self._rows.find_many(checkpoint_ids) if not row.deleted}
        manifests: dict[str, Manifest] = {}
        deltas: dict[str, tuple[Any, Any]] = {}
        addresses: set[bytes] = set()
        for row, payload in sorted(rows.values(), key=lambda stored: stored[0].step):  # parents before children
            deltas[row.id] = self._delta(row, payload)
            operations, returned = deltas[row.id]
            manifest = self._following(row, operations, manifests)
            if manifest is not None:  # the parent's manifest names all other blobs
                addresses |= self._encoder.addresses(operations)
            else:
                manifest = self._known_manifest(row)
                addresses.update(address for _, entry in manifest for address in entry.addresses)
            manifests[row.id] = manifest
            addresses |= self._encoder.returned_addresses(operations, returned)
        blobs = self._cache.blobs(addresses, lambda missing: self._read_blobs(missing, next(iter(checkpoint_ids))))
        decoder = HistoryDecoder(self._codec, self._encoder, blobs)
        return (
            _snapshot(
                checkpoint_of(self._codec, rows[checkpoint_id][0]),
                decoder.state(manifests[checkpoint_id]),
                self._encoder.returned(*deltas[checkpoint_id], manifests[checkpoint_id], blobs),
            )
            for checkpoint_id in checkpoint_ids
            if checkpoint_id in rows
        )

    def _following(self, row: CheckpointRow, operations: Any, known: Mapping[str, Manifest]) -> Manifest | None:
        """Return the manifest that follows from the parent's; None if that is not known, or does not fit."""
        base = EMPTY if row.parent_id is None else known.get(row.parent_id)
        manifest = None if base is None else base.apply(operations)
        return manifest if manifest is not None and manifest.root(self._codec) == row.state_hash else None

    def _known_manifest(self, row: CheckpointRow) -> Manifest:
        """Return a manifest from memory, or read it."""
        cached = self._cache.find(row.id)
        if cached is not None and cached.manifest.root(self._codec) == row.state_hash:
            return cached.manifest
        manifest = self._living_manifest(checkpoint_of(self._codec, row))
        self._remember(row.id, manifest)
        return manifest

    def _living_manifest(self, checkpoint: Checkpoint) -> Manifest:
        try:
            return self._read_manifest(checkpoint.id, checkpoint.state_hash)
        except DamagedData:
            self._living(checkpoint.id)  # raises if it was deleted after its row was read: gone, not damaged
            raise

    def compare(self, old: CheckpointId, new: CheckpointId) -> tuple[dict[str, Any], dict[str, Any]]:
        one, other = self.get(old), self.get(new)
        if one.state_hash == other.state_hash:
            return {}, {}
        before, after = self._living_manifest(one), self._living_manifest(other)
        keys = before.differing(after, self._codec)
        return self._values(old, before, keys), self._values(new, after, keys)

    def _values(self, checkpoint_id: CheckpointId, manifest: Manifest, keys: Sequence[str]) -> dict[str, Any]:
        """Decode some keys, without reading the others."""
        entries = {key: entry for key in keys if (entry := manifest.find(key)) is not None}
        addresses = {address for entry in entries.values() for address in entry.addresses}
        blobs = self._read_blobs(tuple(addresses), checkpoint_id)
        return {key: self._encoder.value(entry, blobs) for key, entry in entries.items()}

    def _read_blobs(self, addresses: Sequence[bytes], checkpoint_id: str | None) -> dict[bytes, bytes]:
        if not addresses:
            return {}
        blobs = self._rows.get_blobs(addresses)
        needed = f"checkpoint {checkpoint_id!r} needs"
        for address in addresses:
            data = blobs.get(address)
            if data is None:
                raise DamagedData(f"{needed} blob {address.hex()[:16]}, which is missing; `wtb doctor` shows more")
            if self._codec.digest(data) != address:
                raise DamagedData(f"{needed} blob {address.hex()[:16]}, which is damaged; `wtb doctor` shows more")
        return blobs

    def list_infos(self, execution_id: ExecutionId) -> tuple[Checkpoint, ...]:
        rows = self._rows.list_rows(execution_id)
        return tuple([checkpoint_of(self._codec, row) for row in rows if not row.deleted])

    def each_info(self, execution_id: ExecutionId) -> Iterator[Checkpoint]:
        known: set[str] = set()
        for row in self._rows.each_row(execution_id):
            if row.parent_id is not None and row.parent_id not in known and self._rows.find(row.parent_id) is None:
                raise DamagedData(f"checkpoint {row.parent_id!r} is missing, and others follow it")
            known.add(row.id)
            yield checkpoint_of(self._codec, row)

    def load_history(self, execution_id: ExecutionId) -> ExecutionHistory:
        sources = self._sources()
        execution = sources.executions.get(execution_id)
        # Read references before their targets: the run may continue meanwhile, and each statement sees more.
        branches = sources.branches.list_branches(execution_id)
        node_runs = list(sources.node_runs.list_runs(execution_id))
        rows = {row.id: row for row in self._rows.list_rows(execution_id)}
        for checkpoint_id in {row.parent_id for row in rows.values()} | {branch.head_id for branch in branches}:
            if checkpoint_id is not None and checkpoint_id not in rows:
                rows |= {row.id: row for row in self._rows.list_ancestors(checkpoint_id)}
        for other in sorted({row.execution_id for row in rows.values()} - {execution_id}):
            node_runs += sources.node_runs.list_runs(ExecutionId(other))
        return ExecutionHistory(
            execution_id=execution_id,
            active_branch_id=execution.branch_id,
            branches=branches,
            checkpoints=tuple([checkpoint_of(self._codec, row) for row in rows.values()]),
            node_runs=tuple(node_runs),
        )

    def load_tail(self, execution_id: ExecutionId, length: int) -> ExecutionHistory:
        sources = self._sources()
        execution = sources.executions.get(execution_id)
        branch = sources.branches.get(execution.branch_id)
        rows = [] if branch.head_id is None else self._rows.list_last(branch.head_id, length)
        if len(rows) < length:
            return self.load_history(execution_id)
        checkpoints = tuple([checkpoint_of(self._codec, row) for row in rows])
        return ExecutionHistory(
            execution_id=execution_id,
            active_branch_id=branch.id,
            branches=(branch,),
            checkpoints=checkpoints,
            node_runs=sources.node_runs.list_leading_to(execution_id, checkpoints),
            complete=False,
        )

    def delete(self, checkpoint_ids: Collection[CheckpointId]) -> None:
        gone = set(checkpoint_ids)
        condemned = self._rows.condemn(gone)
        missing = gone - condemned
        heads = [] if missing else self._rows.heads_among(gone)
        if missing or heads:
            self._rows.revive(condemned)  # a caller who commits after a refusal must not delete the others
        if missing:
            raise CheckpointNotFound(", ".join(sorted(missing)))
        if heads:
            raise Conflict(
                f"checkpoint {heads[0][0]!r} is the head of a branch; resume or roll back before you delete it"
            )
        self._uproot(gone)
        self._rows.bury(gone)
        self._forget(gone)

    def delete_run(self, execution_id: ExecutionId) -> None:
        own = {row.id: row for row in self._rows.list_rows(execution_id)}
        condemned = self._rows.condemn(own)
        heads = self._rows.heads_among(own, outside=execution_id)
        if heads:
            self._rows.revive(condemned)
            raise Conflict(
                "checkpoint {!r} is the head of a fork, run {!r}; resume or delete that run first".format(*heads[0])
            )
        stumps = _with_ancestors(self._uproot(own), own)
        self._rows.bury(stumps)
        self._rows.remove(own.keys() - stumps)
        self._forget(own)

    def _forget(self, checkpoint_ids: Collection[str]) -> None:
        self._cache.forget(checkpoint_ids)
        for checkpoint_id in checkpoint_ids:
            self._fresh.pop(checkpoint_id, None)

    def _uproot(self, gone: Collection[str]) -> set[str]:
        """Write a keyframe for every remaining checkpoint that builds on one of these; return their parents here."""
        children = [child for child in self._rows.children_of(gone) if child.id not in gone]
        for child in children:
            if not child.deleted:
                self._ensure_keyframe(child.id, self._read_manifest(child.id, child.state_hash))
        return {child.parent_id for child in children if child.parent_id}

    def _ensure_keyframe(self, checkpoint_id: str, manifest: Manifest) -> Manifest:
        if self._rows.has_keyframe(checkpoint_id):
            # A cached manifest may not know about the keyframe.
            manifest = self._read_manifest(checkpoint_id, manifest.root(self._codec))
        else:
            manifest = self._write_keyframe(checkpoint_id, manifest)
        self._remember(checkpoint_id, manifest)
        return manifest


def _snapshot(checkpoint: Checkpoint, state: State, returned: dict[str, dict[str, Any]]) -> Snapshot:
    memory = returned.pop(_MEMORY, None)
    return Snapshot(checkpoint=checkpoint, state=state, returned=returned, memory=memory)


def _with_ancestors(ids: Collection[str], rows: Mapping[str, CheckpointRow]) -> set[str]:
    """Return these and all checkpoints before them."""
    found: set[str] = set()
    for start in ids:
        at = start
        while at in rows and at not in found:
            found.add(at)
            at = rows[at].parent_id or ""
    return found


def _limit(manifest: Manifest) -> int:
    return max(manifest.weight, KEYFRAME_BYTES)
