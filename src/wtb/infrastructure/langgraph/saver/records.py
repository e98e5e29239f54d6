"""Records: the facts about a LangGraph checkpoint besides its channel values, and its place in our tables.

A thread is an execution, a namespace is a family of its branches, and a checkpoint is one of ours with the same id. The
record (versions, metadata) is stored as the memory of the step, so that the state holds only the user's channels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from langgraph.types import Send

from wtb.domain.checkpoint import Snapshot
from wtb.domain.execution import Branch
from wtb.domain.ids import CheckpointId
from wtb.infrastructure.langgraph.plain_data import packed
from wtb.infrastructure.langgraph.values import ChannelValues

_RECORD = "checkpoint"
"""The name of the record in the memory of a step."""
_EARLIER = "langgraph"
"""Earlier versions stored that memory as if a node of this name had returned it."""

UNSNAPSHOTTED = "counters_since_delta_snapshot"
"""The key in LangGraph's metadata for channels that are stored as writes since their last value."""

MAIN = "main"
_SUBGRAPH = "subgraph "
_NUMBER = re.compile(r" ~\d+$")
_PLACE = re.compile(r"@[0-9a-f]{16}$")
SENT = "__pregel_tasks"
_ROUTING = ("branch:to:", "join:", SENT)
_START = "__start__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A LangGraph checkpoint without its channel values; `routing` are the channels that start nodes."""

    id: str
    namespace: str
    parent_id: str | None
    versions: Mapping[str, Any]
    seen: Mapping[str, Any]
    routing: Mapping[str, Any]
    metadata: Mapping[str, Any]
    more: Mapping[str, Any]
    visits: Mapping[str, int]

    def memory(self, values: ChannelValues) -> dict[str, Any]:
        """Return the record as it is stored."""
        facts = (self.id, self.namespace, self.parent_id, self.versions, self.seen, self.visits)
        given = (self.routing, self.metadata, self.more)
        plain = packed([*facts, *given]) if values.keeps_plain else None
        if plain is not None:
            return {_RECORD: plain}
        stored = [{key: _stored(values, key, item) for key, item in each.items()} for each in given]
        return {_RECORD: [*facts, *stored]}

    @property
    def is_finished(self) -> bool:
        """Whether no node comes next, after a step of the graph or an update of its state."""
        is_step = self.metadata.get("source") in ("loop", "update")
        return is_step and not next_nodes(self.routing) and not any(map(_waits, self.routing.items()))

    @classmethod
    def of(cls, snapshot: Snapshot, values: ChannelValues) -> Record | None:
        """Return the record of a checkpoint; None if LangGraph did not make the checkpoint."""
        stored = _stored_record(snapshot)
        if stored is None:
            return None
        id, namespace, parent_id, versions, seen, visits, *given = stored
        routing, metadata, more = ({key: values.restore(item) for key, item in each.items()} for each in given)
        return cls(
            id=id,
            namespace=namespace,
            parent_id=parent_id,
            versions=versions,
            seen=seen,
            visits=visits,
            routing=routing,
            metadata=metadata,
            more=more,
        )


def _stored(values: ChannelValues, key: str, item: Any) -> Any:
    return item if values.keeps_plain and packed(item) is not None else values.foreign(item, key)


def has_record(snapshot: Snapshot) -> bool:
    """Whether LangGraph made a checkpoint."""
    return _stored_record(snapshot) is not None


def _stored_record(snapshot: Snapshot) -> Any:
    memory = snapshot.memory or snapshot.returned.get(_EARLIER) or {}
    return memory.get(_RECORD)


def is_routing(channel: str) -> bool:
    """Whether a channel only says which node runs next; such channels are not part of the user's state."""
    return channel.startswith(_ROUTING)


def split_input(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return channel values with each part of the input under its own key: it is stored once, with its channel."""
    given = values.get(_START)
    if type(given) is not dict or not given or not all(type(key) is str for key in given):
        return values
    rest = {channel: value for channel, value in values.items() if channel != _START}
    return {**rest, **{f"{_START}.{key}": value for key, value in given.items()}}


def joined_input(values: dict[str, Any]) -> dict[str, Any]:
    """Return the channel values that `split_input` was given."""
    parts = [key for key in values if key.startswith(f"{_START}.")]
    if parts:
        values[_START] = {key.removeprefix(f"{_START}."): values.pop(key) for key in parts}
    return values


def next_nodes(routing: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the nodes that these routing channels start."""
    started = {name.removeprefix(_ROUTING[0]) for name in routing if name.startswith(_ROUTING[0])}
    return tuple(sorted(started.union(sent_to(routing))))


def _waits(channel: tuple[str, Any]) -> bool:
    """Whether some of a join's sources have arrived; the join of a deferred node also records whether it is due."""
    name, value = channel
    heard = value[0] if type(value) in (tuple, list) and value else value
    return name.startswith(_ROUTING[1]) and bool(heard)


def sent_to(routing: Mapping[str, Any]) -> list[str]:
    """Return the nodes that get a `Send`, each once."""
    return list(dict.fromkeys(sent.node for sent in routing.get(SENT, ()) if isinstance(sent, Send)))


def row_ids(thread_id: str, namespace: str, checkpoint_id: str) -> tuple[CheckpointId, CheckpointId]:
    """Return the ids that a LangGraph checkpoint may have here: its own, or if that is taken, one with its place."""
    place = blake2b(f"{thread_id}\0{namespace}".encode(errors="surrogatepass"), digest_size=8).hexdigest()
    return CheckpointId(checkpoint_id), CheckpointId(f"{checkpoint_id}@{place}")


def langgraph_id(row_id: str) -> str:
    """Return LangGraph's id of a checkpoint of ours."""
    return _PLACE.sub("", row_id)


def namespace_of(branch: Branch) -> str:
    """Return the namespace of a branch."""
    return _NUMBER.sub("", branch.name.removeprefix(_SUBGRAPH)) if branch.name.startswith(_SUBGRAPH) else ""


def branch_name(namespace: str, number: int) -> str:
    """Return the name of a branch: the first of a namespace has no number."""
    name = f"{_SUBGRAPH}{namespace}" if namespace else MAIN
    return name if number == 1 else f"{name} ~{number}"
