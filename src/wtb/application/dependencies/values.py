"""Values: turns an object into texts that are equal in every process; it reports code inside, but does not read it."""

from __future__ import annotations

import array
import asyncio
import functools
import hashlib
import logging
import os
import random
import re
import sys
import threading
import types
from collections import ChainMap, defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from importlib import metadata
from operator import attrgetter, itemgetter
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeVar
from uuid import UUID

from wtb.application.dependencies.objects import (
    ITEMS,
    attributes_of,
    full_name,
    has,
    is_a,
    items_of,
    module_of,
    name_of,
)
from wtb.application.dependencies.own_code import is_own_module, project_root
from wtb.domain.tools import Tool

F = TypeVar("F", bound=Callable[..., Any])

_PLAIN = (str, bytes, int, float, complex, bool, type(None), type(...), type(NotImplemented))
_PLAIN_KINDS = frozenset(_PLAIN)
_BY_REPR = (
    re.Pattern,
    PurePath,
    date,
    time,
    timedelta,
    tzinfo,
    Decimal,
    Fraction,
    UUID,
    range,
    slice,
    itemgetter,
    attrgetter,
)
"""Types whose repr shows the whole value."""
IMMUTABLE = (*_PLAIN, *_BY_REPR)
"""Types whose values cannot be changed in place."""
_BY_NAME = (
    logging.Logger,
    logging.LoggerAdapter,
    type(threading.Lock()),
    type(threading.RLock()),
    threading.Event,
    threading.Condition,
    threading.Semaphore,
    asyncio.Lock,
    asyncio.Event,
    asyncio.Semaphore,
    Executor,
    type(os.environ),
)
"""Types that hold no data that a result could depend on. Reads of environment variables are observed elsewhere."""
_FIELDS = ("pydantic.fields.FieldInfo", "pydantic.fields.ModelPrivateAttr", "dataclasses.Field", "attr._make.Attribute")
"""Library types that describe the fields of classes: all of their attributes are data."""
_SENTINELS = (
    "pydantic_core._pydantic_core.PydanticUndefinedType",
    "dataclasses._MISSING_TYPE",
    "dataclasses._HAS_DEFAULT_FACTORY_CLASS",
    "attr._make._Nothing",
)
_EQUIPMENT = (
    "wtb.application.",
    "wtb.batch_results",
    "wtb.bench",
    "wtb.bootstrap",
    "wtb.infrastructure.",
    "wtb.runs",
)
"""The modules of benches, runs, results and services. Their contents do not count: a bench reaches every tool."""
_MADE_BY_USERS = ("wtb.infrastructure.evaluators.", "wtb.infrastructure.langgraph.")
"""The modules of evaluators and graphs; they count, since they hold the user's functions and settings."""
_SHORT = 200
_DEEPEST = 100
"""How deep values may be nested; deeper ones could overflow Python's stack."""
_OWN_DEPTH = 6
_OWN_MOST = 2_000


_KNOWN: list[tuple[type, Callable[[Any], Any]]] = []


def known_as(kind: type) -> Callable[[F], F]:
    """Register a function that returns what an object of a library's type depends on, or None if it does not know."""

    def register(function: F) -> F:
        _KNOWN.append((kind, function))
        return function

    return register


def _made_of(value: Any) -> Any:
    """Return what an object depends on, from the function registered for its type; None if there is none."""
    for kind, function in _KNOWN:
        if is_a(value, kind) and (found := function(value)) is not None:
            return found
    return None


def is_code(value: Any) -> bool:
    """Whether something is a function, a class or a tool."""
    return is_a(value, CodeType | FunctionType | Tool) or is_a(value, type)


def plain_tokens(value: Any) -> Iterator[str]:
    """Yield the tokens of a constant in code."""
    if is_a(value, tuple):
        yield f"tuple {len(value)}"
        for item in value:
            yield from plain_tokens(item)
    elif is_a(value, frozenset):
        yield f"frozenset {len(value)}"
        yield from sorted("".join(plain_tokens(item)) for item in value)
    else:
        yield f"{type(value).__name__} {value!r}"


