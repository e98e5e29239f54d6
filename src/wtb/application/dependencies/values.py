"""Values: what an object is made of, as texts that are the same in every process; code in it is told of, not read."""

from __future__ import annotations

import array
import functools
import hashlib
import logging
import os
import random
import re
import sys
import threading
import types
from collections import ChainMap, deque, namedtuple
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from importlib import metadata
from pathlib import PurePath
from types import CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, get_origin
from uuid import UUID

from wtb.application.dependencies.own_code import is_own_module, project_root
from wtb.domain.tools import Tool

_PLAIN = (str, bytes, int, float, complex, bool, type(None), type(...), type(NotImplemented))
_BY_REPR = (re.Pattern, PurePath, date, time, timedelta, tzinfo, Decimal, Fraction, UUID, range, slice)
"""Values whose repr says all of them."""
IMMUTABLE = (*_PLAIN, *_BY_REPR)
"""Values that nobody can change in place."""
_BY_NAME = (
    logging.Logger,
    logging.LoggerAdapter,
    type(threading.Lock()),
    type(threading.RLock()),
    threading.Event,
    type(os.environ),
)
"""Objects that hold no data that a result could depend on; which variables are read is observed."""
_FUNCTION_IN = ("__func__", "fget", "fset", "fdel", "func", "wrapped", "__wrapped__")
"""Where methods of classes, properties, cached ones and validators keep their functions."""
_MADE_BY_PYTHON = ("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__firstlineno__")
_COUNTED_DUNDERS = (
    "__annotations__",
    "__slots__",
    "__pydantic_fields__",
    "__dataclass_fields__",
    "__attrs_attrs__",
    "__match_args__",
)
_FIELDS = ("pydantic.fields.FieldInfo", "pydantic.fields.ModelPrivateAttr", "dataclasses.Field", "attr._make.Attribute")
"""Types of libraries that describe the fields of classes: all of them is data."""
_SENTINELS = (
    "pydantic_core._pydantic_core.PydanticUndefinedType",
    "dataclasses._MISSING_TYPE",
    "dataclasses._HAS_DEFAULT_FACTORY_CLASS",
    "attr._make._Nothing",
)
_UNCOUNTED = ("__pydantic_fields_set__", "__weakref__", "__dict__", "_field_type", "_original_assignment")
_TUPLE_FIELD = type(namedtuple("_Pair", "left").left)  # type: ignore[attr-defined]
_OWN_DEPTH = 6
_OWN_MOST = 2_000


@functools.singledispatch
def made_of(value: Any) -> Any:
    """Return what an object of a library depends on; None when that is not known. Who knows a type registers it."""
    return None


def is_code(value: Any) -> bool:
    """Whether something is a function, a class or a tool."""
    return isinstance(value, CodeType | FunctionType | Tool) or (isinstance(value, type) and get_origin(value) is None)


def plain_tokens(value: Any) -> Iterator[str]:
    """Yield a constant of code."""
    if isinstance(value, tuple):
        yield f"tuple {len(value)}"
        for item in value:
            yield from plain_tokens(item)
    elif isinstance(value, frozenset):
        yield f"frozenset {len(value)}"
        yield from sorted("".join(plain_tokens(item)) for item in value)
    else:
        yield f"{type(value).__name__} {value!r}"


