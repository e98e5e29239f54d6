"""Graphs: a StateGraph as a workflow of WTB, whose nodes can have variants. The user's builder is only read."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, cast

from langchain_core.runnables import Runnable, RunnableBinding, RunnableParallel, RunnableSequence
from langchain_core.runnables.config import merge_configs
from langgraph.channels import BinaryOperatorAggregate
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.managed.base import ManagedValue
from langgraph.managed.is_last_step import IsLastStepManager, RemainingStepsManager
from langgraph.pregel import Pregel
from langgraph.types import RetryPolicy as GraphRetryPolicy

from wtb.application.dependencies.values import known_as
from wtb.application.runs.engine_context import current
from wtb.domain.errors import InvalidInput
from wtb.domain.secrets import masked_logger
from wtb.domain.workflow import Edge, Node, RetryPolicy
from wtb.infrastructure.langgraph.engine.channels import stored_whole
from wtb.infrastructure.langgraph.saver.saver import StoreSaver

_log = masked_logger(__name__)

RAW = "__returned__"
"""The key of a value that a node returned alone, not in a mapping: a Command, an object."""


App = CompiledStateGraph[Any, Any, Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The user's graph, and the arguments of every invocation."""

    builder: StateGraph[Any, Any, Any, Any]
    original: StateGraph[Any, Any, Any, Any]
    """The user's own builder; `builder` is a copy with what WTB needs."""
    name: str
    compiled: App | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    context: Any = None
    is_async: bool = False
    """Whether nodes that can be called and awaited are awaited."""
    _known: dict[int, tuple[Any, Runnable[Any, Any]]] = field(default_factory=dict)
    """The runnable of each node, by the id of the function that represents its code."""

    @classmethod
    def of(
        cls,
        graph: Any,
        *,
        name: str | None = None,
        config: Mapping[str, Any] | None = None,
        context: Any = None,
        is_async: bool = False,
    ) -> Graph:
        """Take a StateGraph, compiled or not; raise InvalidInput that says what to change if WTB cannot run it."""
        builder = graph.builder if isinstance(graph, CompiledStateGraph) else graph
        if not isinstance(builder, StateGraph):
            raise InvalidInput(
                f"a {type(graph).__name__} is not a StateGraph; {_INSTEAD.get(_kind(graph), _OTHERWISE)}"
            )
        compiled = graph if isinstance(graph, CompiledStateGraph) else None
        original, builder = builder, _with_defaults(builder)
        faults = [*_compiled_faults(compiled), *_node_faults(builder), *_channel_faults(builder)]
        if faults:
            raise InvalidInput(f"WTB cannot run this graph: {'; '.join(faults)}")
        name = name or (None if compiled is None or compiled.name == "LangGraph" else compiled.name) or "graph"
        _note_checkpointer(name, compiled)
        return cls(
            builder=builder,
            original=original,
            name=name,
            compiled=compiled,
            config=merge_configs(compiled.config if compiled is not None else None, cast("Any", config)),
            context=context,
            is_async=is_async,
        )

    @property
    def break_before(self) -> tuple[str, ...]:
        """The nodes before which it was compiled to interrupt."""
        return () if self.compiled is None else self._names(self.compiled.interrupt_before_nodes)

    @property
    def break_after(self) -> tuple[str, ...]:
        """The nodes after which it was compiled to interrupt."""
        return () if self.compiled is None else self._names(self.compiled.interrupt_after_nodes)

    def _names(self, nodes: Any) -> tuple[str, ...]:
        return tuple(self.builder.nodes) if nodes == "*" else tuple(nodes)

    def nodes(self) -> tuple[Node, ...]:
        """Return its nodes as nodes of WTB, with their retries, timeouts and code.

        A graph with a LangGraph store shares no results: sharing one would not repeat the node's changes to the store.
        """
        return tuple(
            Node(
                name=name,
                function=self.function_for(spec.runnable),
                retry=_retry(spec.retry_policy),
                timeout_s=_seconds(spec.timeout),
                cache=self._store is None,
            )
            for name, spec in self.builder.nodes.items()
        )

    @property
    def _store(self) -> Any:
        return None if self.compiled is None else self.compiled.store

    def edges(self) -> tuple[Edge, ...]:
        """Return its edges, for people and for comparisons; LangGraph itself follows them."""
        plain = [Edge(sources=(a,), target=b) for a, b in sorted(self.builder.edges)]
        joins = [Edge(sources=tuple(sorted(a)), target=b) for a, b in sorted(self.builder.waiting_edges)]
        return (*plain, *joins, *self._branches())

    def _branches(self) -> Iterator[Edge]:
        anywhere = (*self.builder.nodes, END)
        for source, branches in self.builder.branches.items():
            for branch in branches.values():
                for target in anywhere if branch.ends is None else sorted(set(branch.ends.values())):
                    yield Edge(sources=(source,), target=target, when=function_of(branch.path))

    def reducers(self) -> dict[str, Callable[..., Any]]:
        """Return the reducers of its channels, for comparisons; LangGraph itself applies them."""
        channels = self.builder.channels
        return {name: each.operator for name, each in channels.items() if isinstance(each, BinaryOperatorAggregate)}

    @property
    def surroundings(self) -> Mapping[str, Any]:
        """Everything that results depend on besides the state and the nodes."""
        return {"context": self.context, "config": dict(self.config), "schema": self.builder.state_schema}

    def with_nodes(self, runnables: Mapping[str, Runnable[Any, Any]], checkpointer: BaseCheckpointSaver[Any]) -> App:
        """Return the graph, compiled with these in place of its nodes; WTB does the retries, timeouts and caching."""
        builder = copy.copy(self.builder)
        builder.nodes = {
            name: replace(spec, runnable=runnables[name], retry_policy=None, cache_policy=None, timeout=None)
            for name, spec in self.builder.nodes.items()
        }
        builder.managed = {name: _MANAGED.get(kind, kind) for name, kind in self.builder.managed.items()}
        return builder.compile(checkpointer, store=self._store, name=self.name)

    def compiled_with(self, checkpointer: BaseCheckpointSaver[Any] | None) -> App:
        """Return the user's graph as it is, compiled with another checkpointer."""
        if self.compiled is None:
            return self.original.compile(checkpointer, name=self.name)
        return self.original.compile(
            checkpointer,
            store=self.compiled.store,
            cache=self.compiled.cache,
            interrupt_before=list(self.break_before),
            interrupt_after=list(self.break_after),
            name=self.name,
        )

    def runnable(self, node: Node) -> Runnable[Any, Any]:
        """Return the runnable of a node or of one of its variants."""
        known = self._known.get(id(node.function))
        return self._coerced(node) if known is None else known[1]

    def function_for(self, implementation: Any) -> Any:
        """Return the function that represents the code of a node's implementation."""
        if not isinstance(implementation, Runnable):
            return implementation
        function = function_of(implementation)
        self._known[id(function)] = (function, implementation)
        return function

    def check_implementation(self, what: str, node: str, implementation: Any) -> None:
        """Raise InvalidInput for a node that the graph does not have, or for what LangGraph cannot call as a node."""
        if node not in self.builder.nodes:
            raise InvalidInput(f"{what}: the graph has no node {node!r}; it has {', '.join(self.builder.nodes)}")
        if implementation is None or isinstance(implementation, Runnable):
            return
        if inspect.isclass(implementation) or not callable(implementation):
            raise InvalidInput(f"{what} is {implementation!r}; give a function, a tool node or a compiled graph")
        try:
            parameters = inspect.signature(implementation).parameters
        except (TypeError, ValueError):
            return
        if not parameters:
            raise InvalidInput(f"{what}: its function takes no arguments; a node takes (state)")

    def _coerced(self, node: Node) -> Runnable[Any, Any]:
        """Return the runnable that LangGraph makes of a function."""
        scratch: StateGraph[Any, Any, Any, Any] = StateGraph(self.builder.state_schema, self.builder.context_schema)
        scratch.add_node(node.name, _without_context(node.function))
        return scratch.nodes[node.name].runnable  # type: ignore[return-value]

    @property
    def channels(self) -> Mapping[str, Any]:
        """The channels of its state."""
        return self.builder.channels

    @property
    def is_routed_async(self) -> bool:
        """Whether a routing function can only be awaited."""
        return _is_routed_async(self.builder)


