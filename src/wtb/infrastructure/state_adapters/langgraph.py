"""GraphEngine: drives a LangGraph graph, one superstep at a time.

LangGraph decides which nodes run, with which input, and updates the channels; WTB runs each node and stores each
checkpoint. A superstep is one invocation that starts from a checkpoint in memory and interrupts after one step.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any
from uuid import uuid4

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs, var_child_runnable_config
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.errors import EmptyInputError

from wtb.domain.engine import Advance, Make, Runs, Standpoint
from wtb.domain.errors import InvalidInput, StateNotSerialisable, WTBError
from wtb.domain.state import DELETE, Change, DeleteKey, SetValue, State, StateDelta
from wtb.domain.workflow import Node, WorkflowDefinition
from wtb.infrastructure.langgraph.engine.finished import updates_in, with_updates
from wtb.infrastructure.langgraph.engine.graphs import App, Graph
from wtb.infrastructure.langgraph.engine.hosted_node import STEP, HostedNode, Superstep, restored_update
from wtb.infrastructure.langgraph.engine.messages import MessageIds, ids_in, message_channels
from wtb.infrastructure.langgraph.engine.tools import record_tool_nodes
from wtb.infrastructure.langgraph.saver.records import SENT, is_routing
from wtb.infrastructure.langgraph.tracked_lists import LiveList
from wtb.infrastructure.langgraph.values import StateValues

_KNOWN = frozenset({"id", "channel_values", "channel_versions", "versions_seen"})
_INPUTS = StateValues()


class Hosting:
    """A graph whose nodes WTB runs, compiled once for each choice of variants."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.messages = message_channels(graph.channels)
        record_tool_nodes()
        self._compiled: dict[tuple[int, ...], tuple[Any, App, StateValues]] = {}

    def compiled(self, definition: WorkflowDefinition) -> tuple[App, StateValues]:
        """Return the graph with the nodes of a definition, and the converter for its values."""
        key = tuple(id(node.function) for node in definition.nodes)
        if key not in self._compiled:
            hosted = {node.name: self._hosted(node) for node in definition.nodes}
            app = self.graph.with_nodes(hosted, _StepSaver(None))
            home = self.graph.builder.state_schema.__module__
            values = StateValues(_saver_of(app).serde, home=home)  # this serde knows the types of the state
            for each in hosted.values():
                each.values = values
            self._compiled[key] = (definition.nodes, app, values)  # holding the nodes keeps their ids unique
        return self._compiled[key][1:]

    def kept(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an input in its stored form, with its messages and other objects."""
        return {key: _INPUTS.store(value, f"input {key!r}") for key, value in given.items()}

    def restored(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return stored channels as the nodes of the graph see them."""
        return {name: self._values.restore(value) for name, value in stored.items()}

    @cached_property
    def _values(self) -> StateValues:
        """The converter for values of all variants: the schema names the classes."""
        return self.compiled(WorkflowDefinition(name=self.graph.name, nodes=self.graph.nodes()))[1]

    def _hosted(self, node: Node) -> HostedNode:
        return HostedNode(node.name, self.graph.runnable(node), self.messages, is_async=self.graph.is_async)


class GraphEngine:
    """Drives one run of a graph."""

    has_memory = True
    hosts_functions = False

    def __init__(self, hosting: Hosting, definition: WorkflowDefinition, runs: Runs) -> None:
        self._graph = hosting.graph
        self._messages = hosting.messages
        self._app, self._values = hosting.compiled(definition)
        self._runs = runs
        self._lists: dict[str, LiveList] = {}
        self._made: State | None = None

    def begin(self, given: Mapping[str, Any]) -> Standpoint:
        saver = _StepSaver(None)
        begun = MessageIds(self._messages, "input").update(dict(given))
        try:
            nodes = self._invoked(saver, begun, Standpoint(state=State(), next_nodes=()), interrupt_before="*")
        except EmptyInputError as error:
            raise InvalidInput(f"the graph needs an input with some of {', '.join(self._keys)}") from error
        except WTBError:
            raise
        except Exception as error:  # a reducer, a validator or a router of the user's may raise anything
            reason = f"{type(error).__name__}: {error}"
            raise InvalidInput(f"the graph cannot start with this input: {reason}") from error
        if saver.metadata is None or saver.metadata["step"] < 0:
            raise _edge_asks("the start")
        saver.checkpoint = self._with_defaults(saver.checkpoint)
        state = self._state(State(), {}, saver.checkpoint)[1]
        return Standpoint(state=state, next_nodes=nodes, memory=self._memory(saver))

    def _with_defaults(self, checkpoint: Any) -> Any:
        """Return a checkpoint with the initial values of reducers: LangGraph stores only channels that were written."""
        values, versions = dict(checkpoint["channel_values"]), dict(checkpoint["channel_versions"])
        for name in self._keys:
            channel = self._graph.channels[name]
            if name not in values and channel.is_available():
                with suppress(StateNotSerialisable):
                    self._values.store(channel.checkpoint(), name)
                    values[name], versions[name] = channel.checkpoint(), 1
        return {**checkpoint, "channel_values": values, "channel_versions": versions}

    def accepted(self, update: Mapping[str, Any]) -> Mapping[str, Any]:
        unknown = [key for key in update if key not in self._keys]
        if unknown:
            raise InvalidInput(f"the graph has no channel {', '.join(unknown)}; it has {', '.join(self._keys)}")
        deleted = {key: value for key, value in update.items() if value is DELETE}
        written = {key: value for key, value in update.items() if key not in deleted}
        given = MessageIds(self._messages, f"update {uuid4()}").update(written)
        return {key: self._values.store(value, f"update of {key!r}") for key, value in given.items()} | deleted

    @property
    def _keys(self) -> list[str]:
        return [channel for channel in self._graph.channels if not _is_hidden(channel)]

    def step(self, at: Standpoint, make: Make) -> Advance | None:
        returned: dict[int, Mapping[str, Any]] = {}

        def made(position: int, state: Mapping[str, Any], call: Any) -> Mapping[str, Any] | None:
            update = make(position, state, call)
            if update is not None:
                returned[position] = update
            return update

        saver = _StepSaver(self._tuple(at))
        nodes = self._invoked(saver, None, at, made=made, interrupt_after="*")
        if saver.checkpoint is None:
            if len(returned) == len(at.next_nodes):
                raise _edge_asks(" or ".join(dict.fromkeys(at.next_nodes)))
            return None
        delta, state = self._state(at.state, at.memory["versions"], saver.checkpoint)
        return Advance(
            delta=delta,
            state=state,
            returned=tuple(returned[position] for position in range(len(at.next_nodes))),
            next_nodes=nodes,
            memory=self._memory(saver),
        )

    def with_finished(self, at: Standpoint, returned: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
        restore = self._values.restore
        sent = len(at.memory["hidden"].get(SENT, ()))

        def order(position: int) -> tuple[bool, Any]:
            """LangGraph applies writes of nodes sorted by name, then, in order, those of nodes that got a `Send`."""
            return position < sent, position if position < sent else at.next_nodes[position]

        values = {name: restore(value) for name, value in at.state.items()}
        given = [restored_update(returned[position], self._values) for position in sorted(returned, key=order)]
        return with_updates(self._graph.channels, values, [each for update in given for each in updates_in(update)])

    def _invoked(
        self, saver: _StepSaver, given: Any, at: Standpoint, *, made: Make | None = None, **interrupts: Any
    ) -> tuple[str, ...]:
        """Run the graph up to its next interrupt, and return the nodes that are due then."""
        # A node of another run may start this run: LangGraph would take this one for a part of that.
        around = var_child_runnable_config.set(None)
        try:
            return self._streamed(saver, given, at, made, interrupts)
        finally:
            var_child_runnable_config.reset(around)

    def _streamed(
        self, saver: _StepSaver, given: Any, at: Standpoint, made: Make | None, interrupts: Mapping[str, Any]
    ) -> tuple[str, ...]:
        app = copy.copy(self._app)
        app.checkpointer = saver
        config = self._config(at, None if made is None else self._step(saver, at, made))
        how: Any = {"context": self._graph.context, "stream_mode": "checkpoints", "durability": "exit", **interrupts}
        if not self._graph.is_routed_async:
            return _due(list(app.stream(given, config, **how)))

        async def awaited() -> tuple[str, ...]:
            return _due([chunk async for chunk in app.astream(given, config, **how)])

        due: tuple[str, ...] = self._runs.run(self._graph.name, awaited, None)
        return due

    def _step(self, saver: _StepSaver, at: Standpoint, made: Make) -> Superstep:
        taken = partial(ids_in, saver.values, self._messages)
        return Superstep(at.next_nodes, made, self._runs, taken)

    def _config(self, at: Standpoint, step: Superstep | None) -> RunnableConfig:
        own: Any = {"configurable": {"thread_id": at.run_id, STEP: step}, "recursion_limit": max(at.steps_left, 1)}
        given: Any = dict(self._graph.config)
        return merge_configs(given, own)

    def _tuple(self, at: Standpoint) -> CheckpointTuple:
        """Return the position as a LangGraph checkpoint."""
        memory, restore = at.memory, self._values.restore
        lists = self._lists_of(at.state)
        plain = {name: restore(value) for name, value in at.state.items() if name not in lists}
        hidden = {name: restore(value) for name, value in memory["hidden"].items()}
        values = {**plain, **{name: each.restored() for name, each in lists.items()}, **hidden}
        checkpoint: Any = {
            **{key: restore(value) for key, value in memory["more"].items()},
            "id": memory["id"],
            "channel_values": values,
            "channel_versions": {**dict.fromkeys(values, 1), **memory["versions"]},  # a person may have added some
            "versions_seen": {},
        }
        place = {"thread_id": at.run_id, "checkpoint_ns": "", "checkpoint_id": memory["id"]}
        return CheckpointTuple(
            config={"configurable": place},
            checkpoint=checkpoint,
            metadata={"source": "loop", "step": memory["step"], "parents": {}},
            parent_config=None,
            pending_writes=[],
        )

    def _lists_of(self, state: State) -> dict[str, LiveList]:
        """Return the lists of a state: those of the last step, unless the state has changed since."""
        if state is not self._made:
            found = {name: value for name, value in state.items() if type(value) is list}
            self._lists = {name: LiveList(value, self._values.restore_item) for name, value in found.items()}
            self._made = state
        return self._lists

    def _state(
        self, before: State, versions: Mapping[str, Any], checkpoint: Mapping[str, Any]
    ) -> tuple[StateDelta, State]:
        """Return the superstep's changes and the new state: channels with a new version, lists by changed parts."""
        values = {key: value for key, value in checkpoint["channel_values"].items() if not _is_hidden(key)}
        lists = self._lists_of(before)
        self._made = None  # the lists change from here on: a failure below leaves them unusable
        changes: dict[str, tuple[Change, ...]] = {}
        for channel, value in values.items():
            if channel not in before or checkpoint["channel_versions"].get(channel) != versions.get(channel):
                change = self._change(channel, value, lists)
                if change is not None:
                    changes[channel] = (change,)
        for channel in before.keys() - values.keys():
            changes[channel] = (DeleteKey(),)
            lists.pop(channel, None)
        delta = StateDelta(changes)
        self._made = before.apply(delta)
        return delta, self._made

    def _change(self, channel: str, value: Any, lists: dict[str, LiveList]) -> Change | None:
        where = f"channel {channel!r}"
        if type(value) is not list:
            lists.pop(channel, None)
            return SetValue(self._values.store(value, where))
        if channel not in lists:
            lists[channel] = LiveList(None, self._values.restore_item)
        return lists[channel].change(value, lambda item: self._values.store_item(item, where))

    def _memory(self, saver: _StepSaver) -> Mapping[str, Any]:
        """Return the data besides the state that LangGraph needs to continue.

        The versions that each node has seen are not needed, and would grow with the graph: the channel that starts a
        node of a StateGraph is empty once the node has run.
        """
        checkpoint, store = saver.checkpoint, self._values.store
        values = checkpoint["channel_values"]
        return {
            "id": checkpoint["id"],
            "step": saver.metadata["step"],
            "versions": {name: version for name, version in checkpoint["channel_versions"].items() if name in values},
            "hidden": {name: store(values[name], _place(name)) for name in values if _is_hidden(name)},
            "more": {key: store(checkpoint[key], key) for key in checkpoint if key not in _KNOWN},
        }


def _edge_asks(node: str) -> InvalidInput:
    return InvalidInput(
        f"a function that decides what follows {node} asks with interrupt(), but only nodes can wait for answers here: "
        "ask in a node, keep the answer in the state, and let the function decide by that"
    )


def _saver_of(app: App) -> BaseCheckpointSaver[Any]:
    assert isinstance(app.checkpointer, BaseCheckpointSaver)
    return app.checkpointer


def _due(chunks: Sequence[Any]) -> tuple[str, ...]:
    return tuple(chunks[-1]["next"]) if chunks else ()


def _place(channel: str) -> str:
    return "what was sent to a node" if channel == SENT else f"channel {channel!r}"


def _is_hidden(channel: str) -> bool:
    """Whether a channel is LangGraph's own: it starts nodes, or carries what was sent to them."""
    return is_routing(channel) or channel.startswith("__")


class _StepSaver(BaseCheckpointSaver[str]):
    """Holds the checkpoint that a superstep starts from, and receives the one that it ends with.

    Subgraphs have no checkpoints: a subgraph is one node, and runs as a whole.
    """

    def __init__(self, begin: CheckpointTuple | None) -> None:
        super().__init__()
        self._begin = begin
        self.checkpoint: Any = None
        self.metadata: Any = None

    @property
    def values(self) -> Mapping[str, Any]:
        """The values of the channels at the beginning."""
        return {} if self._begin is None else self._begin.checkpoint["channel_values"]

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._begin

    def put(self, config: RunnableConfig, checkpoint: Any, metadata: Any, new_versions: Any) -> RunnableConfig:
        self.checkpoint, self.metadata = checkpoint, metadata
        return {"configurable": {**config["configurable"], "checkpoint_id": checkpoint["id"]}}

    def with_allowlist(self, extra_allowlist: Any) -> _StepSaver:
        """Let the serialiser build these types too, but return this same saver, which receives the checkpoint."""
        allowing: Any = super().with_allowlist(extra_allowlist)
        self.serde = allowing.serde
        return self

    def put_writes(self, config: RunnableConfig, writes: Any, task_id: str, task_path: str = "") -> None:
        """Store nothing: WTB stores the nodes' results itself."""

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self.get_tuple(config)

    async def aput(self, config: RunnableConfig, checkpoint: Any, metadata: Any, new_versions: Any) -> RunnableConfig:
        return self.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(self, config: RunnableConfig, writes: Any, task_id: str, task_path: str = "") -> None:
        self.put_writes(config, writes, task_id, task_path)