class Reader:
    """Reads one value; what was met in it is told by number when it comes again, so that cycles end."""

    def __init__(
        self,
        code: Callable[[Any], Iterator[str]],
        opaque: Callable[[Any], Iterator[str]],
        may_go_on: Callable[[], bool],
    ) -> None:
        self._code = code
        self._opaque = opaque
        self._may_go_on = may_go_on
        self._met: dict[int, tuple[int, Any]] = {}

    def knows(self, value: Any) -> None:
        """Say that a value is read elsewhere: what leads back to it ends there."""
        self._met[id(value)] = (len(self._met), value)

    def read(self, value: Any) -> Iterator[str]:
        """Yield what a value is made of."""
        if isinstance(value, _PLAIN) and type(value) in _PLAIN:
            yield _long(value) if isinstance(value, str | bytes) and len(value) > 200 else _short(value)
            return
        if id(value) in self._met:
            yield f"again {self._met[id(value)][0]}"
            return
        self._met[id(value)] = (len(self._met), value)
        if not self._may_go_on():
            yield from self._opaque(value)
            return
        yield from self._of(value)

    def _of(self, value: Any) -> Iterator[str]:
        if is_code(value):
            yield from self._code(value)
        elif isinstance(value, MethodType):
            yield from self._code(value.__func__)
            yield from self.read(value.__self__)
        elif isinstance(value, functools.partial):
            yield from self._all(value.func, value.args, tuple(sorted(value.keywords.items())))
        elif isinstance(value, ModuleType):
            yield from self._opaque(value) if is_own_module(value.__name__) else (_versioned(value.__name__),)
        elif hasattr(type(value), "__wtb_fingerprint__"):
            yield f"{type(value).__qualname__} {value.__wtb_fingerprint__()!r}"
        elif isinstance(value, types.GenericAlias | types.UnionType) or type(value).__module__ == "typing":
            yield re.sub(r" at 0x[0-9a-f]+", "", repr(value))
        elif (container := _container(value)) is not None:
            yield f"{type(value).__module__}.{type(value).__qualname__} {len(value)}"
            yield from self._all(*container)
        else:
            yield from self._of_object(value)

    def _all(self, *items: Any) -> Iterator[str]:
        for item in items:
            yield from self.read(item)

    def _of_object(self, value: Any) -> Iterator[str]:
        kind = type(value)
        if isinstance(value, set | frozenset):
            yield f"{kind.__name__} {len(value)}"
            yield from sorted("".join(self.read(item)) for item in value)
        elif isinstance(value, Enum):
            yield from self._code(kind)
            yield value.name
        elif isinstance(value, bytearray | memoryview | array.array):
            yield f"{kind.__name__} {hashlib.sha256(bytes(value)).hexdigest()}"
        elif isinstance(value, random.Random):
            yield from self._all(kind, value.getstate())
        elif isinstance(value, PurePath):
            yield f"{kind.__name__} {_placed(str(value))}"
        elif isinstance(value, _BY_REPR):
            yield f"{kind.__name__} {value!r}"
        elif isinstance(value, _BY_NAME) or _is_builtin(value):
            yield f"{kind.__name__} {getattr(value, '__qualname__', '')}"
        elif is_own_module(kind.__module__):
            yield from self._of_own(value)
        else:
            yield from self._of_library(value)

    def _of_own(self, value: Any) -> Iterator[str]:
        """Yield an object of the user's own class: the class, and all attributes."""
        yield from self._code(type(value))
        for kind in (str, bytes, int, float, complex):  # a text or number with a class of its own
            if isinstance(value, kind):
                yield kind.__repr__(value)
        for name, attribute in attributes_of(value).items():
            yield name
            yield from self.read(attribute)

    def _of_library(self, value: Any) -> Iterator[str]:
        if (known := made_of(value)) is not None:
            yield library_name(type(value))
            yield from self.read(known)
        elif isinstance(getattr(value, "__wrapped__", None), FunctionType):  # functools.cache and the like
            yield library_name(type(value))
            yield from self._code(value.__wrapped__)
        elif (data := _array_data(value)) is not None:
            yield f"{library_name(type(value))} {data}"
        elif "Secret" in type(value).__name__:
            yield library_name(type(value))
        elif (fields := _fields(value)) is not None:
            yield library_name(type(value))
            for name, field in fields.items():
                yield name
                yield from self.read(field)
        else:
            yield from self._opaque(value)


def _short(value: Any) -> str:
    return f"{type(value).__name__} {(_placed(value) if isinstance(value, str) else value)!r}"


def _placed(text: str) -> str:
    """Return a path inside the project without the project's folder: a clone elsewhere has the same values."""
    root = str(project_root())
    is_inside = text.startswith(root) and text[len(root) : len(root) + 1] in ("", os.sep)
    return f"<project>{text[len(root) :]}" if is_inside else text


def _long(value: str | bytes) -> str:
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return f"{type(value).__name__} {hashlib.sha256(data).hexdigest()}"


def _container(value: Any) -> tuple[Any, ...] | None:
    """Return what a container of Python's holds, in its order; None for anything else."""
    if type(value).__module__ not in ("builtins", "collections", "types") or isinstance(value, set | frozenset):
        return None
    if isinstance(value, types.MappingProxyType | dict | ChainMap | types.SimpleNamespace):
        items = vars(value) if isinstance(value, types.SimpleNamespace) else value
        return tuple(part for pair in items.items() for part in pair)
    if isinstance(value, list | tuple | deque):
        return tuple(value)
    return None


def _array_data(value: Any) -> str | None:
    """Return a digest of an array of numbers, as numpy has them."""
    if not all(hasattr(value, name) for name in ("dtype", "shape", "tobytes")) or str(value.dtype) == "object":
        return None
    return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"


