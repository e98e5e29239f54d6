"""Code: what a workflow's functions are made of, and whether that is still what it was."""

from __future__ import annotations

import functools
import hashlib
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from importlib import metadata
from pathlib import Path, PurePath
from types import CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from wtb.domain.errors import InvalidInput
from wtb.domain.tools import Tool
from wtb.domain.workflow import WorkflowDefinition

_PLAIN = (str, bytes, int, float, complex, bool, type(None), type(...))
_MEMBERS = (*_PLAIN, list, dict, set, tuple, frozenset, type)
_PARTS = ("__func__", "fget", "func")
"""Where methods of classes, properties and cached ones keep their function."""
_BY_REPR = (re.Pattern, PurePath, date, time, timedelta, Decimal, UUID, range)
"""Values whose repr says all of them."""


def with_code(definition: WorkflowDefinition) -> dict[str, Any]:
    """Return a workflow as data with a digest of the code of each node, and of each variant as `node@variant`."""
    code = {node.name: _known_digest(node.function) for node in definition.nodes if node.function is not None}
    for variant in definition.variants:
        if variant.function is not None:
            code[f"{variant.node}@{variant.name}"] = _known_digest(variant.function)
    return {**definition.to_dict(), "code": code}


_DIGESTS: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""Of functions that were looked at before: an edited function is another one, and a batch begins thousands of runs."""


def _known_digest(function: Any) -> str:
    try:
        digest = _DIGESTS.get(function)
        if digest is None:
            digest = _DIGESTS[function] = code_digest(function)
    except TypeError:  # an object that cannot be a key
        digest = code_digest(function)
    return digest


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
    return _digest(_parts(function, _Walk()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What the result of a function depends on beside its arguments; `unseen` names what could not be looked into."""

    digest: str
    unseen: tuple[str, ...] = ()


def fingerprint(function: Any, config: Mapping[str, Any], version: str, tools: Callable[[str], Any]) -> Fingerprint:
    """Return what a node's implementation is made of, by value: two that could give different results differ.

    Beside the code these are values that it captured, defaults, bound arguments, attributes of callable objects and
    globals, where they are plain data, dataclasses or models; its config, the tools that it names, and the versions
    of Python and of packages. An object may say what it is by `__wtb_fingerprint__()`.
    """
    walk = _Walk(values=True, tools=tools)
    parts = [*_parts(function, walk), *_parts(dict(config), walk), version, sys.version]
    return Fingerprint(digest=_digest(iter(parts)), unseen=tuple(dict.fromkeys(walk.unseen)))


