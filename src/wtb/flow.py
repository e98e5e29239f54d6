"""Workflow, the builder that users hold; it builds the frozen definition of the domain."""

from __future__ import annotations

import builtins
import copy
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, overload

from wtb.application.runs.mocks import mock, tool_answers
from wtb.application.runs.tool_nodes import tool_node
from wtb.application.tool_registry import TOOLS
from wtb.domain.environment import HONOURED, EnvironmentConfig, environment_of
from wtb.domain.errors import InvalidInput
from wtb.domain.state import Reducer
from wtb.domain.tool_answers import ToolAnswer
from wtb.domain.tools import Tool
from wtb.domain.workflow import Condition, Edge, Node, NodeFunction, RetryPolicy, Variant, WorkflowDefinition, names_of

F = TypeVar("F", bound=Callable[..., Any])


class Workflow:
    """A workflow that you put together from nodes and edges. A run uses the workflow as it is when the run starts."""

    def __init__(
        self,
        name: str,
        version: str = "1",
        *,
        description: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.version = version
        self.description = description
        self.metadata = dict(metadata or {})
        self.break_before: tuple[str, ...] = ()
        self.break_after: tuple[str, ...] = ()
        self.imports: tuple[str, ...] = ()
        """Modules to import before the workflow is built from data; they register the tools that its nodes name."""
        self.origin: Any = self
        """The object that the user wrote: this workflow, or a graph of another library."""
        self.source: str | None = None
        """Where the workflow was loaded from (`file.py:flow`), so that another process can load it again."""
        self._nodes: list[Node] = []
        self._edges: list[Edge] = []
        self._reducers: dict[str, Reducer] = {}
        self._variants: list[Variant] = []
        self._inactive: set[tuple[str, str]] = set()
        self._tools: dict[str, ToolAnswer] = {}

    @overload
    def node(self, function: F, /) -> F: ...
    @overload
    def node(
        self,
        name: str | None = None,
        *,
        start: bool = False,
        reads: Sequence[str] | None = None,
        cache: bool = True,
        retry: RetryPolicy | int | None = None,
        timeout_s: float | None = None,
        config: Mapping[str, Any] | None = None,
        depends_on: Sequence[Any] = (),
        environment: str | EnvironmentConfig | None = None,
    ) -> Callable[[F], F]: ...
    def node(self, name: str | NodeFunction | None = None, **how: Any) -> Any:
        """Make the decorated function a node, with its own name or the one you give; options as for `add_node`."""

        def register(function: F) -> F:
            self.add_node(name if isinstance(name, str) else function.__name__, function, **how)
            return function

        return register(name) if callable(name) else register

    def add_node(
        self,
        name: str,
        function: NodeFunction,
        *,
        start: bool = False,
        reads: Sequence[str] | None = None,
        cache: bool = True,
        retry: RetryPolicy | int | None = None,
        timeout_s: float | None = None,
        config: Mapping[str, Any] | None = None,
        depends_on: Sequence[Any] = (),
        environment: str | EnvironmentConfig | None = None,
    ) -> Workflow:
        """Add a node: a function of `(state)` or `(state, ctx)`, sync or async, that returns the keys it changes.

        - `start`: the run begins here.
        - `reads`: the only keys that the node sees.
        - `cache=False`: batches do not share its results.
        - `retry`: a `RetryPolicy`, or the number of tries.
        - `timeout_s`: the node fails if it takes longer than this.
        - `config`: values that the node finds in `ctx.config`.
        - `depends_on`: what its results depend on and a batch cannot see: files (`"prompts/*.txt"`), environment
          variables (`"env:MODEL"`), or any value.
        - `environment`: where the function runs: `"in_process"`, `"subprocess"`, or an `EnvironmentConfig` with
          packages, variables, limits, or the address of a server.
        """
        self._check_function(f"node {name!r}", function)
        policy = _policy(name, retry)
        self._put_node(
            Node(
                name=name,
                function=function,
                start=start,
                reads=None if reads is None else names_of(reads),
                cache=cache,
                retry=policy,
                timeout_s=timeout_s,
                config=dict(config or {}),
                depends_on=_declared(f"node {name!r}", depends_on),
                environment=_known(environment_of(environment)),
            )
        )
        return self

    def _put_node(self, node: Node) -> None:
        """Add a node, or replace the one of this name if a cell of a notebook is run again."""
        at = next((at for at, old in enumerate(self._nodes) if old.name == node.name), None)
        if at is not None and _is_from_a_cell(node.function) and _is_from_a_cell(self._nodes[at].function):
            self._nodes[at] = node
        else:
            self._nodes.append(node)

    def edge(
        self,
        source: str | Sequence[str],
        target: str,
        *,
        when: Condition | None = None,
        otherwise: bool = False,
        priority: int = 0,
    ) -> Workflow:
        """Connect a node to the next one, or to `wtb.END`; several sources wait for all of them.

        `when` is a condition: a CEL expression, or a function of the state. If a node has several edges with
        conditions, the run follows the first one that holds, highest `priority` first. If none holds, it follows the
        edge with `otherwise=True`.
        """
        _check_ends(source, target)
        sources = names_of(source)
        edge = Edge(sources=sources, target=target, when=when, otherwise=otherwise, priority=priority)
        if not (is_interactive() and edge in self._edges):  # running a notebook cell again repeats its edges
            self._edges.append(edge)
        return self

    def variant(
        self,
        node: str,
        name: str,
        *,
        reads: Sequence[str] | None = None,
        config: Mapping[str, Any] | None = None,
        depends_on: Sequence[Any] | None = None,
    ) -> Callable[[F], F]:
        """Make the decorated function another implementation of a node; options as for `add_variant`."""

        def register(function: F) -> F:
            self.add_variant(node, name, function, reads=reads, config=config, depends_on=depends_on)
            return function

        return register

    def add_variant(
        self,
        node: str,
        name: str,
        function: NodeFunction | None = None,
        *,
        reads: Sequence[str] | None = None,
        config: Mapping[str, Any] | None = None,
        depends_on: Sequence[Any] | None = None,
    ) -> Workflow:
        """Add another implementation of a node. Without a function, the node's own runs with another config.

        `reads` and `depends_on` replace those of the node. `config` is merged over the node's config.
        """
        if function is not None:
            self._check_function(f"variant {name!r} of node {node!r}", function)
        self._put_variant(
            Variant(
                node=node,
                name=name,
                function=function,
                config=dict(config or {}),
                reads=None if reads is None else names_of(reads),
                depends_on=None if depends_on is None else _declared(f"variant {name!r}", depends_on),
            )
        )
        return self

    def _put_variant(self, variant: Variant) -> None:
        """Add a variant, or replace the one of this name if a cell of a notebook is run again."""
        key = variant.node, variant.name
        at = next((at for at, old in enumerate(self._variants) if (old.node, old.name) == key), None)
        if at is not None and is_interactive() and (variant.function is None or _is_from_a_cell(variant.function)):
            self._variants[at] = variant
        else:
            self._variants.append(variant)

    def depends_on(self, node: str, *what: Any) -> Workflow:
        """Declare what a node's results depend on and a batch cannot see, as `depends_on` of `add_node` does."""
        names = [each.name for each in self._nodes]
        if node not in names:
            raise InvalidInput(f"there is no node {node!r}; there are {', '.join(names) or 'none'}")
        place = names.index(node)
        self._nodes[place] = replace(self._nodes[place], depends_on=_declared(f"node {node!r}", what))
        return self

    def _check_function(self, what: str, function: NodeFunction) -> None:
        """Refuse a function that cannot be called as a node; accept one that shows no signature."""
        if inspect.isclass(function) and not issubclass(function, Mapping):
            raise InvalidInput(f"{what} is the class {function.__name__}; give a function, or an object to call")
        try:
            signature = inspect.signature(function)
        except TypeError:
            raise InvalidInput(f"{what} is a {type(function).__name__}; give a function") from None
        except ValueError:
            return
        for given in (("state",), ("state", "ctx")):
            try:
                signature.bind(*given)
            except TypeError:
                continue
            return
        raise InvalidInput(f"{what}: its function takes {signature}; a node takes (state) or (state, ctx)")

    def given(self, input: Any) -> Mapping[str, Any]:
        """Return the input of a run as a mapping; raise InvalidInput if it is none."""
        if input is not None and not isinstance(input, Mapping):
            raise InvalidInput(f"the input of a run is a mapping of keys to values, not a {type(input).__name__}")
        return input or {}

    def deactivate(self, node: str, name: str) -> Workflow:
        """Leave a variant out of `variants="all"` until you call `activate`."""
        self._inactive.add(self._known_variant(node, name))
        return self

    def activate(self, node: str, name: str) -> Workflow:
        """Use a variant again after `deactivate`."""
        self._inactive.discard(self._known_variant(node, name))
        return self

    @property
    def variants(self) -> dict[str, tuple[str, ...]]:
        """The active variants of each node that has any, in the order you defined them."""
        found: dict[str, tuple[str, ...]] = {}
        for variant in self._variants:
            if (variant.node, variant.name) not in self._inactive:
                found[variant.node] = (*found.get(variant.node, ()), variant.name)
        return found

    def _known_variant(self, node: str, name: str) -> tuple[str, str]:
        self.definition().with_variants({node: name})  # raises if there is no such variant
        return node, name

    def reducer(self, key: str, function: Reducer) -> Workflow:
        """Set how writes to a key combine with its value: `wtb.append`, `wtb.merge`, `wtb.add` or your own function."""
        if not callable(function):
            raise InvalidInput(
                f"the reducer of {key!r} is {function!r}; give wtb.append, wtb.merge, wtb.add or a function"
            )
        self._reducers[key] = function
        return self

    def definition(self) -> WorkflowDefinition:
        """Return a frozen copy of the workflow; later changes do not affect it."""
        return WorkflowDefinition(
            name=self.name,
            version=self.version,
            description=self.description,
            nodes=tuple(self._nodes),
            edges=tuple(self._edges),
            reducers=dict(self._reducers),
            metadata=dict(self.metadata),
            variants=tuple(self._variants),
            imports=self.imports,
            tools=dict(self._tools),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the workflow as plain data, with each function as `module:function`."""
        return self.definition().to_dict()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Workflow:
        """Build a workflow from plain data, importing the modules and functions it names.

        A node may also name a tool that is registered with `wtb.tool`: the node calls it, with its config as arguments.
        """
        _import_modules(data)
        return cls._of(WorkflowDefinition.from_dict(data, resolve_function))

    def mocked(self, results: Mapping[str, Any], *, rest: Any = None) -> Workflow:
        """Return a copy of the workflow in which some nodes return fixed results instead of running.

        `results` maps a node to its result: a mapping (returned at every visit), a list of mappings (one per visit), an
        exception to raise, or a function to call instead. `run.returned` gives you the results of a recorded run.
        `rest` is the result of all other nodes; without it they run. Edges, reducers, retries and timeouts stay the
        same.
        """
        definition = self.definition()
        names = [node.name for node in definition.nodes]
        unknown = [name for name in results if name not in names]
        if unknown:
            raise InvalidInput(f"there is no node {', '.join(unknown)} to mock; there are {', '.join(names)}")
        given = dict(results) if rest is None else {**dict.fromkeys(names, rest), **results}
        nodes = (
            replace(node, function=mock(node.name, given[node.name]), reference=None, environment=None)
            if node.name in given
            else node
            for node in definition.nodes
        )
        flow = copy.copy(self)
        flow._nodes = list(nodes)
        flow.source, flow.origin = None, flow  # another process would load the original from there, not this copy
        return flow

    def mocked_tools(self, tools: Mapping[str, Any]) -> Workflow:
        """Return a copy of the workflow in which these tools are answered without being called.

        `tools` maps the name of a tool to a function that is called instead, to a run whose answers are used, or to
        `"record"`: a batch then makes each call once for a case, and answers equal calls with that result.
        """
        flow = copy.copy(self)
        flow._tools = {**self._tools, **tool_answers(tools)}
        flow.source, flow.origin = None, flow  # another process would load the original from there, not this copy
        return flow

    @classmethod
    def _of(cls, definition: WorkflowDefinition) -> Workflow:
        flow = cls(
            definition.name, definition.version, description=definition.description, metadata=definition.metadata
        )
        flow._nodes, flow._edges = list(definition.nodes), list(definition.edges)
        flow._reducers = dict(definition.reducers)
        flow._variants = list(definition.variants)
        flow.imports = definition.imports
        return flow


def is_interactive() -> bool:
    """Whether a person is typing the program, in a notebook or at the Python prompt."""
    return hasattr(sys, "ps1") or hasattr(builtins, "get_ipython")


def _is_from_a_cell(function: object) -> bool:
    """Whether a function was typed interactively; typing it again replaces it."""
    return is_interactive() and getattr(function, "__module__", None) == "__main__"


def _check_ends(source: object, target: object) -> None:
    sources = source if isinstance(source, list | tuple) else [source]
    for end in (*sources, target):
        if callable(end):
            name = getattr(end, "__name__", "its name")
            raise InvalidInput(f"an edge leads from name to name: write {name!r}, not the function")
        if isinstance(end, list | tuple | set):
            raise InvalidInput(f"an edge leads to one node, not to {end!r}; write an edge to each of them")
        if not isinstance(end, str):
            raise InvalidInput(f"an edge leads from name to name, not to {end!r}; wtb.END ends the run")


def _declared(what: str, depends_on: object) -> tuple[Any, ...]:
    if isinstance(depends_on, str) or not isinstance(depends_on, Sequence):
        raise InvalidInput(f"{what}: depends_on is a list, such as ['prompts/*.txt', 'env:MODEL'], not {depends_on!r}")
    return tuple(depends_on)


def _policy(node: str, retry: object) -> RetryPolicy | None:
    if retry is None or isinstance(retry, RetryPolicy):
        return retry
    if isinstance(retry, int) and not isinstance(retry, bool):
        return RetryPolicy(times=retry)
    raise InvalidInput(f"node {node!r}: retry is how often to try, or a wtb.RetryPolicy, not {retry!r}")


def _import_modules(data: Any) -> None:
    """Import the modules that a workflow as data names. Malformed data is refused later, when it is read."""
    modules = data.get("imports") if isinstance(data, Mapping) else None
    for module in modules if isinstance(modules, list | tuple) else ():
        try:
            importlib.import_module(str(module))
        except ImportError as error:
            raise InvalidInput(f"the workflow imports {module!r}, which cannot be imported: {error}") from error


def resolve_function(reference: str) -> Callable[..., Any]:
    """Return the function that `module:name`, or the name of a registered tool, refers to."""
    module, _, name = reference.partition(":")
    if not name:
        return tool_node(TOOLS.get(reference))
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"{reference!r} cannot be imported: {error}") from error
    if not callable(found):
        raise InvalidInput(f"{reference!r} is a {type(found).__name__}, not a function")
    if isinstance(found, Tool):
        return tool_node(found)
    return found  # type: ignore[no-any-return]


def _known(environment: EnvironmentConfig | None) -> EnvironmentConfig | None:
    """Refuse a kind of environment that nobody offers here, before any node has run."""
    if environment is not None and environment.kind not in HONOURED:
        from wtb.infrastructure.environments.named import check_known

        check_known(environment.kind)
    return environment
