"""HostedNode: a node of a graph that WTB runs in the place of LangGraph."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs, set_config_context
from langgraph.errors import GraphInterrupt, ParentCommand
from langgraph.runtime import Runtime
from langgraph.types import Interrupt

from wtb.application.runs.engine_context import CURRENT, EngineContext
from wtb.application.runs.journal import Interruption
from wtb.application.runs.threads import in_thread
from wtb.domain.engine import Make, Runs
from wtb.domain.errors import InvalidInput
from wtb.infrastructure.langgraph.engine.callbacks import CallbackObserver
from wtb.infrastructure.langgraph.engine.graphs import RAW, may_be_async, must_be_async
from wtb.infrastructure.langgraph.engine.messages import MessageIds, MessageReading
from wtb.infrastructure.langgraph.engine.node_output import PushedWrites, as_mappings
from wtb.infrastructure.langgraph.engine.questions import CHECKPOINTER, NODE, answering, asked_by
from wtb.infrastructure.langgraph.values import StateValues

STEP = "__wtb_step"
"""The key in the configuration under which a node finds its superstep."""
_PUSH = "__pregel_push"
_SEND = "__pregel_send"
_RUNTIME = "__pregel_runtime"


class Superstep:
    """One superstep as its nodes see it."""

    def __init__(self, nodes: tuple[str, ...], make: Make, runs: Runs, taken: Callable[[], frozenset[str]]) -> None:
        self._nodes = nodes
        self.make = make
        self.runs = runs
        self.taken = taken
        """Returns the ids of the messages in the state."""

    def position(self, metadata: Mapping[str, Any]) -> int:
        """Return the position of a task among the due nodes; those that got a `Send` come first, in its order."""
        path = metadata["langgraph_path"]
        if path[0] == _PUSH:
            return int(path[1])
        return len(self._nodes) - 1 - self._nodes[::-1].index(metadata["langgraph_node"])


class _StoredInput(Mapping[str, Any]):
    """The input of a node as it would be stored; each value is converted when somebody reads it."""

    def __init__(self, given: Any, values: StateValues) -> None:
        self._given = given if type(given) is dict else {RAW: given}
        self._values = values

    def __getitem__(self, key: str) -> Any:
        return self._values.store(self._given[key], f"input {key!r}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


def restored_update(returned: Mapping[str, Any], values: StateValues) -> Any:
    """Return what a node returned, from its stored form."""
    if RAW in returned:
        return values.restore_item(returned[RAW])
    return {key: values.restore(value) for key, value in returned.items()}


class HostedNode(Runnable[Any, Any]):
    """A node that WTB runs."""

    values: StateValues

    def __init__(
        self, node: str, inner: Runnable[Any, Any], messages: Mapping[str, MessageReading], *, is_async: bool = False
    ) -> None:
        self._node = node
        self._inner = inner
        self._messages = messages
        self._is_async = may_be_async(inner) if is_async else must_be_async(inner)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        assert config is not None
        step: Superstep = config["configurable"][STEP]
        attempts = count(1)

        def call(context: EngineContext, timeout_s: float | None) -> Mapping[str, Any]:
            visit = MessageIds(self._messages, f"{self._node}/{context.run.visit}", step.taken)
            around = self._around(config, context, next(attempts))
            return self._stored(visit.update(as_mappings(self._called(input, around, context, timeout_s, step))))

        returned = step.make(step.position(config["metadata"]), _StoredInput(input, self.values), call)
        if returned is None:
            raise GraphInterrupt  # the superstep has no result, but its other nodes finish
        return restored_update(returned, self.values)  # the same result, wherever and whenever the node ran

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the node from a thread of ours: those of the loop are few, and the node may need one for a tool."""
        return await in_thread(self.invoke, input, config, **kwargs)

    def _called(
        self, input: Any, config: RunnableConfig, context: EngineContext, timeout_s: float | None, step: Superstep
    ) -> Any:
        pushed = PushedWrites()
        around: RunnableConfig = {**config, "configurable": {**config["configurable"], _SEND: pushed.take}}
        context.is_of_graph = True
        context.pass_questions()
        token = CURRENT.set(context)
        try:
            returned = step.runs.run(self._node, self._function(input, around, context), timeout_s)
            return pushed.before(returned)
        except ParentCommand as command:
            return pushed.before(replace(command.args[0], graph=None))
        except GraphInterrupt as stop:
            return self._ask(context, stop)
        finally:
            CURRENT.reset(token)

    def _around(self, config: RunnableConfig, context: EngineContext, attempt: int) -> RunnableConfig:
        """Return the configuration of an attempt; LangGraph itself knows only one attempt."""
        runtime: Runtime[Any] = config["configurable"][_RUNTIME]
        own = {CHECKPOINTER: None, _RUNTIME: runtime.patch_execution_info(node_attempt=attempt)}
        return answering(
            merge_configs(config, {"callbacks": [CallbackObserver(context)]}), context.answers(inside=NODE), **own
        )

    def _function(self, input: Any, config: RunnableConfig, context: EngineContext) -> Callable[[], Any]:
        """Return a function that calls the node with this configuration, where models and tools look for it."""

        def called() -> Any:
            with set_config_context(config) as around:
                return around.run(self._inner.invoke, input, config)

        async def awaited() -> Any:
            with set_config_context(config) as around:
                around.run(CURRENT.set, context)  # the thread of the event loop has its own context
                try:
                    return await asyncio.create_task(self._inner.ainvoke(input, config), context=around)
                except (Exception, SystemExit, Interruption):
                    await context.let_calls_end()
                    raise

        return awaited if self._is_async else called

    def _stored(self, raw: Any) -> Mapping[str, Any]:
        """Return the stored form of what a node returned."""
        where = f"what node {self._node!r} returned"
        if raw is None:
            return {}
        if type(raw) is dict and all(type(key) is str for key in raw):
            return {key: self.values.store(value, f"{where} for {key!r}") for key, value in raw.items()}
        return {RAW: self.values.store_item(raw, where)}

    def _ask(self, context: EngineContext, stop: GraphInterrupt) -> Any:
        """Pause the run with the question; the node runs again with the answer."""
        if not stop.args[0]:
            raise InvalidInput(
                f"node {self._node!r} invokes a graph that was compiled to interrupt, but the graph runs inside the "
                "node here; compile it without interrupt_before and interrupt_after, and break before or after the node"
            )
        interrupt: Interrupt = stop.args[0][0]
        schema = interrupt.response_schema if isinstance(interrupt.response_schema, Mapping) else None
        question = self.values.as_plain_data(interrupt.value, f"the question of node {self._node!r}")
        context.ask(question, schema=schema, inside=asked_by(interrupt))
        raise AssertionError(f"{question!r} has an answer, but the graph asks again")
