"""Fingerprints the nodes and variants of a workflow, and says in words what has changed in them."""

from __future__ import annotations

import inspect
import operator
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from wtb.application.dependencies.declared import declared
from wtb.application.dependencies.environment_parts import environment_parts
from wtb.application.dependencies.fingerprint import AS_WRITTEN, CALLED_AS, VERSION, Fingerprint, digest_of
from wtb.application.dependencies.loaded_modules import LoadedModules
from wtb.application.dependencies.objects import full_name, module_of
from wtb.application.dependencies.own_code import is_own_module
from wtb.application.dependencies.source_digests import SourceDigests
from wtb.application.dependencies.sources import own_file, own_path
from wtb.application.dependencies.walk import FindTool, Surroundings, fingerprint
from wtb.domain.workflow import Node, WorkflowDefinition

_WORKFLOW_KINDS = frozenset(("Workflow", "BatchTest", "StateGraph", "CompiledStateGraph"))


def surroundings(
    definition: WorkflowDefinition,
    find_tool: FindTool | None = None,
    state_types: Iterable[type] = (),
    state_functions: Mapping[str, tuple[Any, Any]] | None = None,
) -> Surroundings:
    """Return what the nodes of a workflow share."""
    functions = [function for _, function in _functions(definition)]
    modules: dict[str, str] = {}
    names: dict[str, set[str]] = defaultdict(set)
    for function in filter(None, map(_written, functions)):
        file = own_file(function.__module__)
        if file is not None:
            modules[function.__module__] = file
            if "." not in function.__qualname__:
                names[os.path.realpath(function.__code__.co_filename)].add(function.__qualname__)
    for held in _OWN_MODULES.now():
        workflows = _names_of_workflows(held)
        if workflows and (file := own_path(held["__file__"])) is not None:
            names[file] |= workflows
    own_types = [kind for kind in state_types if is_own_module(module_of(kind))]
    return Surroundings(
        find_tool=find_tool,
        nodes={file: frozenset(each) for file, each in names.items()},
        modules=modules,
        state_types=tuple(sorted(own_types, key=full_name)),
        state_functions=state_functions or {},
    )


def _written(function: Any) -> FunctionType | None:
    """Return the user's own function inside partials, methods and wrappers; None if there is none."""
    function = getattr(function, "func", function)
    function = getattr(function, "__func__", function)
    found = inspect.unwrap(function) if callable(function) else function
    return found if isinstance(found, FunctionType) and is_own_module(found.__module__) else None


_OWN_MODULES = LoadedModules(lambda file: own_path(file) is not None)
_name_of = operator.attrgetter("__name__")


def _names_of_workflows(held: Mapping[str, Any]) -> set[str]:
    """Return the names of the workflows, graphs and batch tests in a module."""
    # Most modules hold none, so the first look is without a Python loop.
    kinds = map(type, list(held.values()))
    if _WORKFLOW_KINDS.isdisjoint(map(_name_of, kinds)):
        return set()
    return {name for name, value in list(held.items()) if type(value).__name__ in _WORKFLOW_KINDS}


_DIGESTS = SourceDigests()


def node_fingerprint(node: Node, definition: WorkflowDefinition, around: Surroundings) -> Fingerprint:
    """Return the fingerprint of a node: what its result depends on, apart from the state, the files and the seed."""
    extra: dict[str, Any] = dict(definition.surroundings)
    extra["the version of the workflow"] = definition.version
    if around.state_types:
        # A node may call methods of objects in the state, whose classes its own code does not name.
        extra["the classes of states"] = around.state_types
    extra |= {f"the functions that store `{name}`": both for name, both in around.state_functions.items()}
    extra |= {f"the answers of tool `{name}`": answer.depends_on for name, answer in definition.tools.items()}
    extra |= environment_parts(node.environment)
    return fingerprint(node.function, node.config, {**extra, **declared(node.depends_on, _DIGESTS)}, around)


_KNOWN: WeakKeyDictionary[Any, Mapping[str, str]] = WeakKeyDictionary()
"""The parts of functions that this process has fingerprinted. An edited function is a new object. A value that changes
while the process runs was not changed by a person between two processes, so there is no warning about it."""


def with_code(definition: WorkflowDefinition) -> dict[str, Any]:
    """Return a workflow as data with the parts of each node, and of each variant as `node@variant`."""
    found: dict[str, Mapping[str, str]] = {}
    around: Surroundings | None = None
    says = {node.name: node.depends_on for node in definition.nodes}
    says |= {f"{each.node}@{each.name}": each.depends_on or () for each in definition.variants}
    for name, function in _functions(definition):
        known = _known(function)
        if known is None:
            around = around or surroundings(definition)
            known = fingerprint(function, around=around).parts
            _remember(function, known)
        found[name] = {**known, **_declared_parts(says[name])} if says[name] else known
    return {**definition.to_dict(), "code": found, "code_version": VERSION}


def _declared_parts(depends_on: tuple[Any, ...]) -> dict[str, str]:
    return {name: digest_of((repr(value),)) for name, value in declared(depends_on, _DIGESTS).items()}


def _functions(definition: WorkflowDefinition) -> Iterator[tuple[str, Any]]:
    for node in definition.nodes:
        if node.function is not None:
            yield node.name, node.function
    for variant in definition.variants:
        if variant.function is not None:
            yield f"{variant.node}@{variant.name}", variant.function


def _known(function: Any) -> Mapping[str, str] | None:
    try:
        return _KNOWN.get(function)
    except TypeError:  # the object cannot be a key
        return None


def _remember(function: Any, parts: Mapping[str, str]) -> None:
    try:
        _KNOWN[function] = parts
    except TypeError:
        return


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield what has changed between two such workflows, in words."""
    old, new = ({node["name"]: node for node in workflow["nodes"]} for workflow in (before, now))
    comparable = before.get("code_version") == now.get("code_version")
    was, code = (before.get("code", {}) if comparable else {}), now["code"]
    edited = {name: changed for name in code if (changed := changed_parts(was.get(name, code[name]), code[name]))}
    for name, changed in edited.items():
        yield f"node `{name}` has changed: {listed(changed)}"
    for name in new:
        if name not in old:
            yield f"node `{name}` is new"
        elif name not in edited and new[name] != old[name]:
            yield f"node `{name}` is set up differently"
    yield from (f"node `{name}` is gone" for name in old if name not in new)
    if before["edges"] != now["edges"] or before["reducers"] != now["reducers"]:
        yield "its edges or reducers have changed"


def changed_parts(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the names of the parts that are new, gone or different."""
    names = [name for name in (*now, *before) if before.get(name) != now.get(name)]
    plain = (name.removesuffix(" is").removesuffix(AS_WRITTEN) for name in names if name != CALLED_AS)
    return list(dict.fromkeys(plain)) or (["how it is called"] if names else [])


_FEW = 5


def listed(names: list[str]) -> str:
    """Return a few of the names."""
    return ", ".join(names[:_FEW]) + (f" and {len(names) - _FEW} more" if names[_FEW:] else "")