def _with_defaults(builder: StateGraph[Any, Any, Any, Any]) -> StateGraph[Any, Any, Any, Any]:
    """Return a graph whose nodes have their defaults (`set_node_defaults`), as `compile` would apply them.

    The value of every channel is in every checkpoint, because every step begins from one.
    """
    defaults = builder._node_defaults
    settled = copy.copy(builder)
    settled.channels = {name: stored_whole(channel) for name, channel in builder.channels.items()}
    settled._node_defaults = replace(defaults, retry_policy=None, cache_policy=None, timeout=None)
    settled.nodes = {
        name: replace(
            spec,
            retry_policy=defaults.retry_policy if spec.retry_policy is None else spec.retry_policy,
            timeout=defaults.timeout if spec.timeout is None else spec.timeout,
        )
        for name, spec in builder.nodes.items()
    }
    return settled


def _without_context(function: Any) -> Any:
    """Return a function that needs only a state; nodes written for WTB, and mocks, also take `ctx`."""
    try:
        takes_context = "ctx" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        takes_context = False
    if not takes_context:
        return function
    if inspect.iscoroutinefunction(function):

        async def awaited(state: Any) -> Any:
            return _given(await function(state, ctx=current()))

        return awaited
    return lambda state: _given(function(state, ctx=current()))


