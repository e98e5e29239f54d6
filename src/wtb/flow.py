"""Workflow and @tool: the builder that a user holds. Building gives the domain's frozen definition."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import json
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, overload

from wtb.application.context import current
from wtb.application.mocks import mock
from wtb.application.tool_registry import TOOLS
from wtb.domain.errors import InvalidInput
from wtb.domain.state import Reducer
from wtb.domain.tools import Effects, Tool, ToolSpec
from wtb.domain.workflow import Condition, Edge, Node, NodeFunction, RetryPolicy, Variant, WorkflowDefinition, names_of

F = TypeVar("F", bound=Callable[..., Any])


class Workflow:
    """Nodes and edges as they are being put together; `definition()` freezes what is there."""

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
        self.origin: Any = self
        """What the user wrote: itself, or the graph of another library."""
        self.source: str | None = None
        """Where the workflow was loaded from (`file.py:flow`), so that another process can load it again."""
        self._nodes: list[Node] = []
        self._edges: list[Edge] = []
        self._reducers: dict[str, Reducer] = {}
        self._variants: list[Variant] = []
        self._inactive: set[tuple[str, str]] = set()

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
    ) -> Callable[[F], F]: ...
    def node(self, name: str | NodeFunction | None = None, **how: Any) -> Any:
        """Make the decorated function a node, called by its own name unless another is given."""

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
    ) -> Workflow:
        """Add a node; `retry` is a policy, or how often to try."""
        self._check_function(f"node {name!r}", function)
        policy = _policy(name, retry)
        self._nodes.append(
            Node(
                name=name,
                function=function,
                start=start,
                reads=None if reads is None else names_of(reads),
                cache=cache,
                retry=policy,
                timeout_s=timeout_s,
                config=dict(config or {}),
            )
        )
        return self

    def edge(
        self,
        source: str | Sequence[str],
        target: str,
        *,
        when: Condition | None = None,
        otherwise: bool = False,
        priority: int = 0,
    ) -> Workflow:
        """Lead from a node to another, or to END; a list of sources waits for all of them."""
        _check_ends(source, target)
        sources = names_of(source)
        self._edges.append(Edge(sources=sources, target=target, when=when, otherwise=otherwise, priority=priority))
        return self

    def variant(
        self,
        node: str,
        name: str,
        *,
        reads: Sequence[str] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> Callable[[F], F]:
        """Make the decorated function another implementation of a node."""

        def register(function: F) -> F:
            self.add_variant(node, name, function, reads=reads, config=config)
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
    ) -> Workflow:
        """Add another implementation of a node; without a function, the node's own with another config."""
        if function is not None:
            self._check_function(f"variant {name!r} of node {node!r}", function)
        seen = None if reads is None else names_of(reads)
        self._variants.append(Variant(node=node, name=name, function=function, config=dict(config or {}), reads=seen))
        return self

    def _check_function(self, what: str, function: NodeFunction) -> None:
        """Refuse what could not be called as a node; of what shows no signature nothing is known."""
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
        """Return the input of a run as a mapping; InvalidInput when it is none."""
        if input is not None and not isinstance(input, Mapping):
            raise InvalidInput(f"the input of a run is a mapping of keys to values, not a {type(input).__name__}")
        return input or {}

    def deactivate(self, node: str, name: str) -> Workflow:
        """Leave a variant out of what `variants="all"` means, until `activate` takes it back."""
        self._inactive.add(self._known_variant(node, name))
        return self

    def activate(self, node: str, name: str) -> Workflow:
        """Take back `deactivate`."""
        self._inactive.discard(self._known_variant(node, name))
        return self

    @property
    def variants(self) -> dict[str, tuple[str, ...]]:
        """The active variants of each node that has any, in the order of their definition."""
        found: dict[str, tuple[str, ...]] = {}
        for variant in self._variants:
            if (variant.node, variant.name) not in self._inactive:
                found[variant.node] = (*found.get(variant.node, ()), variant.name)
        return found

    def _known_variant(self, node: str, name: str) -> tuple[str, str]:
        self.definition().with_variants({node: name})  # raises when there is none
        return node, name

    def reducer(self, key: str, function: Reducer) -> Workflow:
        """Say how writes to a key combine with what is there: `wtb.append`, `wtb.merge`, `wtb.add` or your own."""
        if not callable(function):
            raise InvalidInput(
                f"the reducer of {key!r} is {function!r}; give wtb.append, wtb.merge, wtb.add or a function"
            )
        self._reducers[key] = function
        return self

    def definition(self) -> WorkflowDefinition:
        """Return the workflow as it is now; later changes of the builder do not touch it."""
        return WorkflowDefinition(
            name=self.name,
            version=self.version,
            description=self.description,
            nodes=tuple(self._nodes),
            edges=tuple(self._edges),
            reducers=dict(self._reducers),
            metadata=dict(self.metadata),
            variants=tuple(self._variants),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the workflow as data; nodes are named by `module:function`."""
        return self.definition().to_dict()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Workflow:
        """Read a workflow as data, importing the functions that it names."""
        return cls._of(WorkflowDefinition.from_dict(data, resolve_function))

    def mocked(self, results: Mapping[str, Any], *, rest: Any = None) -> Workflow:
        """Return another workflow in which these nodes give the results that are given instead of running.

        A result is a mapping (returned at every visit), a list of them (one a visit), an exception or a function;
        `run.returned` holds those of a recorded run. `rest` is that of all other nodes, which run without it.
        Edges, reducers, retries and timeouts stay as they are.
        """
        definition = self.definition()
        names = [node.name for node in definition.nodes]
        unknown = [name for name in results if name not in names]
        if unknown:
            raise InvalidInput(f"there is no node {', '.join(unknown)} to mock; there are {', '.join(names)}")
        given = dict(results) if rest is None else {**dict.fromkeys(names, rest), **results}
        nodes = (
            replace(node, function=mock(node.name, given[node.name]), reference=None) if node.name in given else node
            for node in definition.nodes
        )
        flow = copy.copy(self)
        flow._nodes = list(nodes)
        flow.source, flow.origin = None, flow  # it is not what a process would load from there
        return flow

    @classmethod
    def _of(cls, definition: WorkflowDefinition) -> Workflow:
        flow = cls(
            definition.name, definition.version, description=definition.description, metadata=definition.metadata
        )
        flow._nodes, flow._edges = list(definition.nodes), list(definition.edges)
        flow._reducers = dict(definition.reducers)
        flow._variants = list(definition.variants)
        return flow


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


def _policy(node: str, retry: object) -> RetryPolicy | None:
    if retry is None or isinstance(retry, RetryPolicy):
        return retry
    if isinstance(retry, int) and not isinstance(retry, bool):
        return RetryPolicy(times=retry)
    raise InvalidInput(f"node {node!r}: retry is how often to try, or a wtb.RetryPolicy, not {retry!r}")


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    effects: str = "external",
    reverse: Callable[..., Any] | None = None,
    reverse_in_doubt: bool = False,
    idempotent: bool = False,
    confirm: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    effects: str = "external",
    reverse: Callable[..., Any] | None = None,
    reverse_in_doubt: bool = False,
    idempotent: bool = False,
    confirm: Callable[..., Any] | None = None,
) -> Any:
    """Make a function a tool that nodes call through `ctx.tool`, by name or as it is.

    `effects` is `none`, `workspace` or `external`; `reverse(call)` undoes a call, `confirm(call)` says whether a
    call whose fate is unknown happened; an idempotent tool that takes `idempotency_key` is given one.
    """

    rules: dict[str, Any] = {
        "reverse": reverse,
        "reverse_in_doubt": reverse_in_doubt,
        "idempotent": idempotent,
        "confirm": confirm,
    }

    def register(function: Callable[..., Any]) -> Tool:
        return TOOLS.add(tool_of(function, name=name or function.__name__, effects=effects, **rules))

    return register if function is None else register(function)


def reversible(function: Any, /, *, reverse: Callable[..., Any], **rules: Any) -> Any:
    """Return a function as a tool, or a LangChain tool, that a rollback takes back with `reverse(call)`.

    The other rules are those of `tool`.
    """
    if inspect.isroutine(function):
        return tool(reverse=reverse, **rules)(function)
    from wtb import langgraph

    return langgraph.reversible(function, reverse=reverse, **rules)


def workspace() -> Path:
    """Return the versioned folder of the run, in the node that runs here."""
    return current().workspace


def tool_of(
    function: Callable[..., Any],
    *,
    name: str,
    effects: str,
    reverse: Callable[..., Any] | None = None,
    reverse_in_doubt: bool = False,
    idempotent: bool = False,
    confirm: Callable[..., Any] | None = None,
) -> Tool:
    """Return a function as a tool, as `tool` does, that nobody finds by its name."""
    spec = ToolSpec(
        name=name,
        effects=_effects(effects),
        reversible=reverse is not None,
        reverse_in_doubt=reverse_in_doubt,
        idempotent=idempotent,
        confirmable=confirm is not None,
    )
    takes_key = idempotent and "idempotency_key" in inspect.signature(function).parameters
    made = Tool(spec=spec, function=function, reverse=reverse, confirm=confirm, takes_key=takes_key)
    # What `functools.wraps` would do, for a frozen value: help() and inspect see the function.
    made.__dict__.update(__name__=spec.name, __doc__=function.__doc__, __wrapped__=function)
    return made


def _effects(effects: str) -> Effects:
    try:
        return Effects(effects)
    except ValueError:
        known = ", ".join(Effects)
        raise InvalidInput(f"effects={effects!r} is unknown; a tool's effects are one of {known}") from None


def resolve_function(reference: str) -> Callable[..., Any]:
    """Return the function that `module:name` or the name of a registered tool means."""
    module, _, name = reference.partition(":")
    if not name:
        return TOOLS.get(reference)
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"{reference!r} cannot be imported: {error}") from error
    if not callable(found):
        raise InvalidInput(f"{reference!r} is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


def load_workflow(reference: str) -> Workflow:
    """Load `file.py[:flow]`, `module:flow` or `flow.json`; the workflow remembers where it came from."""
    if reference.endswith(".json"):
        path = Path(reference).resolve()
        data = _read_json(Path(reference))
        _look_in(path.parent)
        with _loading():
            flow = Workflow.from_dict(data)
        flow.source = str(path)
        return flow
    found, place, name = load_named(reference, is_workflow, "workflow", "flow")
    flow = as_workflow(found)
    flow.source = f"{place}:{name}"
    return flow


def is_workflow(value: object) -> bool:
    """Whether something is a workflow, or a graph of LangGraph's, of which it is said later why it cannot be run."""
    graphs = sys.modules.get("langgraph.graph.state")
    return isinstance(value, Workflow) or (graphs is not None and isinstance(value, graphs.StateGraph | graphs.Pregel))


def as_workflow(flow: Any) -> Workflow:
    """Return a workflow, or that of a graph of LangGraph's; InvalidInput for anything else."""
    if isinstance(flow, Workflow):
        return flow
    if type(flow).__module__.partition(".")[0] == "langgraph":
        from wtb.langgraph import workflow

        return workflow(flow)
    hint = "call it, if it makes one" if inspect.isfunction(flow) else "give a wtb.Workflow or a LangGraph StateGraph"
    raise InvalidInput(f"a {type(flow).__name__} is no workflow; {hint}")


_is_loading = ContextVar("_is_loading", default=False)


@contextmanager
def _loading() -> Iterator[None]:
    before = _is_loading.set(True)
    try:
        yield
    finally:
        _is_loading.reset(before)


def refuse_while_loading() -> None:
    """Raise InvalidInput in a script that runs workflows when it is loaded for the one that it defines."""
    if _is_loading.get():
        raise InvalidInput(
            'this runs a workflow whenever the file is loaded; put it under `if __name__ == "__main__":`'
        )


def load_named(reference: str, fits: Callable[[object], bool], noun: str, usual: str) -> tuple[Any, str, str]:
    """Load what `file.py[:name]` or `module:name` means; return it, where it lies and what it is called there."""
    place, _, name = reference.rpartition(":")
    place, name = (place, name) if place else (reference, usual)
    is_file = place.endswith(".py")
    with _loading():
        module = _module_at(Path(place)) if is_file else _imported(place)
    found = getattr(module, name, None)
    if not fits(found):
        if inspect.isfunction(found):
            raise InvalidInput(f"{name!r} in {place} is a function: let {usual} = {name}(…) there, and name that")
        names = [key for key, value in vars(module).items() if fits(value)]
        hint = f"it has {', '.join(names)}" if names else "it defines none"
        raise InvalidInput(f"{place} has no {noun} called {name!r}; {hint}")
    return found, str(Path(place).resolve()) if is_file else place, name


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} is no workflow as JSON: {error}") from error
    if not isinstance(data, Mapping):
        raise InvalidInput(f"{path} is no workflow as JSON: it holds a {type(data).__name__}")
    return data


