"""Importing: copies threads of LangGraph's own savers, checkpoint by checkpoint."""

from __future__ import annotations

import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from wtb.domain.errors import InvalidInput, MissingLibrary
from wtb.infrastructure.langgraph.saver.saver import StoreSaver

_PLACES = "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = {} ORDER BY checkpoint_id"
_CHECKPOINT = (
    "SELECT parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints "
    "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
)
_WRITES = (
    "SELECT task_id, channel, type, value FROM writes WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? "
    "ORDER BY {order}task_id, idx"
)

NamespacedId = tuple[str, str]
"""A namespace of a thread, and the id of a checkpoint in it."""


class Imported(NamedTuple):
    """The counts of an import."""

    threads: int
    checkpoints: int
    present: tuple[str, ...]
    """Threads that were not copied: they are here already, went on here, or have the id of a run."""


class SaverDatabase(ABC):
    """A database of another saver; checkpoints are read one at a time, because each may hold the whole history."""

    @abstractmethod
    def threads(self) -> Sequence[str]:
        """Return the ids of all threads."""

    @abstractmethod
    def places(self, thread_id: str) -> Sequence[NamespacedId]:
        """Return the namespaces and ids of the checkpoints of a thread, oldest first."""

    @abstractmethod
    def load(self, thread_id: str, place: NamespacedId) -> CheckpointTuple:
        """Return a checkpoint with the writes that follow it."""


def import_threads(address: str, saver: StoreSaver) -> Imported:
    """Copy all threads from a SqliteSaver database (a file) or a PostgresSaver database (an address)."""
    is_server = address.startswith(("postgresql://", "postgres://"))
    with _postgres(address) if is_server else _sqlite(Path(address.removeprefix("sqlite:///"))) as source:
        counts = {thread_id: _ThreadImport(source, thread_id, saver).import_missing() for thread_id in source.threads()}
    present = tuple(thread_id for thread_id, count in counts.items() if not count)
    return Imported(len(counts) - len(present), sum(counts.values()), present)


class _ThreadImport:
    """The import of one thread."""

    def __init__(self, source: SaverDatabase, thread_id: str, saver: StoreSaver) -> None:
        self._source = source
        self._id = thread_id
        self._saver = saver
        self._versions: dict[NamespacedId, dict[str, Any]] = {}

    def import_missing(self) -> int:
        """Copy the checkpoints that are missing here, and return their number.

        Some may be here from an import that was killed, or from before the thread went on there. A thread that went on
        here is left alone.
        """
        try:
            here = self._saver.places(self._id)
        except InvalidInput:  # a run has its id
            return 0
        there = self._source.places(self._id)
        if not here.issubset(there):
            return 0
        if here:  # a kill may have come before these writes; existing ones are not written twice
            self._put_writes(self._source.load(self._id, max(here, key=lambda place: place[1])))
        missing = [place for place in there if place not in here]
        for place in missing:
            self._put(place)
        return len(missing)

    def _put(self, place: NamespacedId) -> None:
        each = self._source.load(self._id, place)
        parent_id = None if each.parent_config is None else each.parent_config["configurable"]["checkpoint_id"]
        config: Any = {"configurable": {"thread_id": self._id, "checkpoint_ns": place[0]}}
        if parent_id:
            config["configurable"]["checkpoint_id"] = parent_id
        own = self._versions[place] = dict(each.checkpoint["channel_versions"])
        before = self._versions_of((place[0], parent_id)) if parent_id else {}
        new = {channel: version for channel, version in own.items() if before.get(channel) != version}
        self._saver.put(config, each.checkpoint, each.metadata, new)
        self._put_writes(each)

    def _versions_of(self, parent: NamespacedId) -> dict[str, Any]:
        if parent not in self._versions:  # imported earlier, or deleted there
            is_there = parent in self._source.places(self._id)
            found = self._source.load(self._id, parent).checkpoint["channel_versions"] if is_there else {}
            self._versions[parent] = dict(found)
        return self._versions[parent]

    def _put_writes(self, each: CheckpointTuple) -> None:
        by_task = groupby(each.pending_writes or [], key=lambda write: write[0])
        for number, (task_id, writes) in enumerate(by_task):
            values = [(channel, value) for _, channel, value in writes]
            special = [write for write in values if write[0] in WRITES_IDX_MAP]
            # The path keeps the order of the tasks: LangGraph applies their writes in it.
            for part in (special, [write for write in values if write[0] not in WRITES_IDX_MAP]):
                self._saver.put_writes(each.config, part, task_id, f"{number:06}")