def _given(returned: Any) -> Any:
    """Return a mock's result; an object that was recorded alone is under the key RAW."""
    return returned[RAW] if type(returned) is dict and RAW in returned else returned


class Nested:
    """A graph as a node of another; its nodes, edges and channels represent its code."""

    def __init__(self, graph: App) -> None:
        builder = graph.builder
        reducers = {name: getattr(stored_whole(each), "operator", None) for name, each in builder.channels.items()}
        self.nodes = tuple((name, function_of(spec.runnable), spec.defer) for name, spec in builder.nodes.items())
        joins = [(*sorted(before), after) for before, after in builder.waiting_edges]
        self.edges = (*sorted(builder.edges), *sorted(joins))
        self.routes = tuple(function_of(path) for path in _paths(builder))
        self.reducers = tuple(sorted(reducers.items(), key=lambda each: each[0]))
        self.configured = dict((graph.config or {}).get("configurable", {}))

    def __call__(self, state: Any) -> Any:
        """Never called: LangGraph runs the graph."""
        raise NotImplementedError


@known_as(CompiledStateGraph)
def _of_graph(graph: App) -> Any:
    """Return the code of a graph that a function has captured, or that a chain holds."""
    return Nested(graph)


@known_as(Nested)
def _of_nested(nested: Nested) -> Any:
    """Return the nodes, edges and channels that represent a graph's code."""
    return vars(nested)


@known_as(Runnable)
def _of_runnable(runnable: Runnable[Any, Any]) -> Any:
    """Return the function in a runnable; chains and models have none, and their fields count instead."""
    return vars(runnable).get("func") or vars(runnable).get("afunc")


def function_of(runnable: Any) -> Callable[..., Any]:
    """Return the function that a node was made from, which represents its code; the runnable if there is none."""
    if isinstance(runnable, CompiledStateGraph):
        return Nested(runnable)
    if isinstance(runnable, RunnableBinding):  # what it binds counts too
        return runnable  # type: ignore[return-value]
    return getattr(runnable, "func", None) or getattr(runnable, "afunc", None) or runnable  # type: ignore[no-any-return]


def must_be_async(runnable: Any) -> bool:
    """Whether a runnable can only be awaited: an async function, or a graph, tools or a chain with one."""
    if isinstance(runnable, CompiledStateGraph):
        inner = runnable.builder
        return _is_routed_async(inner) or any(must_be_async(spec.runnable) for spec in inner.nodes.values())
    tools = getattr(runnable, "tools_by_name", None)
    if isinstance(tools, dict):
        return any(getattr(tool, "func", True) is None for tool in tools.values())
    if isinstance(runnable, RunnableBinding):
        return must_be_async(runnable.bound)
    if isinstance(runnable, RunnableSequence | RunnableParallel):
        steps = runnable.steps if isinstance(runnable, RunnableSequence) else list(runnable.steps__.values())
        return any(must_be_async(step) for step in steps)
    return getattr(runnable, "func", None) is None and getattr(runnable, "afunc", None) is not None


def may_be_async(runnable: Any) -> bool:
    """Whether a runnable has an async form of its own, not only a sync function to call in another thread."""
    return getattr(runnable, "func", None) is None or getattr(runnable, "afunc", None) is not None


def _paths(builder: StateGraph[Any, Any, Any, Any]) -> Iterator[Any]:
    return (branch.path for branches in builder.branches.values() for branch in branches.values())


def _is_routed_async(builder: StateGraph[Any, Any, Any, Any]) -> bool:
    return any(must_be_async(path) for path in _paths(builder))


class _StepsLeft(ManagedValue[int]):
    """The number of steps that may follow. LangGraph would count within the invocation, which is one superstep here."""

    @staticmethod
    def get(scratchpad: Any) -> int:
        return int(scratchpad.stop - scratchpad.step - 2)


