"""Inspects objects and classes without running any of their code."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import Enum
from types import FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, NamedTuple, get_args

from wtb.application.dependencies.own_code import is_own_module

_FUNCTION_IN = ("__func__", "fget", "fset", "fdel", "func", "wrapped", "__wrapped__")
"""The attributes in which class methods, properties, cached properties and validators keep their functions."""
_MADE_BY_PYTHON = ("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__firstlineno__")
_FIELD_LISTS = ("__pydantic_fields__", "__dataclass_fields__", "__attrs_attrs__")
_COUNTED_DUNDERS = ("__annotations__", "__slots__", "__match_args__", *_FIELD_LISTS)
_UNCOUNTED = ("__pydantic_fields_set__", "__weakref__", "__dict__", "_field_type", "_original_assignment")
ITEMS = "the items"


class _Pair(NamedTuple):
    left: int


_TUPLE_FIELD: Any = type(vars(_Pair)["left"])


def is_a(value: Any, kinds: Any) -> bool:
    """Whether the type of a value is one of these; `isinstance` would also ask the value itself, which may lie."""
    kind = type(value)
    if type(kind) is type:
        return issubclass(kind, kinds)
    # Abstract classes put the classes that they check into sets, which would call a metaclass's own hash.
    wanted = kinds if type(kinds) is tuple else get_args(kinds) or (kinds,)
    return any(each is one for each in _mro(kind) for one in wanted)


def bases(kind: type) -> tuple[type, ...]:
    """Return the bases of a class, without asking its metaclass."""
    found: tuple[type, ...] = type.__dict__["__bases__"].__get__(kind)
    return found


def class_vars(kind: type) -> Mapping[str, Any]:
    """Return what a class defines itself, without asking its metaclass."""
    found: Mapping[str, Any] = type.__dict__["__dict__"].__get__(kind)
    return found


def _mro(kind: type) -> tuple[type, ...]:
    found: tuple[type, ...] = type.__dict__["__mro__"].__get__(kind)
    return found


def has(kind: type, name: str) -> bool:
    """Whether a class or one of its bases defines a name."""
    return any(name in class_vars(each) for each in _mro(kind))


def module_of(thing: Any) -> str:
    """Return the module of a function or class; empty if it has none, or its `__module__` is no text."""
    found = type.__dict__["__module__"].__get__(thing) if is_a(thing, type) else getattr(thing, "__module__", None)
    return found if type(found) is str else ""


def name_of(kind: type) -> str:
    """Return the name of a class, without asking its metaclass."""
    return str(type.__dict__["__qualname__"].__get__(kind))


def full_name(kind: type) -> str:
    """Return the name of a class with its module."""
    return f"{module_of(kind)}.{name_of(kind)}"


def attributes_of(value: Any) -> Mapping[str, Any]:
    """Return the stored attributes of an object; `getattr` could run the object's own code."""
    found: dict[str, Any] = {}
    for kind in _mro(type(value)):
        for name, slot in class_vars(kind).items():
            if type(slot) is MemberDescriptorType and name not in _UNCOUNTED:
                with suppress(AttributeError):  # the slot has no value yet
                    found.setdefault(name, slot.__get__(value))
    found.update((name, held) for name, held in _dict_of(value).items() if name not in _UNCOUNTED)
    if (items := items_of(value)) is not None:
        found[ITEMS] = items
    return dict(sorted(found.items(), key=lambda pair: str(pair[0])))


def _dict_of(value: Any) -> dict[str, Any]:
    """Return the dictionary in which an object keeps its attributes."""
    for kind in _mro(type(value)):
        slot = class_vars(kind).get("__dict__")
        if type(slot) is types.GetSetDescriptorType and kind is not type:
            lying = slot.__get__(value)
            return dict(lying) if type(lying) is dict else {}
    return {}


def items_of(value: Any) -> list[Any] | None:
    """Return the items of a container, which may be a subclass; None for anything else."""
    for kind in (list, tuple, set, frozenset, deque):
        if is_a(value, kind):
            return list(kind.__iter__(value))
    return list(dict.items(value)) if is_a(value, dict) else None


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield what a class defines itself, sorted by name."""
    is_enum = issubclass(kind, Enum)
    if is_enum:
        chosen: Mapping[str, Any] = class_vars(kind).get("_member_map_", {})
        yield from ((name, attributes_of(each).get("_value_")) for name, each in chosen.items())
    for name, member in sorted(class_vars(kind).items()):
        is_dunder = name.startswith("__") and name.endswith("__")
        if name in _MADE_BY_PYTHON or name.startswith(("_abc_", "__abstractmethods")):
            continue
        if name == "__annotations__" and not member:  # Python adds an empty one on first access
            continue
        if (is_enum or (is_dunder and name not in _COUNTED_DUNDERS)) and not functions_of(member):
            continue
        if is_a(member, MemberDescriptorType | types.GetSetDescriptorType | _TUPLE_FIELD):
            continue
        yield name, tuple(member) if name == "__attrs_attrs__" else member


def functions_of(member: Any) -> list[Any]:
    """Return the functions behind a member of a class, such as a method, a property or a validator."""
    if type(member) is FunctionType:
        return [member]
    if is_a(member, type | ModuleType) or is_own_module(module_of(type(member))):
        return []
    if has(type(member), "__getattr__"):
        return []
    found = [getattr(member, name, None) for name in _FUNCTION_IN]
    return [each for each in found if type(each) in (FunctionType, MethodType)]