def _digest(parts: Iterator[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()[:32]


@dataclass(slots=True)
class _Walk:
    """One way through a function: what was seen, whether values that can change count, and what cannot be seen."""

    values: bool = False
    tools: Callable[[str], Any] | None = None
    seen: dict[int, tuple[int, Any]] = field(default_factory=dict)
    """What was met, by its id: as which it was met, and itself, so that nothing else gets its id."""
    unseen: list[str] = field(default_factory=list)


def _parts(value: Any, walk: _Walk) -> Iterator[str]:
    """Yield what a value is made of, as text; of each function and class once, so that recursion ends."""
    if isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r}"
        return
    if isinstance(value, tuple | frozenset):
        yield f"{type(value).__name__} {len(value)}"
        if isinstance(value, tuple):
            yield from (part for item in value for part in _parts(item, walk))
        else:
            yield from sorted("".join(_parts(item, walk)) for item in value)
        return
    if id(value) in walk.seen:
        yield f"again {walk.seen[id(value)][0]}"
        return
    walk.seen[id(value)] = (len(walk.seen), value)
    yield from _of_callable(value, walk) if _is_code(value) else _of_other(value, walk)


def _is_code(value: Any) -> bool:
    return isinstance(value, CodeType | FunctionType | MethodType | functools.partial | Tool | type)


def _of_callable(value: Any, walk: _Walk) -> Iterator[str]:
    if isinstance(value, CodeType):
        yield from _of_code(value, walk)
    elif isinstance(value, FunctionType):
        yield from (_of_function if _is_users_own(str(value.__module__)) else _of_library)(value, walk)
    elif isinstance(value, MethodType):
        yield from _parts(value.__func__, walk)
        yield from _of_object(value.__self__, walk)
    elif isinstance(value, functools.partial):
        yield from _parts((value.func, value.args, tuple(sorted(value.keywords.items()))), walk)
    elif isinstance(value, Tool):
        yield repr(value.spec)
        yield from _parts((value.function, value.reverse, value.confirm), walk)
    else:
        yield from _of_class(value, walk) if _is_users_own(value.__module__) else _name(value)


def _of_other(value: Any, walk: _Walk) -> Iterator[str]:
    if isinstance(value, ModuleType) or hasattr(type(value), "__wrapped__") or _is_builtin(value):
        yield from _name(value)
    elif isinstance(getattr(value, "__wrapped__", None), FunctionType):  # functools.cache and the like
        yield from _parts(value.__wrapped__, walk)
    elif walk.values:
        yield from _of_value(value, walk)
    elif callable(value):
        yield from _of_object(value, walk)
    else:
        yield from _name(value)


def _is_builtin(value: Any) -> bool:
    return type(value).__name__ in ("builtin_function_or_method", "method_descriptor", "wrapper_descriptor")


@functools.singledispatch
def made_of(value: Any) -> Any:
    """Return what an object of a library depends on; None when that is not known. Who knows a type registers it."""
    return None


def _of_value(value: Any, walk: _Walk) -> Iterator[str]:
    """Yield a value by what it holds, where that can be seen."""
    if hasattr(type(value), "__wtb_fingerprint__"):
        yield f"{type(value).__qualname__} {value.__wtb_fingerprint__()!r}"
    elif (known := made_of(value)) is not None:
        yield from _name(value)
        yield from _parts(known, walk)
    elif isinstance(value, list):
        yield f"list {len(value)}"
        yield from (part for item in value for part in _parts(item, walk))
    elif isinstance(value, dict):
        yield f"dict {len(value)}"
        yield from (part for key, item in value.items() for part in (*_parts(key, walk), *_parts(item, walk)))
    elif isinstance(value, set):
        yield from sorted("".join(_parts(item, walk)) for item in value)
    elif isinstance(value, Enum):
        yield f"{type(value).__module__}.{type(value).__qualname__}.{value.name}"
    elif is_dataclass(value) or hasattr(type(value), "model_fields"):
        yield from _name(value)
        yield from (part for pair in sorted(_attributes(value).items()) for part in _parts(pair, walk))
    elif isinstance(value, _BY_REPR):
        yield repr(value)
    elif callable(value):
        yield from _of_object(value, walk)
    else:
        walk.unseen.append(f"a {type(value).__module__}.{type(value).__qualname__}")
        yield from _name(value)


def _of_code(code: CodeType, walk: _Walk) -> Iterator[str]:
    yield code.co_name
    yield code.co_code.hex()
    yield ",".join((*code.co_names, *code.co_varnames))
    yield from _parts(code.co_consts, walk)
    for constant in code.co_consts if walk.tools is not None else ():
        if isinstance(constant, str) and constant.isprintable():
            yield from _named_tool(constant, walk)


def _named_tool(name: str, walk: _Walk) -> Iterator[str]:
    """Yield the tool that a text in the code may be the name of."""
    assert walk.tools is not None
    with suppress(InvalidInput):
        yield from _parts(walk.tools(name), walk)


def _of_function(function: FunctionType, walk: _Walk) -> Iterator[str]:
    yield from _of_code(function.__code__, walk)
    yield from _parts(function.__defaults__ or (), walk)
    yield from _parts(tuple(sorted((function.__kwdefaults__ or {}).items())), walk)
    for cell in function.__closure__ or ():
        yield from _captured(cell, walk)
    names = _names(function.__code__)
    for name in sorted(names):
        if name in function.__globals__:
            yield name
            yield from _named(function.__globals__[name], names, walk)
        elif name in sys.modules:  # imported where it is used
            yield from _named(sys.modules[name], names, walk)


def _of_library(function: FunctionType, walk: _Walk) -> Iterator[str]:
    """Yield the name of a library's function, and what of the user's it stands around or was made with."""
    yield from _name(function)
    wrapped = getattr(function, "__wrapped__", None)
    yield from _parts(wrapped, walk)
    for cell in (function.__closure__ or ()) if wrapped is None else ():
        yield from _captured(cell, walk)


def _named(value: Any, names: set[str], walk: _Walk, inside: tuple[Any, ...] = ()) -> Iterator[str]:
    """Yield what a name stands for; of a module of the user's what the function looks up in it."""
    yield from _parts(value, walk)
    if isinstance(value, ModuleType) and value not in inside and _is_users_own(value.__name__):
        for name in sorted(names & vars(value).keys()):
            yield name
            yield from _named(vars(value)[name], names, walk, (*inside, value))


def _captured(cell: Any, walk: _Walk) -> Iterator[str]:
    try:
        yield from _parts(cell.cell_contents, walk)
    except ValueError:  # not filled yet
        yield "empty"


def _names(code: CodeType) -> set[str]:
    """Return the names that a function and those inside it look up."""
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _of_class(kind: type, walk: _Walk) -> Iterator[str]:
    yield kind.__qualname__
    yield from _parts(kind.__bases__, walk)
    for name, member in sorted(vars(kind).items()):
        function = next((found for part in _PARTS if (found := getattr(member, part, None)) is not None), member)
        if isinstance(function, FunctionType) or (isinstance(function, _MEMBERS) and not name.startswith("__")):
            yield name
            yield from _parts(function, walk)


def _of_object(value: Any, walk: _Walk) -> Iterator[str]:
    """Yield the class of an object and its plain attributes; others may change while a program runs."""
    yield from _parts(type(value), walk)
    for name, attribute in sorted(_attributes(value).items()):
        if walk.values:
            yield name
            yield from _parts(attribute, walk)
        elif isinstance(attribute, _PLAIN):
            yield f"{name}={attribute!r}"


def _attributes(value: Any) -> Mapping[str, Any]:
    """Return the attributes of an object as they lie there; asking it for them could run code of its own."""
    found: dict[str, Any] = {}
    for kind in type(value).__mro__:
        slots = {name: slot for name, slot in vars(kind).items() if isinstance(slot, MemberDescriptorType)}
        for name, slot in slots.items():
            with suppress(AttributeError):  # not filled yet
                found.setdefault(name, slot.__get__(value))
    with suppress(AttributeError):
        lying = object.__getattribute__(value, "__dict__")
        found.update(lying if type(lying) is dict else {})
    return found


def _name(value: Any) -> Iterator[str]:
    """Yield the name of a function, class or module with the version of its package, or that of the class of others."""
    named = value if isinstance(value, type | FunctionType) or _is_builtin(value) else type(value)
    name = value.__name__ if isinstance(value, ModuleType) else f"{named.__module__}.{named.__qualname__}"
    yield f"{name} {_version(name.partition('.')[0])}"


@functools.cache
def _version(package: str) -> str:
    """Return the version of an installed package; empty for modules of Python and of the user."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


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