class TooMuch(Exception):
    """A value holds more than is inspected."""


class Reader:
    """Reads one value. An object that was met before becomes a number, so that cycles end."""

    def __init__(
        self,
        code: Callable[[Any], Iterator[str]],
        opaque: Callable[[Any], Iterator[str]],
        hidden: Callable[[Any], Iterator[str]],
        may_go_on: Callable[[], bool],
    ) -> None:
        self._code = code
        self._opaque = opaque
        self._hidden = hidden
        self._may_go_on = may_go_on
        self._met: dict[int, tuple[int, Any]] = {}
        self._depth = 0

    def knows(self, value: Any) -> None:
        """Note that a value is read elsewhere, so references to it are not followed."""
        self._met[id(value)] = (len(self._met), value)

    def read(self, value: Any) -> Iterator[str]:
        """Yield what a value is made of."""
        kind = type(value)
        if kind in _PLAIN:
            yield _long(value) if kind in (str, bytes) and len(value) > _SHORT else _short(value)
            return
        if id(value) in self._met:
            yield f"again {self._met[id(value)][0]}"
            return
        self._met[id(value)] = (len(self._met), value)
        if not self._may_go_on():
            raise TooMuch
        if self._depth == _DEEPEST:
            yield from self._hidden(value)
            return
        self._depth += 1
        yield from self._of(value)
        self._depth -= 1

    def _of(self, value: Any) -> Iterator[str]:
        if type(value) in (list, tuple, dict):
            yield from self._of_builtin(value)
        elif is_code(value):
            yield from self._code(value)
        elif is_a(value, MethodType):
            yield from self._code(value.__func__)
            yield from self.read(value.__self__)
        elif is_a(value, functools.partial):
            yield from self._all(value.func, value.args, tuple(sorted(value.keywords.items())))
        elif is_a(value, ModuleType):
            yield from self._opaque(value) if is_own_module(value.__name__) else (_versioned(value.__name__),)
        elif has(type(value), "__wtb_fingerprint__"):
            yield name_of(type(value))
            yield from self.read(value.__wtb_fingerprint__())
        elif is_a(value, types.GenericAlias | types.UnionType) or module_of(type(value)) == "typing":
            yield from self._of_type(value)
        elif is_a(value, Enum):
            yield from self._code(type(value))
            yield str(attributes_of(value).get("_name_"))
        elif is_own_module(module_of(type(value))):
            yield from self._of_own(value)
        elif (container := _container(value)) is not None:
            yield f"{full_name(type(value))} {len(container)}"
            yield from self._all(*container)
        else:
            yield from self._of_object(value)

    def _of_builtin(self, value: Any) -> Iterator[str]:
        data = _plain_data(value)
        if data is not None:
            yield data
            return
        yield f"{type(value).__name__} {len(value)}"
        yield from self._all(*(_container(value) or ()))

    def _all(self, *items: Any) -> Iterator[str]:
        for item in items:
            yield from self.read(item)

    def _of_type(self, value: Any) -> Iterator[str]:
        """Yield the contents of an annotation: `list[Own]`, `Annotated[str, "why"]`, a type variable."""
        yield f"{name_of(type(value))} {getattr(value, '__name__', getattr(value, '__forward_arg__', ''))}"
        for name in ("__origin__", "__args__", "__metadata__", "__bound__", "__constraints__"):
            yield from self.read(getattr(value, name, None))

    def _of_object(self, value: Any) -> Iterator[str]:
        name = name_of(type(value))
        if is_a(value, set | frozenset):
            yield f"{name} {len(value)}"
            yield from sorted("".join(self._apart(item)) for item in value)
        elif is_a(value, bytearray | memoryview | array.array):
            yield f"{name} {hashlib.sha256(bytes(value)).hexdigest()}"
        elif is_a(value, random.Random):
            yield from self._all(type(value), value.getstate())
        elif is_a(value, PurePath):
            yield f"{name} {_placed(str(value))}"
        elif is_a(value, _BY_REPR):
            yield f"{name} {value!r}"
        elif is_a(value, _BY_NAME) or _is_builtin(value):
            yield f"{name} {getattr(value, '__qualname__', '')}"
        else:
            yield from self._of_library(value)

    def _apart(self, item: Any) -> Iterator[str]:
        """Read an item of a set by itself, because sets have another order in every process."""
        reader = Reader(self._code, self._opaque, self._hidden, self._may_go_on)
        reader._met = {} if type(item) in _PLAIN else dict(self._met)
        reader._depth = self._depth
        return reader.read(item)

    def _of_own(self, value: Any) -> Iterator[str]:
        """Yield an object of the user's own class: the class, and all attributes."""
        yield from self._code(type(value))
        for kind in (str, bytes, int, float, complex):  # an own class that extends text or numbers
            if is_a(value, kind):
                yield kind.__repr__(value)
        for name, attribute in attributes_of(value).items():
            yield str(name)
            if name == ITEMS and is_a(value, set | frozenset):
                yield from sorted("".join(self._apart(item)) for item in attribute)
            else:
                yield from self.read(attribute)

    def _of_library(self, value: Any) -> Iterator[str]:
        yield library_name(type(value))
        if (known := _made_of(value)) is not None:
            yield from self.read(known)
        elif _is_equipment(value):
            return
        elif is_a(wrapped := attributes_of(value).get("__wrapped__"), FunctionType):  # functools.cache and the like
            yield from self._code(wrapped)
        elif (data := _array_data(value)) is not None:
            yield data
        elif "Secret" in name_of(type(value)):
            return
        elif (fields := _fields(value)) is not None:
            for name, field in fields.items():
                yield str(name)
                yield from self.read(field)
        else:
            yield from self._opaque(value)


