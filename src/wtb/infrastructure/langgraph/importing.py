"""Importing: threads of LangGraph's own savers into ours, checkpoint by checkpoint."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from wtb.domain.errors import InvalidInput
from wtb.infrastructure.langgraph.saver import StoreSaver

_CHECKPOINTS = (
    "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints "
    "WHERE thread_id = ? ORDER BY checkpoint_id"
)
_WRITES = (
    "SELECT task_id, channel, type, value FROM writes WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? "
    "ORDER BY {order}task_id, idx"
)


class Imported(NamedTuple):
    """What came of an import."""

    threads: int
    checkpoints: int
    present: tuple[str, ...]
    """Threads that were there already, and were left as they are."""


def import_threads(address: str, saver: StoreSaver) -> Imported:
    """Copy all threads of a database of SqliteSaver (a file) or PostgresSaver (an address)."""
    if address.startswith(("postgresql://", "postgres://")):
        return _imported(_from_postgres(address), saver)
    path = Path(address.removeprefix("sqlite:///"))
    if not path.is_file():
        raise InvalidInput(f"{path} is no file; give a database of SqliteSaver, or the address of one of PostgresSaver")
    return _imported(_from_sqlite(path), saver)


def _imported(threads: Iterable[tuple[str, list[CheckpointTuple]]], saver: StoreSaver) -> Imported:
    count = checkpoints = 0
    present: list[str] = []
    for thread_id, tuples in threads:
        if saver.has_thread(thread_id):
            present.append(thread_id)
            continue
        versions: dict[tuple[str, str], dict[str, Any]] = {}
        for each in sorted(tuples, key=lambda found: found.config["configurable"]["checkpoint_id"]):
            _put(saver, each, versions)
        count += 1
        checkpoints += len(tuples)
    return Imported(count, checkpoints, tuple(present))


def _put(saver: StoreSaver, each: CheckpointTuple, versions: dict[tuple[str, str], dict[str, Any]]) -> None:
    place = each.config["configurable"]
    namespace = place["checkpoint_ns"]
    parent_id = None if each.parent_config is None else each.parent_config["configurable"]["checkpoint_id"]
    config: Any = {"configurable": {"thread_id": place["thread_id"], "checkpoint_ns": namespace}}
    if parent_id:
        config["configurable"]["checkpoint_id"] = parent_id
    own = dict(each.checkpoint["channel_versions"])
    before = versions.get((namespace, parent_id or ""), {})
    new = {channel: version for channel, version in own.items() if before.get(channel) != version}
    saver.put(config, each.checkpoint, each.metadata, new)
    versions[namespace, each.checkpoint["id"]] = own
    by_task = groupby(each.pending_writes or [], key=lambda write: write[0])
    for number, (task_id, writes) in enumerate(by_task):
        values = [(channel, value) for _, channel, value in writes]
        special = [write for write in values if write[0] in WRITES_IDX_MAP]
        # A path keeps the order of the tasks, which is that in which their writes are applied.
        for part in (special, [write for write in values if write[0] not in WRITES_IDX_MAP]):
            saver.put_writes(each.config, part, task_id, f"{number:06}")


def _from_sqlite(path: Path) -> Iterator[tuple[str, list[CheckpointTuple]]]:
    serde = JsonPlusSerializer()
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        try:
            columns = {row[1] for row in connection.execute("PRAGMA table_info(writes)")}
            threads = [row[0] for row in connection.execute("SELECT DISTINCT thread_id FROM checkpoints ORDER BY 1")]
        except sqlite3.Error as error:
            raise InvalidInput(f"{path} is no database of LangGraph's SqliteSaver: {error}") from error
        query = _WRITES.format(order="task_path, " if "task_path" in columns else "")
        for thread_id in threads:
            rows = connection.execute(_CHECKPOINTS, (thread_id,)).fetchall()
            yield thread_id, [_sqlite_tuple(connection, query, serde, thread_id, row) for row in rows]


def _sqlite_tuple(connection: sqlite3.Connection, query: str, serde: Any, thread_id: str, row: Any) -> CheckpointTuple:
    namespace, checkpoint_id, parent_id, kind, checkpoint, metadata = row
    place = {"thread_id": thread_id, "checkpoint_ns": namespace}
    writes = connection.execute(query, (thread_id, namespace, checkpoint_id))
    return CheckpointTuple(
        config={"configurable": {**place, "checkpoint_id": checkpoint_id}},
        checkpoint=serde.loads_typed((kind, checkpoint)),
        metadata=json.loads(metadata) if metadata else {},
        parent_config={"configurable": {**place, "checkpoint_id": parent_id}} if parent_id else None,
        pending_writes=[(task, channel, serde.loads_typed((type_, value))) for task, channel, type_, value in writes],
    )


def _from_postgres(address: str) -> Iterator[tuple[str, list[CheckpointTuple]]]:
    try:
        from langgraph.checkpoint.postgres import PostgresSaver
    except ImportError as error:
        raise InvalidInput("reading it needs: pip install langgraph-checkpoint-postgres 'psycopg[binary]'") from error
    with PostgresSaver.from_conn_string(address) as peer:
        with peer._cursor() as cursor:
            cursor.execute("SELECT to_regclass('checkpoint_blobs') IS NOT NULL AS there")
            if not cursor.fetchone()["there"]:
                raise InvalidInput("that database holds no tables of LangGraph's PostgresSaver")
            cursor.execute("SELECT DISTINCT thread_id FROM checkpoints ORDER BY 1")
            threads = [row["thread_id"] for row in cursor.fetchall()]
        for thread_id in threads:
            yield thread_id, list(peer.list({"configurable": {"thread_id": thread_id}}))