@contextmanager
def _sqlite(path: Path) -> Iterator[SaverDatabase]:
    if not path.is_file():
        raise InvalidInput(
            f"{path} is not a file; give the database of a SqliteSaver, or the address of a PostgresSaver"
        )
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        try:
            yield _SqliteDatabase(connection)
        except sqlite3.Error as error:
            raise InvalidInput(f"{path} is not a database of LangGraph's SqliteSaver: {error}") from error


class _SqliteDatabase(SaverDatabase):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        columns = {row[1] for row in connection.execute("PRAGMA table_info(writes)")}
        self._writes = _WRITES.format(order="task_path, " if "task_path" in columns else "")
        self._serde = JsonPlusSerializer()

    def threads(self) -> Sequence[str]:
        return [row[0] for row in self._connection.execute("SELECT DISTINCT thread_id FROM checkpoints ORDER BY 1")]

    def places(self, thread_id: str) -> Sequence[NamespacedId]:
        return [tuple(row) for row in self._connection.execute(_PLACES.format("?"), (thread_id,))]

    def load(self, thread_id: str, place: NamespacedId) -> CheckpointTuple:
        parent_id, kind, checkpoint, metadata = self._connection.execute(_CHECKPOINT, (thread_id, *place)).fetchone()
        writes = self._connection.execute(self._writes, (thread_id, *place))
        loads = self._serde.loads_typed
        return CheckpointTuple(
            config=_config(thread_id, place[0], place[1]),
            checkpoint=loads((kind, checkpoint)),
            metadata=json.loads(metadata) if metadata else {},
            parent_config=_config(thread_id, place[0], parent_id) if parent_id else None,
            pending_writes=[(task, channel, loads((type_, value))) for task, channel, type_, value in writes],
        )


@contextmanager
def _postgres(address: str) -> Iterator[SaverDatabase]:
    try:
        from langgraph.checkpoint.postgres import PostgresSaver
    except ImportError as error:
        raise MissingLibrary(
            "to read a PostgresSaver's database: pip install langgraph-checkpoint-postgres 'psycopg[binary]'"
        ) from error
    with PostgresSaver.from_conn_string(address) as peer:
        source = _PostgresDatabase(peer)
        if not source.rows("SELECT 1 WHERE to_regclass('checkpoint_blobs') IS NOT NULL"):
            raise InvalidInput("that database has no tables of LangGraph's PostgresSaver; check the address")
        yield source


class _PostgresDatabase(SaverDatabase):
    def __init__(self, peer: Any) -> None:
        self._peer = peer

    def rows(self, query: str, *values: Any) -> list[Any]:
        with self._peer._cursor() as cursor:
            return [tuple(row.values()) for row in cursor.execute(query, values).fetchall()]

    def threads(self) -> Sequence[str]:
        return [row[0] for row in self.rows("SELECT DISTINCT thread_id FROM checkpoints ORDER BY 1")]

    def places(self, thread_id: str) -> Sequence[NamespacedId]:
        return self.rows(_PLACES.format("%s"), thread_id)

    def load(self, thread_id: str, place: NamespacedId) -> CheckpointTuple:
        found: CheckpointTuple = self._peer.get_tuple(_config(thread_id, *place))
        return found


def _config(thread_id: str, namespace: str, checkpoint_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}