def _short(value: Any) -> str:
    return f"{type(value).__name__} {(_placed(value) if type(value) is str else value)!r}"


def _placed(text: str) -> str:
    """Return a path inside the project without the project's folder, so that a clone elsewhere has the same values."""
    root = str(project_root())
    is_inside = text.startswith(root) and text[len(root) : len(root) + 1] in ("", os.sep)
    return f"<project>{text[len(root) :]}" if is_inside else text


def _long(value: str | bytes) -> str:
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return f"{type(value).__name__} {hashlib.sha256(data).hexdigest()}"


def _plain_data(value: Any) -> str | None:
    """Return a digest of a container that holds only plain values; this is fast, as there may be millions of them."""
    kinds = set(map(type, value))
    if type(value) is dict:
        kinds.update(map(type, value.values()))
    if not kinds <= _PLAIN_KINDS or (str in kinds and len(value) < _SHORT):
        return None
    text = repr(value)
    if str(project_root()) in text:  # the folder must not count at the beginning of a path
        return None
    return f"{name_of(type(value))} {len(value)} {hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _container(value: Any) -> tuple[Any, ...] | None:
    """Return the contents of one of Python's containers, in order; None for anything else."""
    if module_of(type(value)) not in ("builtins", "collections", "types") or is_a(value, set | frozenset):
        return None
    if type(value) in (types.MappingProxyType, ChainMap, types.SimpleNamespace):
        held = vars(value) if type(value) is types.SimpleNamespace else value
        return tuple(part for pair in held.items() for part in pair)
    items = items_of(value)
    if items is None:
        return None
    made_by = (value.default_factory,) if is_a(value, defaultdict) else ()
    return (*made_by, *(part for pair in items for part in pair)) if is_a(value, dict) else tuple(items)


