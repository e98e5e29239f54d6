"""Workflows as plain data: the format that `WorkflowDefinition.to_dict` writes and `from_dict` reads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import PurePath
from types import MethodType
from typing import Any

from wtb.domain.environment import environment_of
from wtb.domain.errors import InvalidInput
from wtb.domain.state import REDUCERS, Reducer
from wtb.domain.workflow import Edge, Node, NodeFunction, RetryPolicy, Variant, WorkflowDefinition

FORMAT = 1
"""Version of the data."""

Resolve = Callable[[str], Callable[..., Any]]


def workflow_to_dict(workflow: WorkflowDefinition) -> dict[str, Any]:
    """Write a workflow as plain data; functions become references where they have one."""
    return {
        "format": FORMAT,
        "name": workflow.name,
        "version": workflow.version,
        "description": workflow.description,
        "nodes": [_node_to_dict(node) for node in workflow.nodes],
        "edges": [_edge_to_dict(edge) for edge in workflow.edges],
        "reducers": {key: reference_of(reducer) for key, reducer in workflow.reducers.items()},
        "metadata": dict(workflow.metadata),
        **({"imports": list(workflow.imports)} if workflow.imports else {}),
    } | ({"variants": [_variant_to_dict(variant) for variant in workflow.variants]} if workflow.variants else {})


def workflow_from_dict(data: Mapping[str, Any], resolve: Resolve | None = None) -> WorkflowDefinition:
    """Read a workflow as data; `resolve` turns `module:function` into the function."""
    try:
        return _read(data, resolve)
    except KeyError as error:
        raise InvalidInput(f"a workflow as data must have {error}; compare it with Workflow.to_dict()") from error


def reference_of(function: Callable[..., Any] | None) -> str | None:
    """Return `module:name` of a function that can be imported; None for lambdas, closures and methods of an object."""
    if function in REDUCERS.values():
        return next(name for name, reducer in REDUCERS.items() if reducer is function)
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<")
    is_bound = isinstance(function, MethodType) and not isinstance(function.__self__, type)
    return None if module is None or "<" in name or is_bound else f"{_importable(module)}:{name}"


def _importable(module: str) -> str:
    """Return the name under which another process imports a module: `__main__` is this process's script only here."""
    if module != "__main__":
        return module
    script = sys.modules[module]
    spec, file = getattr(script, "__spec__", None), getattr(script, "__file__", None)
    if spec is not None:
        return str(spec.name)
    return module if file is None else PurePath(file).stem


def _node_to_dict(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "reference": node.reference or reference_of(node.function),
        "start": node.start,
        "reads": None if node.reads is None else list(node.reads),
        "cache": node.cache,
        "retry": None if node.retry is None else _retry_to_dict(node.retry),
        "timeout_s": node.timeout_s,
        "config": dict(node.config),
        **_declared(node.depends_on),
        **({} if node.environment is None else {"environment": node.environment.to_data()}),
    }


def _declared(depends_on: tuple[Any, ...] | None) -> dict[str, Any]:
    """Return a node's declared dependencies that are texts; other values are not data. Empty if it declares none."""
    texts = [each for each in depends_on or () if isinstance(each, str)]
    return {"depends_on": texts} if texts else {}


def _variant_to_dict(variant: Variant) -> dict[str, Any]:
    return {
        "node": variant.node,
        "name": variant.name,
        "reference": variant.reference or reference_of(variant.function),
        "config": dict(variant.config),
        "reads": None if variant.reads is None else list(variant.reads),
        **_declared(variant.depends_on),
    }


def _retry_to_dict(retry: RetryPolicy) -> dict[str, Any]:
    return {
        "times": retry.times,
        "wait_s": retry.wait_s,
        "backoff": retry.backoff,
        "max_wait_s": retry.max_wait_s,
        "jitter": retry.jitter,
        "errors": list(retry.errors),
    }


def _edge_to_dict(edge: Edge) -> dict[str, Any]:
    condition = edge.when if isinstance(edge.when, str) or edge.when is None else {"function": reference_of(edge.when)}
    return {
        "sources": list(edge.sources),
        "target": edge.target,
        "when": condition,
        "otherwise": edge.otherwise,
        "priority": edge.priority,
    }


_NONE = type(None)
_Kinds = Mapping[str, tuple[type, ...]]

_WORKFLOW_DATA: _Kinds = {
    "format": (int,),
    "name": (str,),
    "version": (str,),
    "description": (str,),
    "nodes": (list, tuple),
    "edges": (list, tuple),
    "reducers": (dict,),
    "metadata": (dict,),
    "variants": (list, tuple),
    "imports": (list, tuple),
}
_VARIANT_DATA: _Kinds = {
    "node": (str,),
    "name": (str,),
    "reference": (str, _NONE),
    "config": (dict,),
    "reads": (list, tuple, _NONE),
    "depends_on": (list, tuple),
}
_NODE_DATA: _Kinds = {
    "name": (str,),
    "reference": (str, _NONE),
    "start": (bool,),
    "reads": (list, tuple, _NONE),
    "cache": (bool,),
    "retry": (dict, _NONE),
    "timeout_s": (int, float, _NONE),
    "config": (dict,),
    "depends_on": (list, tuple),
    "environment": (str, dict),
}
_RETRY_DATA: _Kinds = {
    "times": (int,),
    "wait_s": (int, float),
    "backoff": (int, float),
    "max_wait_s": (int, float),
    "jitter": (int, float),
    "errors": (list, tuple),
}
_EDGE_DATA: _Kinds = {
    "sources": (list, tuple),
    "target": (str,),
    "when": (str, dict, _NONE),
    "otherwise": (bool,),
    "priority": (int,),
}
_TEXTS = frozenset({"imports", "sources", "reads", "errors", "depends_on"})


