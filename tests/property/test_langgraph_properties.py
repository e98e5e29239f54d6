"""Whatever is put, written, forked and read: the saver answers as LangGraph's InMemorySaver does."""

from __future__ import annotations

import copy
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from langchain_core.messages import AIMessage
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver

from wtb.langgraph import Saver

THREADS = ("a", "b")
NAMESPACES = ("", "child:1", "child:1|deep:2")
CHANNELS = ("text", "messages", "mixed")

atoms = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5) | st.floats(allow_nan=False)
plain = st.recursive(atoms, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))
messages = st.builds(
    lambda content, id, more: AIMessage(content, id=id, additional_kwargs=more),
    st.text(max_size=5),
    st.sampled_from("12"),
    st.dictionaries(st.text(max_size=2), plain, max_size=2),
)
values = st.one_of(plain, messages, st.tuples(atoms, atoms), st.sets(st.integers(0, 9), max_size=2))
items = st.lists(values, max_size=4)


class Savers(RuleBasedStateMachine):
    """Does everything to both savers, and compares what can be read."""

    checkpoints = Bundle("checkpoints")

    @initialize()
    def open(self) -> None:
        self.ours = Saver("memory://")
        self.theirs = InMemorySaver()
        self.version = 0
        self.known: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {"": ({}, {})}

    def teardown(self) -> None:
        if hasattr(self, "ours"):
            self.ours.close()

    def _put(self, config: Any, old: dict[str, Any], versions: dict[str, Any], step: int) -> Any:
        id = str(uuid6(clock_seq=-2))
        new = {
            k: v
            for k, v in versions.items()
            if self.known[config["configurable"].get("checkpoint_id", "")][1].get(k) != v
        }
        seen = {"node": dict(list(versions.items())[:1])}
        checkpoint: Any = {
            "v": 1, "id": id, "ts": "2026-01-01T00:00:00+00:00", "channel_values": old, "channel_versions": versions,
            "versions_seen": seen, "updated_channels": None,
        }  # fmt: skip
        metadata: Any = {"source": "loop", "step": step, "parents": {}, "odd": bool(step % 2)}
        # The same objects come again and again, as in a graph that runs.
        stored: list[Any] = [
            saver.put(config, copy.copy(checkpoint), metadata, dict(new)) for saver in (self.theirs, self.ours)
        ]
        assert stored[0] == stored[1]
        self.known[id] = (old, versions)
        return stored[0]

    @rule(
        target=checkpoints,
        thread=st.sampled_from(THREADS),
        namespace=st.sampled_from(NAMESPACES),
        given=st.dictionaries(st.sampled_from(CHANNELS), values | items, max_size=3),
    )
    def begin(self, thread: str, namespace: str, given: dict[str, Any]) -> Any:
        self.version += 1
        config = {"configurable": {"thread_id": thread, "checkpoint_ns": namespace}}
        return self._put(config, dict(given), dict.fromkeys(given, self.version), 0)

    @rule(
        target=checkpoints,
        parent=checkpoints,
        channel=st.sampled_from(CHANNELS),
        value=values | items,
        step=st.integers(0, 3),
    )
    def change(self, parent: Any, channel: str, value: Any, step: int) -> Any:
        return self._changed(parent, {channel: value}, step)

    @rule(target=checkpoints, parent=checkpoints, channel=st.sampled_from(CHANNELS), more=items, at=st.integers(0, 4))
    def splice(self, parent: Any, channel: str, more: list[Any], at: int) -> Any:
        """Change a list as reducers do: the same objects, and others behind or between them."""
        held = self.known[parent["configurable"]["checkpoint_id"]][0].get(channel)
        kept = held if isinstance(held, list) else []
        return self._changed(parent, {channel: [*kept[:at], *more, *kept[at + 1 :]]}, 1)

    @rule(target=checkpoints, parent=checkpoints, channel=st.sampled_from(CHANNELS))
    def mutate(self, parent: Any, channel: str) -> Any:
        """Change a message of a list in place, and put the list again."""
        held = self.known[parent["configurable"]["checkpoint_id"]][0].get(channel)
        for item in held if isinstance(held, list) else []:
            if isinstance(item, AIMessage):
                item.content = f"{item.content}!"
            elif isinstance(item, dict):
                item["more"] = len(item)
        return self._changed(parent, {channel: held}, 1)

    @rule(target=checkpoints, parent=checkpoints, channel=st.sampled_from(CHANNELS))
    def empty(self, parent: Any, channel: str) -> Any:
        old, versions = self.known[parent["configurable"]["checkpoint_id"]]
        self.version += 1
        left = {name: value for name, value in old.items() if name != channel}
        return self._put(parent, left, {**versions, channel: self.version}, 2)

    def _changed(self, parent: Any, given: dict[str, Any], step: int) -> Any:
        old, versions = self.known[parent["configurable"]["checkpoint_id"]]
        self.version += 1
        return self._put(parent, {**old, **given}, {**versions, **dict.fromkeys(given, self.version)}, step)

    @rule(
        at=checkpoints,
        writes=st.lists(
            st.tuples(st.sampled_from((*CHANNELS, "__error__", "__interrupt__")), values | items), max_size=3
        ),
        task=st.sampled_from(("task 1", "task 2")),
        path=st.sampled_from(("", "~1")),
    )
    def write(self, at: Any, writes: list[Any], task: str, path: str) -> None:
        for saver in (self.theirs, self.ours):
            saver.put_writes(at, writes, task, path)

    @rule(at=checkpoints)
    def look(self, at: Any) -> None:
        assert _shown(self.ours.get_tuple(at)) == _shown(self.theirs.get_tuple(at))

    @rule(
        thread=st.sampled_from(THREADS),
        namespace=st.sampled_from(NAMESPACES),
        before=st.none() | checkpoints,
        limit=st.none() | st.integers(0, 3),
        odd=st.none() | st.booleans(),
    )
    def list(self, thread: str, namespace: str, before: Any, limit: int | None, odd: bool | None) -> None:
        config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": namespace}}
        wanted = None if odd is None else {"odd": odd}
        found = [
            list_(config, filter=wanted, before=before, limit=limit) for list_ in (self.ours.list, self.theirs.list)
        ]
        assert [_shown(each) for each in found[0]] == [_shown(each) for each in found[1]]

    @invariant()
    def all_stand_in_the_same_places(self) -> None:
        if not hasattr(self, "ours"):
            return
        for thread in THREADS:
            for namespace in NAMESPACES:
                config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": namespace}}
                assert _shown(self.ours.get_tuple(config)) == _shown(self.theirs.get_tuple(config))


def _shown(found: Any) -> Any:
    """Return everything of a tuple, with types: True, 1 and 1.0 are three values."""
    if found is None:
        return None
    checkpoint = {**found.checkpoint, "channel_values": dict(sorted(found.checkpoint["channel_values"].items()))}
    checkpoint = dict(sorted(checkpoint.items()))
    return repr(
        (found.config, checkpoint, dict(sorted(found.metadata.items())), found.parent_config, found.pending_writes)
    )


TestSavers = Savers.TestCase
TestSavers.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
