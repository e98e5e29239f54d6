"""WorkflowDefinition: the frozen nodes, edges and reducers of a workflow; all faults are reported at once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from wtb.domain.amounts import is_positive
from wtb.domain.environment import EnvironmentConfig
from wtb.domain.errors import InvalidCondition, InvalidInput, InvalidWorkflow
from wtb.domain.execution import THREAD
from wtb.domain.state import Reducer
from wtb.domain.tool_answers import ToolAnswer

if TYPE_CHECKING:
    from wtb.domain.engine import Engine, Runs
    from wtb.domain.ports import Conditions

END = "__end__"
"""The target of an edge that ends the run."""

ENGINE = "engine"
"""The metadata key that names the library driving the workflow, if that is not WTB."""

NodeFunction = Callable[..., Any]
Condition = str | Callable[..., Any]

_RESERVED = "#@:/"


def names_of(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return names as a tuple; a text is one name, not its characters."""
    return (names,) if isinstance(names, str) else tuple(names)


def _are_names(names: object) -> bool:
    return isinstance(names, tuple | list) and all(isinstance(name, str) for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How many times a node is tried, how long to wait between tries, and after which errors.

    `errors` holds names of exception classes, for example `ValueError` or `httpx.HTTPError`; empty means all. `when` is
    a function of the exception that decides instead. Waits begin with `wait_s`, grow by the factor `backoff` up to
    `max_wait_s`, and vary by the share `jitter`.
    """

    times: int = 3
    wait_s: float = 0.5
    backoff: float = 2.0
    max_wait_s: float = 30.0
    jitter: float = 0.1
    errors: tuple[str, ...] = ()
    when: Callable[[Exception], bool] | None = field(default=None, compare=False)
    """Decides instead of `errors`. It is a function, so a workflow as data does not include it."""

    def faults(self) -> Iterator[str]:
        """Raise InvalidInput if the figures make no sense."""
        if self.times < 1:
            yield f"retry times must be at least 1, not {self.times}"
        if not _are_names(self.errors):
            yield f"retry errors are a list of names, such as ['TimeoutError'], not {self.errors!r}"
        if self.wait_s < 0 or self.max_wait_s < 0 or self.backoff < 1 or not 0 <= self.jitter <= 1:
            yield "retry waits must not be negative, backoff at least 1, jitter between 0 and 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One step of a workflow.

    `function` is what runs; `reference` says where it comes from (`module:function`, or the name of a
    registered tool), so that the definition can be written down and read back in another process.
    `reads` names the only keys that the node sees; None means all.
    """

    name: str
    function: NodeFunction | None = field(default=None, compare=False)
    reference: str | None = None
    start: bool = False
    reads: tuple[str, ...] | None = None
    cache: bool = True
    retry: RetryPolicy | None = None
    timeout_s: float | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    depends_on: tuple[Any, ...] = ()
    """Dependencies that WTB cannot see: patterns of files, `env:NAME`, or values."""
    environment: EnvironmentConfig | None = None
    """Where its function runs; None means in the process of the run."""
    variant: str = "baseline"
    """Which implementation this is: the node's own, or one of its variants."""
    original: Node | None = field(default=None, compare=False, repr=False)
    """The node before a variant replaced it; None if no variant has."""

    def faults(self) -> Iterator[str]:
        """Yield the faults of this node, without looking at the others."""
        if not _is_node_name(self.name):
            reserved = f"white space, {' '.join(_RESERVED)} and {END} are reserved"
            yield f"a node cannot be called {self.name!r}: {reserved}"
        if self.function is None and self.reference is None:
            yield f"node {self.name!r} has neither a function nor a reference to one"
        if self.timeout_s is not None and not is_positive(self.timeout_s):
            yield f"node {self.name!r}: timeout_s must be positive and finite, not {self.timeout_s!r}"
        if self.retry is not None:
            yield from (f"node {self.name!r}: {fault}" for fault in self.retry.faults())
        if self.environment is not None:
            yield from (f"node {self.name!r}: {fault}" for fault in self.environment.faults())


def _is_node_name(name: object) -> bool:
    if not isinstance(name, str) or name in ("", END):
        return False
    return name.isprintable() and not any(char in _RESERVED or char.isspace() for char in name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Another implementation of a node, which keeps its place: edges, retries and timeouts stay as they are.

    `config` is laid over that of the node; without a function or reference it is the node's own, configured
    otherwise. `reads` replaces what the node may see, when it is given.
    """

    node: str
    name: str
    function: NodeFunction | None = field(default=None, compare=False)
    reference: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    reads: tuple[str, ...] | None = None
    depends_on: tuple[Any, ...] | None = None

    def applied_to(self, node: Node) -> Node:
        """Return the node with this implementation instead of its current one."""
        own = self.function is None and self.reference is None
        node = node.original or node
        return replace(
            node,
            original=node,
            variant=self.name,
            function=node.function if own else self.function,
            reference=node.reference if own else self.reference,
            config={**node.config, **self.config},
            reads=node.reads if self.reads is None else self.reads,
            depends_on=node.depends_on if self.depends_on is None else self.depends_on,
        )


BASELINE = "baseline"
"""The variant name of a node's own implementation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The way to the next node: plain, conditional (`when`), `otherwise`, or a join of several sources."""

    sources: tuple[str, ...]
    target: str
    when: Condition | None = None
    otherwise: bool = False
    priority: int = 0

    @property
    def is_join(self) -> bool:
        """Whether the target waits for several sources."""
        return len(self.sources) > 1

    @property
    def is_plain(self) -> bool:
        """Whether the edge is always followed."""
        return self.when is None and not self.otherwise

    def __str__(self) -> str:
        source = self.sources[0] if len(self.sources) == 1 else f"[{', '.join(map(str, self.sources))}]"
        return f"{source} -> {self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowDefinition:
    """A workflow that can be checked, stored, compared and run; it is immutable."""

    name: str
    version: str = "1"
    description: str = ""
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()
    reducers: Mapping[str, Reducer] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    variants: tuple[Variant, ...] = ()
    imports: tuple[str, ...] = ()
    """Modules to import for a workflow that is read from data: they register the tools that its nodes name."""
    engine: Callable[[WorkflowDefinition, Runs], Engine] | None = field(default=None, compare=False)
    """Builds the engine, with variants in place, if another library drives the workflow and owns edges and reducers."""
    surroundings: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Values besides state and config that nodes see and their results depend on; not part of the workflow as data."""
    kept: Callable[[Mapping[str, Any]], Mapping[str, Any]] = field(default=dict, compare=False)
    """Returns an input in the form that is stored; needed if only another library can write its objects."""
    restored: Callable[[Mapping[str, Any]], dict[str, Any]] | None = field(default=None, compare=False)
    """Turns a stored state into what nodes see, if only another library can; None if nodes see the stored state."""
    tools: Mapping[str, ToolAnswer] = field(default_factory=dict, compare=False)
    """Stand-ins that answer calls, by tool name; a tool that is not listed answers for itself."""

    def with_variants(self, chosen: Mapping[str, str]) -> WorkflowDefinition:
        """Return the workflow with these variants in place of their nodes; this one does not change.

        The variant `baseline` is the node's own implementation: it undoes another. Nodes that are not named stay.
        """
        by_name = {(variant.node, variant.name): variant for variant in self.variants}
        faults = [self._unknown_variant(node, name) for node, name in chosen.items() if not self._has(node, name)]
        if faults:
            raise InvalidInput("; ".join(faults))

        def implemented(node: Node) -> Node:
            if node.name not in chosen:
                return node
            name = chosen[node.name]
            return (node.original or node) if name == BASELINE else by_name[node.name, name].applied_to(node)

        return replace(self, nodes=tuple(map(implemented, self.nodes)))

    def _has(self, node: str, name: str) -> bool:
        return any(each.name == node for each in self.nodes) and (
            name == BASELINE or any((each.node, each.name) == (node, name) for each in self.variants)
        )

    def _unknown_variant(self, node: str, name: str) -> str:
        if all(each.name != node for each in self.nodes):
            return f"there is no node {node!r}; nodes are {', '.join(each.name for each in self.nodes)}"
        known = [BASELINE, *(each.name for each in self.variants if each.node == node)]
        return f"node {node!r} has no variant {name!r}; it has {', '.join(known)}"

    def node(self, name: str) -> Node:
        """Return the node with this name, which must exist."""
        return next(node for node in self.nodes if node.name == name)

    @property
    def start(self) -> Node:
        """The entry point of a valid definition."""
        return next(node for node in self.nodes if node.start)

    def validate(self, conditions: Conditions | None = None) -> None:
        """Raise InvalidWorkflow with all faults; conditions are parsed when a language is given."""
        faults = [*self._name_faults(), *self._variant_faults()]
        if self.engine is None:
            faults += [*self._entry_faults(), *self._edge_faults(), *self._routing_faults(), *self._reach_faults()]
            faults += _condition_faults(self.edges, conditions)
        if faults:
            raise InvalidWorkflow(self.name, faults)

    def _name_faults(self) -> Iterator[str]:
        if not self.name:
            yield "a workflow needs a name"
        if self.name == THREAD:
            yield f"the name {THREAD!r} is reserved for threads that LangGraph drives; choose another"
        if not self.nodes:
            yield "a workflow needs at least one node"
        for node in self.nodes:
            yield from node.faults()
        for name, count in Counter(node.name for node in self.nodes).items():
            if count > 1:
                notebook = "in a notebook, first run the cell again that creates the workflow"
                yield f"{count} nodes are called {name!r}; names must be unique ({notebook})"

    def _entry_faults(self) -> Iterator[str]:
        starts = [node.name for node in self.nodes if node.start]
        if self.nodes and not starts:
            yield "no entry: mark the first node with start=True"
        if len(starts) > 1:
            yield f"several entries: {', '.join(starts)}; mark one node with start=True"

    def _variant_faults(self) -> Iterator[str]:
        names = {node.name for node in self.nodes}
        for variant in self.variants:
            label = f"variant {variant.name!r} of node {variant.node!r}"
            if variant.node not in names:
                yield f"{label}: there is no such node"
            if variant.name == BASELINE or not _is_node_name(variant.name):
                reserved = f"white space and {' '.join(_RESERVED)} are reserved"
                yield f"{label}: choose another name; {BASELINE} means the node itself, {reserved}"
        for (node, name), count in Counter((each.node, each.name) for each in self.variants).items():
            if count > 1:
                yield f"node {node!r} has {count} variants called {name!r}; names must be unique"

    def _edge_faults(self) -> Iterator[str]:
        names = {node.name for node in self.nodes}
        for edge in self.edges:
            if not edge.sources:
                yield f"edge to {edge.target!r} has no source"
            for source in edge.sources:
                if source not in names:
                    yield f"edge {edge}: {_no_node(source, names)}"
            if edge.target != END and edge.target not in names:
                yield f"edge {edge}: {_no_node(edge.target, names)}"
            if len(set(edge.sources)) < len(edge.sources):
                yield f"edge {edge}: a join names each source once"
            if edge.is_join and not edge.is_plain:
                yield f"edge {edge}: a join waits for all its sources and takes no condition"
            if edge.when is not None and edge.otherwise:
                yield f"edge {edge}: `otherwise` applies when no condition holds; drop it or the condition"
        for ends, count in Counter((edge.sources, edge.target) for edge in self.edges if edge.is_plain).items():
            if count > 1:
                yield f"edge {Edge(sources=ends[0], target=ends[1])} is defined {count} times"

    def _routing_faults(self) -> Iterator[str]:
        leaving = _by_source(self.edges)
        for node in self.nodes:
            edges = leaving.get(node.name, [])
            conditional = [edge for edge in edges if edge.when is not None]
            otherwise = [edge for edge in edges if edge.otherwise]
            plain = [edge for edge in edges if edge.is_plain]
            if len(otherwise) > 1:
                yield f"node {node.name!r} has {len(otherwise)} `otherwise` edges; only one is allowed"
            if otherwise and not conditional:
                yield f"node {node.name!r} has an `otherwise` edge but no condition that could fail"
            if plain and (conditional or otherwise):
                yield (
                    f"node {node.name!r} has plain edges beside conditional ones ({', '.join(map(str, plain))}); "
                    "mark the plain edge otherwise=True or give it a condition"
                )

    def _reach_faults(self) -> Iterator[str]:
        if not any(node.start for node in self.nodes):
            return  # reported already, and everything would be out of reach
        leaving = _by_source(self.edges)
        reached = {node.name for node in self.nodes if node.start}
        front = list(reached)
        while front:
            for edge in leaving.get(front.pop(), []):
                if edge.target not in reached and reached.issuperset(edge.sources):
                    reached.add(edge.target)
                    front.append(edge.target)
        for node in self.nodes:
            if node.name not in reached:
                yield f"node {node.name!r} cannot be reached from the entry"

    def to_dict(self) -> dict[str, Any]:
        """Write the workflow as plain data; functions become references where they have one."""
        from wtb.domain.workflow_data import workflow_to_dict

        return workflow_to_dict(self)

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], resolve: Callable[[str], Callable[..., Any]] | None = None
    ) -> WorkflowDefinition:
        """Read what `to_dict` wrote; `resolve` turns `module:function` into the function."""
        from wtb.domain.workflow_data import workflow_from_dict

        return workflow_from_dict(data, resolve)


def _no_node(name: str, names: set[str]) -> str:
    """Return a message that there is no such node, with a suggestion."""
    if name.strip("_").upper() == "END":
        return f"there is no node {name!r}; wtb.END ends the run"
    meant = get_close_matches(name, sorted(names), n=1)
    return f"there is no node {name!r}" + (f"; did you mean {meant[0]!r}?" if meant else "")


def _by_source(edges: tuple[Edge, ...]) -> dict[str, list[Edge]]:
    leaving: dict[str, list[Edge]] = defaultdict(list)
    for edge in edges:
        for source in edge.sources:
            leaving[source].append(edge)
    return leaving


def _condition_faults(edges: tuple[Edge, ...], conditions: Conditions | None) -> Iterator[str]:
    for edge in edges:
        expression: object = edge.when
        if expression is None or callable(expression):
            continue
        if not isinstance(expression, str):
            yield f"edge {edge}: the condition is {expression!r}; write an expression or a function"
        elif not expression.strip():
            yield f"edge {edge}: the condition is empty; leave `when` out for a plain edge"
        elif conditions is not None:
            try:
                conditions.compile(expression)
            except InvalidCondition as error:
                yield f"edge {edge}: {error}"
