"""Records: what is kept of a LangGraph checkpoint beside its channel values, and where in our tables it lies.

A thread is an execution, a namespace a family of its branches, a checkpoint one of ours under the same id. What
LangGraph needs beside the values (versions, metadata) stands with what the step returned, so that the state is what
the user's channels hold and nothing else.
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

RETURNED = "langgraph"
"""Under which name the record stands among what nodes returned."""
_RECORD = "checkpoint"

UNSNAPSHOTTED = "counters_since_delta_snapshot"
"""What LangGraph's metadata calls the channels that are stored as their writes since their last value."""

MAIN = "main"
_SUBGRAPH = "subgraph "
_NUMBER = re.compile(r" ~\d+$")
_PLACE = re.compile(r"@[0-9a-f]{16}$")
SENT = "__pregel_tasks"
_INNER = ("branch:to:", "join:", SENT)
_START = "__start__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A LangGraph checkpoint without its channel values; `inner` are channels by which nodes start each other."""

    id: str
    namespace: str
    parent_id: str | None
    versions: Mapping[str, Any]
    seen: Mapping[str, Any]
    inner: Mapping[str, Any]
    metadata: Mapping[str, Any]
    more: Mapping[str, Any]
    visits: Mapping[str, int]

    def returned(self, values: ChannelValues) -> dict[str, dict[str, Any]]:
        """Return it as it is stored."""
        facts = (self.id, self.namespace, self.parent_id, self.versions, self.seen, self.visits)
        given = (self.inner, self.metadata, self.more)
        plain = packed([*facts, *given]) if values.keeps_plain else None
        if plain is not None:
            return {RETURNED: {_RECORD: plain}}
        kept = [{key: _kept(values, key, item) for key, item in each.items()} for each in given]
        return {RETURNED: {_RECORD: [*facts, *kept]}}

    @classmethod
    def of(cls, snapshot: Snapshot, values: ChannelValues) -> Record | None:
        """Return the record of a checkpoint; None of one that LangGraph did not make."""
        stored = snapshot.returned.get(RETURNED)
        if stored is None:
            return None
        id, namespace, parent_id, versions, seen, visits, *given = stored[_RECORD]
        inner, metadata, more = ({key: values.restore(item) for key, item in each.items()} for each in given)
        return cls(
            id=id,
            namespace=namespace,
            parent_id=parent_id,
            versions=versions,
            seen=seen,
            visits=visits,
            inner=inner,
            metadata=metadata,
            more=more,
        )


def _kept(values: ChannelValues, key: str, item: Any) -> Any:
    return item if values.keeps_plain and packed(item) is not None else values.foreign(item, key)


def has_record(snapshot: Snapshot) -> bool:
    """Whether LangGraph made a checkpoint."""
    return RETURNED in snapshot.returned


def is_inner(channel: str) -> bool:
    """Whether a channel only carries who runs next; such channels are no part of what a user calls the state."""
    return channel.startswith(_INNER)


def spread(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return channel values with each part of the input under a key of its own: stored once with its channel."""
    given = values.get(_START)
    if type(given) is not dict or not given or not all(type(key) is str for key in given):
        return values
    rest = {channel: value for channel, value in values.items() if channel != _START}
    return {**rest, **{f"{_START}.{key}": value for key, value in given.items()}}


def gathered(values: dict[str, Any]) -> dict[str, Any]:
    """Return what `spread` was given."""
    parts = [key for key in values if key.startswith(f"{_START}.")]
    if parts:
        values[_START] = {key.removeprefix(f"{_START}."): values.pop(key) for key in parts}
    return values


def next_nodes(inner: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the nodes that these channels start."""
    started = {name.removeprefix(_INNER[0]) for name in inner if name.startswith(_INNER[0])}
    return tuple(sorted(started.union(sent_to(inner))))


def sent_to(inner: Mapping[str, Any]) -> list[str]:
    """Return the nodes to which something was sent, each once."""
    return list(dict.fromkeys(sent.node for sent in inner.get(SENT, ()) if isinstance(sent, Send)))


def row_ids(thread_id: str, namespace: str, checkpoint_id: str) -> tuple[CheckpointId, CheckpointId]:
    """Return the ids that a LangGraph checkpoint may have here: its own, or where that is taken one with its place."""
    place = blake2b(f"{thread_id}\0{namespace}".encode(errors="surrogatepass"), digest_size=8).hexdigest()
    return CheckpointId(checkpoint_id), CheckpointId(f"{checkpoint_id}@{place}")


def langgraph_id(row_id: str) -> str:
    """Return the id that LangGraph knows a checkpoint of ours by."""
    return _PLACE.sub("", row_id)


def namespace_of(branch: Branch) -> str:
    """Return the namespace that a branch belongs to."""
    return _NUMBER.sub("", branch.name.removeprefix(_SUBGRAPH)) if branch.name.startswith(_SUBGRAPH) else ""


def branch_name(namespace: str, number: int) -> str:
    """Return the name of the branch of this number in a namespace."""
    name = f"{_SUBGRAPH}{namespace}" if namespace else MAIN
    return name if number == 1 else f"{name} ~{number}"