def _array_data(value: Any) -> str | None:
    """Return a digest of an array of numbers, such as numpy's; None for anything else."""
    kind = type(value)
    if not all(has(kind, name) for name in ("dtype", "shape", "tobytes")) or has(kind, "__getattr__"):
        return None
    if getattr(value.dtype, "hasobject", True):
        return None
    return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"


def _fields(value: Any) -> Mapping[str, Any] | None:
    """Return the fields of a library's dataclass, attrs object or pydantic model; None for other objects."""
    kind = type(value)
    if full_name(kind) in _SENTINELS:
        return {}
    marks = ("__dataclass_fields__", "__attrs_attrs__", "__pydantic_fields__")
    if full_name(kind) in _FIELDS or module_of(kind) == "collections" or any(has(kind, mark) for mark in marks):
        return attributes_of(value)
    return None


def own_attributes(value: Any) -> Mapping[str, Any] | None:
    """Return the attributes of an object of the user's own class that get a name each; None for other objects."""
    kind = type(value)
    if not is_own_module(module_of(kind)) or has(kind, "__wtb_fingerprint__") or is_a(value, type | Enum):
        return None
    if is_a(value, (*_PLAIN, list, dict, tuple, set, frozenset)) or _made_of(value) is not None:
        return None
    return attributes_of(value)


def own_code_inside(value: Any) -> list[Any]:
    """Return the user's own functions and objects that a library's object holds, down to a limited depth."""
    found: list[Any] = []
    met: dict[int, Any] = {}
    waiting = [(value, 0)]
    while waiting and len(met) < _OWN_MOST:
        each, depth = waiting.pop(0)
        if id(each) in met or is_a(each, _PLAIN):
            continue
        met[id(each)] = each
        if depth and is_own(each):
            found.append(each)
        elif depth < _OWN_DEPTH and not is_a(each, ModuleType | type) and not _is_equipment(each):
            waiting += [(inside, depth + 1) for inside in _inside(each)]
    return found


def _is_equipment(value: Any) -> bool:
    """Whether an object is a part of WTB that works for the user, and not a value that the user made."""
    module = module_of(type(value))
    return module.startswith(_EQUIPMENT) and not module.startswith(_MADE_BY_USERS)


def is_own(value: Any) -> bool:
    """Whether something is the user's: a function, a class, or an object of such a class."""
    if is_a(value, FunctionType | type):
        return is_own_module(module_of(value))
    return is_own_module(module_of(type(value))) or is_a(value, Tool)


def _inside(value: Any) -> list[Any]:
    if (items := items_of(value)) is not None:
        return [part for item in items[:1_000] for part in (item if is_a(value, dict) else (item,))]
    if is_a(value, MethodType):
        return [value.__func__, value.__self__]
    if is_a(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if is_a(value, FunctionType):
        inside = []
        for cell in value.__closure__ or ():
            with suppress(ValueError):
                inside.append(cell.cell_contents)
        return inside
    return list(attributes_of(value).values())


def _is_builtin(value: Any) -> bool:
    return type(value).__name__ in (
        "builtin_function_or_method",
        "method_descriptor",
        "wrapper_descriptor",
        "method-wrapper",
        "classmethod_descriptor",
    )


def library_name(thing: Any) -> str:
    """Return the full name of a library's function or class with the version of its package."""
    return _versioned(full_name(thing) if is_a(thing, type) else f"{module_of(thing)}.{thing.__qualname__}")


def _versioned(name: str) -> str:
    return f"{name} {_version(name.partition('.')[0])}"


@functools.cache
def _version(package: str) -> str:
    """Return the version of an installed package; empty for modules of Python and of the user."""
    if package in sys.stdlib_module_names or is_own_module(package):
        return ""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version("workflow-test-bench" if package == "wtb" else package)  # saves the search below
    names = _distributions().get(package, ())
    return metadata.version(names[0]) if names else ""


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    """Return the distributions of packages (`yaml` comes with PyYAML). Finding them takes a fifth of a second."""
    return metadata.packages_distributions()