def _fields(value: Any) -> Mapping[str, Any] | None:
    """Return the declared fields of an object of a library: of a dataclass, an attrs class or a pydantic model."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name in _SENTINELS:
        return {}
    if name in _FIELDS or any(
        hasattr(kind, mark) for mark in ("__dataclass_fields__", "__attrs_attrs__", "model_fields")
    ):
        return attributes_of(value)
    return None


def own_attributes(value: Any) -> Mapping[str, Any] | None:
    """Return the attributes of an object of the user's own class that are worth a name each; None for others."""
    kind = type(value)
    if not is_own_module(kind.__module__) or hasattr(kind, "__wtb_fingerprint__") or isinstance(value, Enum):
        return None
    if isinstance(value, (*_PLAIN, list, dict, tuple, set, frozenset)) or made_of(value) is not None:
        return None
    return attributes_of(value)


def attributes_of(value: Any) -> Mapping[str, Any]:
    """Return the attributes of an object as they lie there; asking it for them could run code of its own."""
    found: dict[str, Any] = {}
    for kind in type(value).__mro__:
        for name, slot in vars(kind).items():
            if isinstance(slot, MemberDescriptorType) and name not in _UNCOUNTED:
                with suppress(AttributeError):  # not filled yet
                    found.setdefault(name, slot.__get__(value))
    with suppress(AttributeError):
        lying = object.__getattribute__(value, "__dict__")
        found.update(lying if type(lying) is dict else {})
    for kind in (list, dict, set, tuple, deque):
        if isinstance(value, kind):
            found["the items"] = list(value.items() if isinstance(value, dict) else value)
    return dict(sorted(found.items()))


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield what a class defines itself, in the order of the names."""
    if issubclass(kind, Enum):
        yield from ((each.name, each.value) for each in kind)
    for name, member in sorted(vars(kind).items()):
        is_dunder = name.startswith("__") and name.endswith("__")
        if name in _MADE_BY_PYTHON or name.startswith(("_abc_", "__abstractmethods")):
            continue
        if is_dunder and name not in _COUNTED_DUNDERS and not functions_of(member):
            continue
        if issubclass(kind, Enum) and not functions_of(member):
            continue
        if isinstance(member, MemberDescriptorType | types.GetSetDescriptorType | _TUPLE_FIELD):
            continue
        yield name, tuple(member) if name == "__attrs_attrs__" else member


def functions_of(member: Any) -> list[Any]:
    """Return the functions behind a member of a class: of a method, a property, a validator."""
    if isinstance(member, FunctionType):
        return [member]
    if isinstance(member, type) or is_own_module(type(member).__module__):
        return []
    found = [getattr(member, name, None) for name in _FUNCTION_IN]
    return [each for each in found if isinstance(each, FunctionType | MethodType)]


def own_code_inside(value: Any) -> list[Any]:
    """Return the user's own functions and objects that an object of a library holds, not deep inside it."""
    found: list[Any] = []
    met: dict[int, Any] = {}
    waiting = [(value, 0)]
    while waiting and len(met) < _OWN_MOST:
        each, depth = waiting.pop(0)
        if id(each) in met or isinstance(each, _PLAIN):
            continue
        met[id(each)] = each
        if depth and is_own(each):
            found.append(each)
        elif depth < _OWN_DEPTH and not isinstance(each, ModuleType | type):
            waiting += [(inside, depth + 1) for inside in _inside(each)]
    return found


def is_own(value: Any) -> bool:
    """Whether something is the user's: a function, a class, or an object of such a class."""
    if isinstance(value, FunctionType):
        return is_own_module(str(value.__module__))
    if isinstance(value, type):
        return is_own_module(value.__module__)
    return is_own_module(type(value).__module__) or isinstance(value, Tool)


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())[:1_000]
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)[:1_000]
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, FunctionType):
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
    return _versioned(f"{thing.__module__}.{thing.__qualname__}")


def _versioned(name: str) -> str:
    return f"{name} {_version(name.partition('.')[0])}"


@functools.cache
def _version(package: str) -> str:
    """Return the version of an installed package; empty for modules of Python and of the user."""
    if package in sys.stdlib_module_names or is_own_module(package):
        return ""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    names = _distributions().get(package, ())
    return metadata.version(names[0]) if names else ""


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    """Return which distributions packages come with (`yaml` with PyYAML); it takes a fifth of a second to find out."""
    return metadata.packages_distributions()