def _checked(data: Any, kinds: _Kinds, where: str) -> Mapping[str, Any]:
    """Check the keys of data and their types: a typo in a file must not silently change the workflow."""
    if not isinstance(data, Mapping):
        raise InvalidInput(f"{where} must be a mapping, not {data!r}")
    for key, value in data.items():
        if key not in kinds:
            raise InvalidInput(f"{where} has an unknown key {key!r}; the keys are {', '.join(kinds)}")
        if not isinstance(value, kinds[key]):
            raise InvalidInput(f"{where}: {key} cannot be {value!r}")
        if key in _TEXTS and not _are_texts(value or ()):
            raise InvalidInput(f"{where}: {key} must hold texts only, not {value!r}")
    return data


def _are_texts(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def _read(data: Mapping[str, Any], resolve: Resolve | None) -> WorkflowDefinition:
    _checked(data, _WORKFLOW_DATA, "a workflow as data")
    if data.get("format", FORMAT) > FORMAT:
        raise InvalidInput(f"workflow {data.get('name')!r} has format {data['format']}; this wtb reads up to {FORMAT}")

    def function(reference: str | None) -> Callable[..., Any] | None:
        return resolve(reference) if resolve and reference else None

    return WorkflowDefinition(
        name=data["name"],
        version=data.get("version", "1"),
        description=data.get("description", ""),
        nodes=tuple(
            _node_from_dict(_checked(node, _NODE_DATA, f"node {i}"), function)
            for i, node in enumerate(data["nodes"], 1)
        ),
        edges=tuple(
            _edge_from_dict(_checked(edge, _EDGE_DATA, f"edge {i}"), function)
            for i, edge in enumerate(data.get("edges", ()), 1)
        ),
        reducers={key: _reducer(key, name, function) for key, name in data.get("reducers", {}).items()},
        metadata=data.get("metadata", {}),
        imports=tuple(data.get("imports", ())),
        variants=tuple(
            _variant_from_dict(_checked(variant, _VARIANT_DATA, f"variant {i}"), function)
            for i, variant in enumerate(data.get("variants", ()), 1)
        ),
    )


def _node_from_dict(data: Mapping[str, Any], function: Callable[[str | None], NodeFunction | None]) -> Node:
    reads, retry = data.get("reads"), data.get("retry")
    return Node(
        name=data["name"],
        function=function(data.get("reference")),
        reference=data.get("reference"),
        start=data.get("start", False),
        reads=None if reads is None else tuple(reads),
        cache=data.get("cache", True),
        retry=None if retry is None else _retry_from_dict(_checked(retry, _RETRY_DATA, f"retry of {data['name']!r}")),
        timeout_s=data.get("timeout_s"),
        config=data.get("config", {}),
        depends_on=tuple(data.get("depends_on", ())),
        environment=environment_of(data.get("environment")),
    )


def _variant_from_dict(data: Mapping[str, Any], function: Callable[[str | None], NodeFunction | None]) -> Variant:
    reads = data.get("reads")
    return Variant(
        node=data["node"],
        name=data["name"],
        function=function(data.get("reference")),
        reference=data.get("reference"),
        config=data.get("config", {}),
        reads=None if reads is None else tuple(reads),
        depends_on=tuple(data["depends_on"]) if "depends_on" in data else None,
    )


def _retry_from_dict(data: Mapping[str, Any]) -> RetryPolicy:
    return RetryPolicy(**{**data, "errors": tuple(data.get("errors", ()))})


def _edge_from_dict(data: Mapping[str, Any], function: Callable[[str | None], Callable[..., Any] | None]) -> Edge:
    when = data.get("when")
    if isinstance(when, dict):
        when = function(when["function"])
        if when is None:
            raise InvalidInput(
                f"the condition of edge {data['sources']} -> {data['target']} is a function that cannot be imported; "
                "write it as an expression"
            )
    return Edge(
        sources=tuple(data["sources"]),
        target=data["target"],
        when=when,
        otherwise=data.get("otherwise", False),
        priority=data.get("priority", 0),
    )


def _reducer(key: str, name: str | None, function: Callable[[str | None], Callable[..., Any] | None]) -> Reducer:
    found = REDUCERS.get(name) if name else None
    found = found or function(name)
    if found is None:
        raise InvalidInput(f"the reducer of key {key!r} is {name!r}: name one of {', '.join(REDUCERS)} or a function")
    return found
