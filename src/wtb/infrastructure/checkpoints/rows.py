"""Checkpoint rows: the row of a checkpoint in a table, and the port for tables of such rows."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import ormsgpack

from wtb.domain.checkpoint import Checkpoint, CheckpointDraft, Kind, Trigger
from wtb.domain.errors import DamagedData, InvalidInput, UnknownFormat
from wtb.domain.ports import Codec
from wtb.infrastructure.timestamps import from_us, to_us

FORMAT = 1
"""The version of rows, payloads and keyframes; a reader refuses unknown versions."""


class CheckpointRow(NamedTuple):
    """One row. `hash` covers the fields down to `created_at_us`, and the hashes between that field and itself."""

    id: str
    execution_id: str
    branch_id: str
    parent_id: str | None
    step: int
    node: str | None
    visit: int | None
    node_run_id: str | None
    cause: str
    kind: str
    name: str | None
    description: str
    next_nodes: str
    joins: str
    file_commit: str | None
    agent: str | None
    restore_point: int
    created_by: str | None
    created_at_us: int
    state_hash: bytes
    returned_hash: bytes
    parent_hash: bytes
    hash: bytes
    size_bytes: int
    format: int
    deleted: int


# Looking a member up by value in a dictionary takes a tenth of the time of calling the enum.
_TRIGGERS = {trigger.value: trigger for trigger in Trigger}
_KINDS = {kind.value: kind for kind in Kind}

_FACTS = CheckpointRow._fields.index("created_at_us") + 1


class ChainLink(NamedTuple):
    """One checkpoint between a keyframe and the wanted checkpoint."""

    id: str
    parent_id: str | None
    payload: bytes
    keyframe: bytes | None


class ParentRow(NamedTuple):
    """The facts that a new checkpoint needs about its parent."""

    hash: bytes
    state_hash: bytes
    branch_id: str
    deleted: int


class CheckpointRows(Protocol):
    """Checkpoint rows, blobs and keyframes, inside one transaction."""

    def find_parent(self, checkpoint_id: str) -> ParentRow | None:
        """Return the parent, and prevent its deletion until the end of the transaction."""
        ...

    @property
    def checks_parent(self) -> bool:
        """Whether `insert` itself refuses a row whose parent is deleted, so that a known parent need not be read."""
        ...

    def insert(self, row: CheckpointRow, payload: bytes) -> None:
        """Add a row; raise AlreadyExists if its id, or its name in the execution, is taken."""
        ...

    def find(self, checkpoint_id: str) -> tuple[CheckpointRow, bytes] | None:
        """Return a row with its payload."""
        ...

    def find_many(self, checkpoint_ids: Collection[str]) -> list[tuple[CheckpointRow, bytes]]:
        """Return the rows that exist, in no particular order, each with its payload."""
        ...

    def list_rows(self, execution_id: str) -> list[CheckpointRow]:
        """Return all rows of an execution, tombstones included, by step and id."""
        ...

    def each_row(self, execution_id: str) -> Iterator[CheckpointRow]:
        """Yield the same rows, few at a time."""
        ...

    def list_ancestors(self, checkpoint_id: str) -> list[CheckpointRow]:
        """Return the row and all its ancestors, in any execution."""
        ...

    def list_last(self, checkpoint_id: str, length: int) -> list[CheckpointRow]:
        """Return the row and its ancestors in any execution, newest first, at most `length` in all."""
        ...

    def chain(self, checkpoint_id: str) -> list[ChainLink]:
        """Return the links from the nearest keyframe (or the root) to this checkpoint, in that order."""
        ...

    def has_keyframe(self, checkpoint_id: str) -> bool:
        """Whether this checkpoint has a keyframe."""
        ...

    def put_keyframe(self, checkpoint_id: str, payload: bytes) -> None:
        """Store a keyframe; it replaces an older one."""
        ...

    def put_blobs(self, blobs: Mapping[bytes, bytes], now_us: int) -> None:
        """Store blobs; existing ones are marked as used now, so that no sweep deletes them."""
        ...

    def touch_blobs(self, addresses: Collection[bytes], now_us: int) -> int:
        """Mark blobs as used now; return how many of them exist."""
        ...

    def get_blobs(self, addresses: Collection[bytes]) -> dict[bytes, bytes]:
        """Return the blobs that exist."""
        ...

    def heads_among(self, checkpoint_ids: Collection[str], *, outside: str = "") -> list[tuple[str, str]]:
        """Return those that are heads of branches, each with its execution, except in execution `outside`.

        Those branches cannot change until the end of the transaction.
        """
        ...

    def children_of(self, checkpoint_ids: Collection[str]) -> list[CheckpointRow]:
        """Return the rows whose parent is among these, tombstones included, and prevent their deletion."""
        ...

    def condemn(self, checkpoint_ids: Collection[str]) -> set[str]:
        """Mark rows as deleted once no open transaction builds on them; return those that were not deleted before."""
        ...

    def revive(self, checkpoint_ids: Collection[str]) -> None:
        """Undo `condemn` of this transaction."""
        ...

    def bury(self, checkpoint_ids: Collection[str]) -> None:
        """Delete the contents of condemned rows, leaving tombstones."""
        ...

    def remove(self, checkpoint_ids: Collection[str]) -> None:
        """Remove rows altogether."""
        ...


def seal_delta(codec: Codec, body: bytes, checkpoint_id: str, parent_id: str | None) -> bytes:
    """Return the body after a checksum, which also covers the ids of the checkpoint and its parent.

    An append carries the digest of the whole list, so state hashes alone would not notice a missing delta in between.
    """
    return _checksum(codec, body, "delta", checkpoint_id, parent_id or "") + body


def unseal_delta(codec: Codec, data: bytes, checkpoint_id: str, parent_id: str | None) -> bytes:
    """Return the body of a delta, or raise DamagedData."""
    return _unsealed(data, _checksum(codec, data[16:], "delta", checkpoint_id, parent_id or ""), checkpoint_id)


def seal_keyframe(codec: Codec, body: bytes, checkpoint_id: str) -> bytes:
    """Return the body after a checksum, which also covers the id of its checkpoint."""
    return _checksum(codec, body, "keyframe", checkpoint_id) + body


def unseal_keyframe(codec: Codec, data: bytes, checkpoint_id: str) -> bytes:
    """Return the body of a keyframe, or raise DamagedData."""
    return _unsealed(data, _checksum(codec, data[16:], "keyframe", checkpoint_id), checkpoint_id)


def _checksum(codec: Codec, body: bytes, *place: str) -> bytes:
    return codec.digest("\n".join(place).encode(), b"\n", body)[:16]


def _unsealed(data: bytes, checksum: bytes, checkpoint_id: str) -> bytes:
    if data[:16] != checksum:
        raise DamagedData(
            f"checkpoint {checkpoint_id!r} is damaged: its stored bytes do not match their checksum; "
            "`wtb doctor` shows more"
        )
    return data[16:]


def unpacked(body: bytes) -> Any:
    """Return the plain lists, mappings and bytes of an unsealed payload."""
    return ormsgpack.unpackb(body)


def row_of(
    codec: Codec,
    draft: CheckpointDraft,
    *,
    state_hash: bytes,
    returned_hash: bytes,
    parent_hash: bytes,
    size: int,
) -> CheckpointRow:
    """Return the row of a new checkpoint, with its hash."""
    facts = (
        draft.id,
        draft.execution_id,
        draft.branch_id,
        draft.parent_id,
        draft.step,
        draft.node,
        draft.visit,
        draft.node_run_id,
        draft.trigger.value,
        draft.kind.value,
        draft.name,
        draft.description,
        _next_nodes_text(draft.next_nodes),
        json.dumps(draft.joins, sort_keys=True) if draft.joins else "{}",
        draft.file_commit,
        draft.agent,
        int(draft.restore_point),
        None if draft.created_by is None else str(draft.created_by),  # a text column would turn a number into text
        to_us(draft.created_at),
    )
    try:
        hashed = _chained(codec, facts, state_hash, returned_hash, parent_hash)
    except TypeError as error:  # what msgpack raises for lone surrogates and numbers beyond 64 bits
        raise InvalidInput(f"checkpoint {draft.id!r} cannot be stored: {error}") from error
    return CheckpointRow(*facts, state_hash, returned_hash, parent_hash, hashed, size, FORMAT, 0)


def _chained(codec: Codec, facts: Sequence[Any], state_hash: bytes, returned_hash: bytes, parent_hash: bytes) -> bytes:
    return codec.digest(parent_hash, state_hash, returned_hash, ormsgpack.packb(facts))


def checkpoint_of(codec: Codec, row: CheckpointRow) -> Checkpoint:
    """Return the checkpoint of a stored row, verified against its hash."""
    if row.format != FORMAT:
        raise UnknownFormat(f"checkpoint {row.id!r} has format {row.format}; this version of wtb reads {FORMAT}")
    if _chained(codec, row[:_FACTS], row.state_hash, row.returned_hash, row.parent_hash) != row.hash:
        raise DamagedData(f"checkpoint {row.id!r} is damaged: its row does not match its hash; `wtb doctor` shows more")
    return _read_checkpoint(row)


# A run repeats the same few next nodes; writing and parsing them each time would take a fifth of the time of a row.
@lru_cache(maxsize=1024)
def _next_nodes_text(nodes: tuple[str, ...]) -> str:
    return json.dumps(nodes)


@lru_cache(maxsize=1024)
def _next_nodes(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def stored_checkpoint(draft: CheckpointDraft, row: CheckpointRow) -> Checkpoint:
    """Return the checkpoint of a draft, with the fields that the store added."""
    checkpoint = object.__new__(Checkpoint)
    checkpoint.__dict__.update(
        draft.__dict__,
        state_hash=row.state_hash,
        parent_hash=row.parent_hash,
        hash=row.hash,
        size_bytes=row.size_bytes,
        deleted=False,
    )
    return checkpoint


def _read_checkpoint(row: CheckpointRow) -> Checkpoint:
    """Return the checkpoint of a verified row.

    It is filled without calling __init__: the draft was checked already, and lists of 1,000 checkpoints are common.
    """
    checkpoint = object.__new__(Checkpoint)
    checkpoint.__dict__.update(
        id=row.id,
        execution_id=row.execution_id,
        branch_id=row.branch_id,
        parent_id=row.parent_id,
        step=row.step,
        node=row.node,
        visit=row.visit,
        node_run_id=row.node_run_id,
        trigger=_TRIGGERS[row.cause],
        kind=_KINDS[row.kind],
        name=row.name,
        description=row.description,
        next_nodes=_next_nodes(row.next_nodes),
        joins={} if row.joins == "{}" else {key: tuple(value) for key, value in json.loads(row.joins).items()},
        file_commit=row.file_commit,
        agent=row.agent,
        restore_point=bool(row.restore_point),
        created_by=row.created_by,
        created_at=from_us(row.created_at_us),
        state_hash=row.state_hash,
        parent_hash=row.parent_hash,
        hash=row.hash,
        size_bytes=row.size_bytes,
        deleted=bool(row.deleted),
    )
    return checkpoint