def _module_at(path: Path) -> ModuleType:
    """Import a file under a name of its own, its folder on the path as if it had been run."""
    if not path.is_file():
        raise InvalidInput(f"there is no file {path}")
    name = path.stem
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path.resolve()):
        return known
    _look_in(path.resolve().parent)
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        line = error.lineno if isinstance(error, SyntaxError) else _line_in(path.resolve(), error)
        raise InvalidInput(f"{path} cannot be imported: {type(error).__name__} in line {line}: {error}") from error
    return module


def _line_in(path: Path, error: Exception) -> int | None:
    """Return the last line of the file on the way to an error, which may lie in what the file calls."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == str(path)]
    return (own or frames)[-1].lineno


def _look_in(folder: Path) -> None:
    """Import from a folder too: Python does so for a script that it runs, but not for `wtb`."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _imported(name: str) -> ModuleType:
    _look_in(Path.cwd())
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidInput(f"module {name!r} cannot be imported: {error}") from error


def source_of(flow: Workflow) -> str | None:
    """Return where a workflow can be loaded from again: where it was loaded, or the module that holds it by name."""
    if flow.source is not None:
        return flow.source
    # A script that imports its workflow comes last: what defines it is loaded with less.
    for module in sorted(sys.modules.values(), key=lambda module: module is sys.modules["__main__"]):
        file = getattr(module, "__file__", None)
        if file and not file.endswith("__main__.py"):
            for name, value in list(vars(module).items()):
                if value is flow or value is flow.origin:
                    place = str(Path(file).resolve()) if module.__name__ == "__main__" else module.__name__
                    return f"{place}:{name}"
    return None
