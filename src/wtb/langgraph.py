"""The public module for LangGraph: run graphs with WTB, or store LangGraph's threads and open them as runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from wtb.application.runs.context import Context
from wtb.application.runs.engine_context import current
from wtb.application.tool_registry import TOOLS
from wtb.bench import Bench
from wtb.domain.errors import InvalidInput, MissingLibrary
from wtb.domain.workflow import ENGINE, WorkflowDefinition
from wtb.flow import Workflow
from wtb.infrastructure.evaluators.messages import last_message
from wtb.infrastructure.sql import schema
from wtb.settings import load_settings
from wtb.storage_bootstrap import open_database
from wtb.tools import tool_of, workspace

try:
    from langgraph.graph import StateGraph
    from langgraph.types import Command

    from wtb.infrastructure.langgraph.engine.graphs import Graph
    from wtb.infrastructure.langgraph.engine.node_output import as_mappings
    from wtb.infrastructure.langgraph.engine.tools import recorded_tool
    from wtb.infrastructure.langgraph.saver.history import history_of as history
    from wtb.infrastructure.langgraph.saver.importing import Imported, import_threads
    from wtb.infrastructure.langgraph.saver.saver import StoreSaver
    from wtb.infrastructure.state_adapters.langgraph import GraphEngine, Hosting
except ImportError as error:
    raise MissingLibrary("wtb.langgraph needs LangGraph: pip install 'workflow-test-bench[langgraph]'") from error

__all__ = [
    "GraphWorkflow",
    "Imported",
    "Saver",
    "context",
    "history",
    "import_threads",
    "last_message",
    "node_of",
    "recorded",
    "reversible",
    "workflow",
    "workspace",
]


if TYPE_CHECKING:
    from langchain_core.tools import BaseTool


class GraphWorkflow(Workflow):
    """A LangGraph graph as a workflow: its nodes can have variants and breakpoints, be rolled back and be shared."""

    def __init__(self, graph: Graph, origin: Any, version: str = "1") -> None:
        super().__init__(graph.name, version)
        self.metadata[ENGINE] = "langgraph"
        self.origin = origin
        self.break_before, self.break_after = graph.break_before, graph.break_after
        self._hosting = Hosting(graph)
        self._nodes, self._edges, self._reducers = list(graph.nodes()), list(graph.edges()), graph.reducers()

    def add_node(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: the nodes belong to the graph."""
        raise InvalidInput("add nodes to the StateGraph; its workflow can only add variants of them")

    def edge(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: the edges belong to the graph."""
        raise InvalidInput("add edges to the StateGraph; its workflow can only add variants of its nodes")

    def reducer(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: the graph's channels have their own reducers."""
        raise InvalidInput("annotate the reducer in the state of the StateGraph")

    def add_variant(
        self,
        node: str,
        name: str,
        function: Any = None,
        *,
        reads: Any = None,
        config: Any = None,
        depends_on: Sequence[Any] | None = None,
    ) -> Self:
        """Add another implementation of a node: anything `StateGraph.add_node` takes, or a function with `ctx`."""
        if reads is not None:
            raise InvalidInput("the input schema of the node says what it reads; leave out reads=")
        if isinstance(function, StateGraph):
            raise InvalidInput(f"the variant {name!r} of {node!r} is a StateGraph; compile it first")
        self._hosting.graph.check_implementation(f"variant {name!r} of node {node!r}", node, function)
        super().add_variant(
            node, name, self._hosting.graph.function_for(function), config=config, depends_on=depends_on
        )
        return self

    def _check_function(self, what: str, function: Any) -> None:
        """Accept everything: LangGraph itself reports what it cannot call."""

    def given(self, input: Any) -> Mapping[str, Any]:
        """Return the input of a run as a mapping of channels, also from a model or a dataclass."""
        if isinstance(input, Command):
            raise InvalidInput(
                "a Command cannot begin a run; when a run waits, run.resume(answer=…) answers and run.resume(update=…) "
                "sets its state"
            )
        return super().given(as_mappings(input))

    def compiled_with(self, checkpointer: StoreSaver | None) -> Any:
        """Return the user's graph, compiled with a checkpointer in place of its own: LangGraph runs it, not WTB."""
        return self._hosting.graph.compiled_with(checkpointer)

    @property
    def default_config(self) -> Mapping[str, Any]:
        """The configuration that every run of the graph gets."""
        return self._hosting.graph.config

    @property
    def default_context(self) -> Any:
        """The context that every run of the graph gets."""
        return self._hosting.graph.context

    def definition(self) -> WorkflowDefinition:
        """Return the workflow as it is now; the graph itself does not change."""
        hosting = self._hosting
        return replace(
            super().definition(),
            engine=lambda definition, runs: GraphEngine(hosting, definition, runs),
            surroundings=hosting.graph.surroundings,
            kept=hosting.kept,
            restored=hosting.restored,
        )


def workflow(
    graph: Any,
    *,
    name: str | None = None,
    version: str = "1",
    config: Mapping[str, Any] | None = None,
    context: Any = None,
    is_async: bool = False,
) -> GraphWorkflow:
    """Return a workflow that runs a StateGraph, compiled or not; every run gets `config` and `context`.

    Nodes that have both a sync and an async form are called like `invoke` does; with `is_async` they are awaited, like
    `ainvoke` does. Add variants with `.variant(node, name)`. The graph itself never changes.
    """
    known = Graph.of(graph, name=name, config=config, context=context, is_async=is_async)
    return GraphWorkflow(known, graph, version)


def node_of(graph: Any, name: str) -> Any:
    """Return a node of another graph, to use it as a variant.

    For example, an agent with another prompt:
    `flow.add_variant("model", "brief", wtb.langgraph.node_of(create_agent(model, tools, system_prompt="…"), "model"))`.
    """
    nodes = getattr(graph, "builder", graph).nodes
    if name not in nodes:
        raise InvalidInput(f"the graph has no node {name!r}; it has {', '.join(nodes)}")
    return nodes[name].runnable


def context() -> Context:
    """Return the `ctx` of the node that is running; use it in nodes of a graph, which do not get one."""
    return current()


def recorded(
    langchain_tool: BaseTool,
    *,
    effects: str = "external",
    reverse: Callable[..., Any] | None = None,
    reverse_in_doubt: bool = False,
    idempotent: bool = False,
    confirm: Callable[..., Any] | None = None,
    limit: str | None = None,
) -> BaseTool:
    """Return a LangChain tool whose calls are recorded like those of `wtb.tool`, with the same options.

    If the node runs again, it gets the recorded result. A rollback undoes the call with `reverse(call)`.
    """

    function = getattr(langchain_tool, "func", None) or getattr(langchain_tool, "coroutine", None) or langchain_tool.run
    known = tool_of(
        function,
        name=langchain_tool.name,
        effects=effects,
        reverse=reverse,
        reverse_in_doubt=reverse_in_doubt,
        idempotent=idempotent,
        confirm=confirm,
        limit=limit,
    )
    # A rollback, perhaps in another process, finds the function that undoes a call by the name of its tool.
    return recorded_tool(langchain_tool, known if reverse is None else TOOLS.add(known))


def reversible(langchain_tool: BaseTool, *, reverse: Callable[..., Any], **rules: Any) -> BaseTool:
    """Return a LangChain tool that a rollback undoes with `reverse(call)`; other options as for `recorded`."""
    return recorded(langchain_tool, reverse=reverse, **rules)


class Saver(StoreSaver):
    """A checkpointer for LangGraph: `builder.compile(checkpointer=wtb.langgraph.Saver("…"))`.

    `where` is an address (`memory://`, `sqlite:///path`, `postgresql://…`) or a Bench to share; without it, data is
    stored in the folder `.wtb` here. In an empty database the saver creates its tables. `serde` is a serialiser of your
    own, for example one that encrypts.
    """

    def __init__(self, where: str | Bench | None = None, *, serde: Any = None, **settings: Any) -> None:
        self._own = None if isinstance(where, Bench) else _opened(where, settings)
        bench = where if isinstance(where, Bench) else self._own
        assert bench is not None
        services = bench.services
        super().__init__(services.storage, clock=services.clock, ids=services.ids, serde=serde, user=services.user)

    def setup(self) -> None:
        """Do nothing: the tables exist already. It is here because programs call it on a PostgresSaver."""

    def close(self) -> None:
        """Close the connections, unless they belong to a bench that you passed."""
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)


def _opened(url: str | None, settings: dict[str, Any]) -> Bench:
    found = load_settings(url=url, **settings)
    if found.url not in (None, "memory://"):
        database = open_database(found)
        try:
            if schema.current(database) is None:
                schema.upgrade(database)
        finally:
            database.close()
    return Bench(url, **settings)
