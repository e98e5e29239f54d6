"""Code: what a workflow's functions are made of, and whether that is still what it was."""

from __future__ import annotations

import functools
import hashlib
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from wtb.domain.tools import Tool
from wtb.domain.workflow import WorkflowDefinition

_PLAIN = (str, bytes, int, float, complex, bool, type(None), type(...))


def with_code(definition: WorkflowDefinition) -> dict[str, Any]:
    """Return a workflow as data with a digest of the code of each node, and of each variant as `node@variant`."""
    code = {node.name: code_digest(node.function) for node in definition.nodes if node.function is not None}
    for variant in definition.variants:
        if variant.function is not None:
            code[f"{variant.node}@{variant.name}"] = code_digest(variant.function)
    return {**definition.to_dict(), "code": code}


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs between two such workflows, as a person would say it."""
    old, new = ({node["name"]: node for node in workflow["nodes"]} for workflow in (before, now))
    was, code = before.get("code", {}), now["code"]
    edited = [name for name in code if code[name] != was.get(name, code[name])]
    set_up = [name for name in new if name in old and name not in edited and new[name] != old[name]]
    for names, what in (
        (edited, "the code of {} is another"),
        (set_up, "{} is set up differently"),
        ([name for name in new if name not in old], "{} is new"),
        ([name for name in old if name not in new], "{} is gone"),
    ):
        if names:
            yield what.format(", ".join(names))
    if before["edges"] != now["edges"] or before["reducers"] != now["reducers"]:
        yield "its edges or reducers are others"


def code_digest(function: Any) -> str:
    """Return a digest of the code of a function and of what it uses from the user's own modules.

    Names, constants and plain values count; comments, line numbers and where the file lies do not. What libraries
    do is taken as their name: a digest is compared within one set of installed versions.
    """
    digest = hashlib.sha256()
    for part in _parts(function, set()):
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()[:32]


def _parts(value: Any, seen: set[int]) -> Iterator[str]:
    """Yield what a value is made of, as text; of each function and class once, so that recursion ends."""
    if isinstance(value, _PLAIN):
        yield repr(value)
        return
    if isinstance(value, tuple | frozenset):
        yield type(value).__name__
        yield from (
            sorted("".join(_parts(item, seen)) for item in value)
            if isinstance(value, frozenset)
            else (part for item in value for part in _parts(item, seen))
        )
        return
    if id(value) in seen:
        yield "again"
        return
    seen.add(id(value))
    if isinstance(value, CodeType):
        yield from _of_code(value, seen)
    elif isinstance(value, FunctionType):
        yield from _of_function(value, seen) if _is_users_own(str(value.__module__)) else _name(value)
    elif isinstance(value, MethodType):
        yield from _parts(value.__func__, seen)
        yield from _of_object(value.__self__, seen)
    elif isinstance(value, functools.partial):
        yield from _parts((value.func, value.args, tuple(sorted(value.keywords.items()))), seen)
    elif isinstance(value, Tool):
        yield repr(value.spec)
        yield from _parts((value.function, value.reverse, value.confirm), seen)
    elif isinstance(value, type):
        yield from _of_class(value, seen) if _is_users_own(value.__module__) else _name(value)
    elif isinstance(value, ModuleType) or not callable(value):
        yield from _name(value)
    else:
        yield from _of_object(value, seen)


def _of_code(code: CodeType, seen: set[int]) -> Iterator[str]:
    yield code.co_name
    yield code.co_code.hex()
    yield ",".join((*code.co_names, *code.co_varnames))
    yield from _parts(code.co_consts, seen)


def _of_function(function: FunctionType, seen: set[int]) -> Iterator[str]:
    yield from _of_code(function.__code__, seen)
    yield from _parts(function.__defaults__ or (), seen)
    for cell in function.__closure__ or ():
        yield from _captured(cell, seen)
    for name in sorted(_names(function.__code__)):
        if name in function.__globals__:
            yield name
            yield from _parts(function.__globals__[name], seen)


def _captured(cell: Any, seen: set[int]) -> Iterator[str]:
    try:
        yield from _parts(cell.cell_contents, seen)
    except ValueError:  # not filled yet
        yield "empty"


def _names(code: CodeType) -> set[str]:
    """Return the names that a function and those inside it look up."""
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _of_class(kind: type, seen: set[int]) -> Iterator[str]:
    yield kind.__qualname__
    for name, member in sorted(vars(kind).items()):
        function = getattr(member, "__func__", getattr(member, "fget", member))
        if isinstance(function, (FunctionType, *_PLAIN)) and name not in ("__module__", "__doc__", "__firstlineno__"):
            yield name
            yield from _parts(function, seen)


def _of_object(value: Any, seen: set[int]) -> Iterator[str]:
    """Yield the class of an object and its plain attributes; others may change while a program runs."""
    yield from _parts(type(value), seen)
    for name, attribute in sorted(_attributes(value).items()):
        if isinstance(attribute, _PLAIN):
            yield f"{name}={attribute!r}"


def _attributes(value: Any) -> Mapping[str, Any]:
    """Return the attributes of an object as they lie there; asking it for them could run code of its own."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if type(found) is dict else {}


def _name(value: Any) -> Iterator[str]:
    """Yield the name of a function, class or module, or that of the class of anything else."""
    named = value if isinstance(value, type | FunctionType) else type(value)
    yield value.__name__ if isinstance(value, ModuleType) else f"{named.__module__}.{named.__qualname__}"


@functools.cache
def _is_users_own(module: str) -> bool:
    """Whether a module is the user's, not one of Python or of an installed package; a notebook has no file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module not in sys.builtin_module_names
    path = Path(file).resolve()
    return module.partition(".")[0] != "wtb" and not any(path.is_relative_to(folder) for folder in _installed())


@functools.cache
def _installed() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({Path(sysconfig.get_paths()[name]).resolve() for name in names})
