"""ThreadStates: the states of a thread from its stored checkpoints, without its graph and without its objects.

LangGraph computes the nodes that are due from the graph; here they follow from the channels that start nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from langchain_core.runnables import RunnableConfig

from wtb.domain.errors import CheckpointNotFound
from wtb.domain.ports import Storage
from wtb.domain.secrets import Masker
from wtb.infrastructure.langgraph.clients.plain_json import PlainValues, plain, without_empty
from wtb.infrastructure.langgraph.clients.views import CheckpointPlace, ThreadState, ThreadTask
from wtb.infrastructure.langgraph.pending_writes import PendingWrite
from wtb.infrastructure.langgraph.saver.reading import CheckpointReader, StoredCheckpoint
from wtb.infrastructure.langgraph.saver.records import SENT, is_routing
from wtb.infrastructure.langgraph.saver.threads import Thread

_START = "__start__"
_PULL, _PUSH = "__pregel_pull", "__pregel_push"
_ERROR, _INTERRUPT, _RESUME = "__error__", "__interrupt__", "__resume__"
_PULLED = re.compile(rf"~{_PULL}, (?P<node>.+)")
_PUSHED = re.compile(rf"~{_PUSH}, (?P<number>\d+)(, .*)?")
_BRANCH, _JOIN = "branch:to:", "join:"

Writes = Sequence[PendingWrite]


class ThreadStates:
    """Reads states; secrets in them are masked."""

    def __init__(self, storage: Storage, masker: Masker) -> None:
        self._storage = storage
        self._masker = masker
        self._values = PlainValues()
        self._reader = CheckpointReader(storage, self._values)

    def get(self, place: CheckpointPlace, *, subgraphs: bool = False) -> ThreadState:
        """Return the state at a checkpoint; an empty one if a thread has none yet. Raise CheckpointNotFound."""
        found = self._reader.find(_config(place))
        if found is not None:
            return self._state(found, is_current=place.id is None, subgraphs=subgraphs)
        if place.id is not None or place.namespace:
            what = place.id or f"in {place.namespace!r}"
            raise CheckpointNotFound(what, f"thread {place.thread_id!r}")
        return ThreadState(place=place)

    def history(
        self,
        place: CheckpointPlace,
        *,
        limit: int,
        before: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[ThreadState]:
        """Return the states of a thread or a subgraph, newest first."""
        end = None if before is None else _config(CheckpointPlace(thread_id=place.thread_id, id=before))
        each = self._reader.each(_config(place), filter=metadata, before=end, limit=limit)
        return [self._state(found, is_current=False, subgraphs=False) for found in each]

    def _state(self, found: StoredCheckpoint, *, is_current: bool, subgraphs: bool) -> ThreadState:
        record = found.record
        thread_id, namespace = found.thread_id, record.namespace
        stored = {key: self._values.restore(value) for key, value in found.snapshot.state.items()}
        tasks = tuple(self._tasks(found, _due(stored, record.routing), subgraphs=subgraphs))
        parent = CheckpointPlace(thread_id=thread_id, namespace=namespace, id=record.parent_id)
        return ThreadState(
            place=CheckpointPlace(thread_id=thread_id, namespace=namespace, id=record.id),
            values=self._shown({key: value for key, value in stored.items() if not key.startswith("__")}),
            next=tuple(task.name for task in tasks if not (is_current and task.result is not None)),
            tasks=tasks,
            metadata=self._shown(dict(record.metadata)),
            created_at=record.more.get("ts"),
            parent=parent if record.parent_id else None,
        )

    def _tasks(
        self, found: StoredCheckpoint, due: Sequence[tuple[str, tuple[Any, ...]]], *, subgraphs: bool
    ) -> Iterator[ThreadTask]:
        """Yield the tasks of a checkpoint. The id of a task is known once it has written something."""
        written: dict[tuple[Any, ...], list[PendingWrite]] = {}
        for write in found.writes:
            written.setdefault(_path(write.path), []).append(write)
        for name, path in due:
            own = written.get(path, [])
            id = own[0].task_id if own else str(uuid5(NAMESPACE_OID, f"{found.snapshot.checkpoint.id}{path}"))
            result = self._result(own)
            inner = self._subgraph(found, f"{name}:{id}") if own and result is None else None
            yield ThreadTask(
                id=id,
                name=name,
                path=path,
                error=next((str(self._read(each)) for each in own if each.channel == _ERROR), None),
                interrupts=tuple(self._questions(own)),
                result=result,
                checkpoint=inner,
                state=self.get(inner) if inner is not None and subgraphs else None,
            )

    def _questions(self, own: Writes) -> Iterator[Mapping[str, Any]]:
        for write in own:
            if write.channel == _INTERRUPT:
                yield from map(without_empty, self._shown(self._read(write)))

    def _result(self, own: Writes) -> Mapping[str, Any] | None:
        made = [each for each in own if each.channel not in (_ERROR, _INTERRUPT, _RESUME)]
        if not made:
            return None
        shown = [each for each in made if not each.channel.startswith("__") and not is_routing(each.channel)]
        return dict(self._shown({each.channel: self._read(each) for each in shown}))

    def _subgraph(self, found: StoredCheckpoint, place: str) -> CheckpointPlace | None:
        """Return where the subgraph of a task is, if it has checkpoints."""
        namespace = f"{found.record.namespace}|{place}" if found.record.namespace else place
        with self._storage.unit_of_work(readonly=True) as uow:
            thread = Thread.find(uow, found.thread_id)
        is_there = thread is not None and bool(thread.in_namespace(namespace))
        return CheckpointPlace(thread_id=found.thread_id, namespace=namespace) if is_there else None

    def _read(self, write: PendingWrite) -> Any:
        return plain(self._values.restore(write.value))

    def _shown(self, value: Any) -> Any:
        return self._masker.data(plain(value))


def _due(stored: Mapping[str, Any], routing: Mapping[str, Any]) -> list[tuple[str, tuple[Any, ...]]]:
    """Return the nodes that these channels start, each with the path of its task; those that got a `Send` first."""
    if any(key == _START or key.startswith(f"{_START}.") for key in stored):
        return [(_START, (_PULL, _START))]
    sent = [each[0] for each in routing.get(SENT, ()) if isinstance(each, list) and each]  # a node and its input
    pushed = [(str(node), (_PUSH, number)) for number, node in enumerate(sent)]
    branches = {name: value for name, value in routing.items() if name.startswith(_BRANCH)}
    started = {name.removeprefix(_BRANCH) for name, value in branches.items() if _is_due(value) is not False}
    joined = {
        name.rpartition(":")[2] for name, value in routing.items() if name.startswith(_JOIN) and _met(name, value)
    }
    return pushed + [(name, (_PULL, name)) for name in sorted(started | joined)]


def _met(channel: str, value: Any) -> bool:
    """Whether all sources of a join have arrived."""
    is_due = _is_due(value)
    sources = set(channel.removeprefix(_JOIN).rpartition(":")[0].split("+"))
    return sources <= set(value or ()) if is_due is None else is_due


def _is_due(value: Any) -> bool | None:
    """Return what the channel of a deferred node records beside its value; None for other channels."""
    is_pair = isinstance(value, list | tuple) and len(value) == 2
    return value[1] if is_pair and isinstance(value[1], bool) else None


def _path(text: str) -> tuple[Any, ...]:
    """Return the path of a task from its stored text."""
    if found := _PULLED.fullmatch(text):
        return (_PULL, found["node"])
    if found := _PUSHED.fullmatch(text):
        return (_PUSH, int(found["number"]))
    return (text,)


def _config(place: CheckpointPlace) -> RunnableConfig:
    own = {"thread_id": place.thread_id, "checkpoint_ns": place.namespace}
    return {"configurable": own if place.id is None else {**own, "checkpoint_id": place.id}}