class _IsLast(ManagedValue[bool]):
    """Whether this is the last step by LangGraph's definition: the one before the limit."""

    @staticmethod
    def get(scratchpad: Any) -> bool:
        return _StepsLeft.get(scratchpad) == 1


_MANAGED: Mapping[Any, Any] = {RemainingStepsManager: _StepsLeft, IsLastStepManager: _IsLast}


def _kind(graph: Any) -> str:
    return "pregel" if isinstance(graph, Pregel) else ""


_OTHERWISE = "give a StateGraph, or the result of its compile()"
_INSTEAD = {"pregel": "the functional API (@entrypoint) is not supported: write it as a StateGraph"}


def _note_checkpointer(name: str, compiled: App | None) -> None:
    """Say that a graph runs without the checkpointer that it was compiled with."""
    saver = None if compiled is None else compiled.checkpointer
    if isinstance(saver, BaseCheckpointSaver) and not isinstance(saver, StoreSaver):
        _log.warning(
            "graph %s was compiled with the checkpointer %s: WTB runs it without that one and stores the checkpoints "
            "itself. The threads in it stay as they are; `wtb import langgraph` imports them",
            name,
            type(saver).__name__,
        )


def _compiled_faults(compiled: App | None) -> Iterator[str]:
    changed = set() if compiled is None else ({*compiled.nodes} - {START}) ^ {*compiled.builder.nodes}
    if changed:
        yield f"{', '.join(sorted(changed))} was added or removed after it was compiled; compile it again"


def _node_faults(builder: StateGraph[Any, Any, Any, Any]) -> Iterator[str]:
    if not builder.nodes:
        yield "it has no nodes"
        return
    if builder._node_defaults.error_handler is not None:
        yield "every node has an error handler by default; catch errors in the nodes, or give them a retry policy"
    for name, spec in builder.nodes.items():
        if spec.is_error_handler or spec.error_handler_node is not None:
            yield f"node {name!r} has an error handler; catch the error in the node, or give the node a retry policy"
        if spec.timeout is not None and spec.timeout.idle_timeout is not None:
            yield f"node {name!r} has an idle_timeout; give it a run_timeout"
        if not isinstance(spec.retry_policy, GraphRetryPolicy | None) and len(spec.retry_policy) > 1:
            yield f"node {name!r} has several retry policies; give it one whose retry_on names all the errors"
        if isinstance(spec.runnable, CompiledStateGraph):
            yield from _nested_faults(name, spec.runnable)
    try:
        copy.copy(builder).validate()  # a copy, because validating marks the builder as compiled
    except ValueError as error:
        yield str(error)


def _nested_faults(path: str, graph: App) -> Iterator[str]:
    if graph.checkpointer:
        yield (
            f"the subgraph {path!r} was compiled with a checkpointer, but it runs as one node here, which forgets "
            "everything between two visits; compile it without one, and keep what it must remember in the state"
        )
    if graph.interrupt_before_nodes or graph.interrupt_after_nodes:
        yield f"the subgraph {path!r} was compiled to interrupt, but it runs as one node here; break before or after it"
    for name, spec in graph.builder.nodes.items():
        if isinstance(spec.runnable, CompiledStateGraph):
            yield from _nested_faults(f"{path}/{name}", spec.runnable)


def _channel_faults(builder: StateGraph[Any, Any, Any, Any]) -> Iterator[str]:
    if "__root__" in builder.channels:
        yield "its state is a single value; give it a schema with named keys"


def _retry(policies: GraphRetryPolicy | Sequence[GraphRetryPolicy] | None) -> RetryPolicy | None:
    if policies is None:
        return None
    policy = policies if isinstance(policies, GraphRetryPolicy) else next(iter(policies), None)
    if policy is None:
        return None
    return RetryPolicy(
        times=policy.max_attempts,
        wait_s=policy.initial_interval,
        backoff=policy.backoff_factor,
        max_wait_s=policy.max_interval,
        jitter=0.5 if policy.jitter else 0.0,
        when=_matches(policy.retry_on),
    )


def _matches(retry_on: Any) -> Callable[[Exception], bool]:
    if isinstance(retry_on, type):
        return lambda error: isinstance(error, retry_on)
    if isinstance(retry_on, Sequence):
        return lambda error: isinstance(error, tuple(retry_on))
    return retry_on  # type: ignore[no-any-return]


def _seconds(policy: Any) -> float | None:
    limit = None if policy is None else policy.run_timeout
    return limit.total_seconds() if isinstance(limit, timedelta) else limit
