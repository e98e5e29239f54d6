"""MemoryCheckpointRows: checkpoint rows, keyframes and blobs in dictionaries."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from wtb.domain.errors import AlreadyExists, CheckpointNotFound
from wtb.infrastructure.checkpoints.rows import ChainLink, CheckpointRow, ParentRow
from wtb.infrastructure.memory.pending_writes import drop_writes_after
from wtb.infrastructure.memory.tables import MemoryTransaction

StoredCheckpoint = tuple[CheckpointRow, bytes]


class MemoryCheckpointRows:
    """Rows inside one transaction."""

    checks_parent = True

    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction

    def find_parent(self, checkpoint_id: str) -> ParentRow | None:
        found = self.find(checkpoint_id)
        if found is None:
            return None
        return ParentRow(found[0].hash, found[0].state_hash, found[0].branch_id, found[0].deleted)

    def insert(self, row: CheckpointRow, payload: bytes) -> None:
        if row.parent_id is not None:
            parent = self.find(row.parent_id)
            if parent is None or parent[0].deleted:
                raise CheckpointNotFound(row.parent_id)
        named = row.name is not None and any(
            other.name == row.name and not other.deleted for other in self.list_rows(row.execution_id)
        )
        if named or self.find(row.id) is not None:
            label = f"id {row.id!r}" if row.name is None else f"id {row.id!r} or name {row.name!r}"
            raise AlreadyExists(f"run {row.execution_id!r} already has a checkpoint with {label}; choose another")
        self._transaction.put("checkpoints", row.id, (row, payload))

    def find(self, checkpoint_id: str) -> StoredCheckpoint | None:
        found: StoredCheckpoint | None = self._transaction.find("checkpoints", checkpoint_id)
        return found

    def find_many(self, checkpoint_ids: Collection[str]) -> list[StoredCheckpoint]:
        return [found for found in map(self.find, checkpoint_ids) if found is not None]

    def list_rows(self, execution_id: str) -> list[CheckpointRow]:
        rows = [row for row, _ in self._transaction.group("checkpoints", 0, execution_id)]
        return sorted(rows, key=lambda row: (row.step, row.id))

    def each_row(self, execution_id: str) -> Iterator[CheckpointRow]:
        yield from self.list_rows(execution_id)

    def list_ancestors(self, checkpoint_id: str) -> list[CheckpointRow]:
        rows: list[CheckpointRow] = []
        found = self.find(checkpoint_id)
        while found is not None:
            rows.append(found[0])
            found = self.find(found[0].parent_id) if found[0].parent_id else None
        return rows

    def list_last(self, checkpoint_id: str, length: int) -> list[CheckpointRow]:
        rows: list[CheckpointRow] = []
        found = self.find(checkpoint_id)
        while found is not None and len(rows) < length:
            rows.append(found[0])
            found = self.find(found[0].parent_id) if found[0].parent_id else None
        return rows

    def chain(self, checkpoint_id: str) -> list[ChainLink]:
        links: list[ChainLink] = []
        found = self.find(checkpoint_id)
        while found is not None:
            row, payload = found
            keyframe: bytes | None = self._transaction.find("keyframes", row.id)
            links.append(ChainLink(row.id, row.parent_id, payload, keyframe))
            found = self.find(row.parent_id) if row.parent_id and keyframe is None else None
        return links[::-1]

    def has_keyframe(self, checkpoint_id: str) -> bool:
        return self._transaction.find("keyframes", checkpoint_id) is not None

    def put_keyframe(self, checkpoint_id: str, payload: bytes) -> None:
        self._transaction.put("keyframes", checkpoint_id, payload)

    def put_blobs(self, blobs: Mapping[bytes, bytes], now_us: int) -> None:
        for address, data in blobs.items():
            self._transaction.put("blobs", address, (data, now_us))

    def touch_blobs(self, addresses: Collection[bytes], now_us: int) -> int:
        found = self.get_blobs(addresses)
        self.put_blobs(found, now_us)
        return len(found)

    def get_blobs(self, addresses: Collection[bytes]) -> dict[bytes, bytes]:
        found = ((address, self._transaction.find("blobs", address)) for address in addresses)
        return {address: stored[0] for address, stored in found if stored is not None}

    def heads_among(self, checkpoint_ids: Collection[str], *, outside: str = "") -> list[tuple[str, str]]:
        wanted = set(checkpoint_ids)
        return [
            (branch.head_id, branch.execution_id)
            for branch in self._transaction.all("branches")
            if branch.head_id in wanted and branch.execution_id != outside
        ]

    def children_of(self, checkpoint_ids: Collection[str]) -> list[CheckpointRow]:
        return [
            row
            for checkpoint_id in checkpoint_ids
            for row, _ in self._transaction.group("checkpoints", 1, checkpoint_id)
        ]

    def condemn(self, checkpoint_ids: Collection[str]) -> set[str]:
        alive = [found for found in map(self.find, checkpoint_ids) if found is not None and not found[0].deleted]
        self._mark(alive, deleted=1)
        return {row.id for row, _ in alive}

    def revive(self, checkpoint_ids: Collection[str]) -> None:
        self._mark([found for found in map(self.find, checkpoint_ids) if found is not None], deleted=0)

    def _mark(self, stored: Collection[StoredCheckpoint], *, deleted: int) -> None:
        for row, payload in stored:
            self._transaction.put("checkpoints", row.id, (row._replace(deleted=deleted), payload))

    def bury(self, checkpoint_ids: Collection[str]) -> None:
        for checkpoint_id in checkpoint_ids:
            found = self.find(checkpoint_id)
            if found is not None:
                self._transaction.put("checkpoints", checkpoint_id, (found[0], b""))
                drop_writes_after(self._transaction, found[0].execution_id, checkpoint_id)
            self._transaction.drop("keyframes", checkpoint_id)

    def remove(self, checkpoint_ids: Collection[str]) -> None:
        for checkpoint_id in checkpoint_ids:
            self._transaction.drop("checkpoints", checkpoint_id)
            self._transaction.drop("keyframes", checkpoint_id)
