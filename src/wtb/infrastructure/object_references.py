"""Describe an object as plain JSON, so that another process can import or make an equal one. Nothing is pickled."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any

from wtb.domain.errors import InvalidInput

_PLAIN = (type(None), bool, int, float, str)


def describe(value: Any) -> Any:
    """Return plain JSON from which `described` makes an equal object; raise InvalidInput if that is impossible.

    A function or a class is named by its module. An instance is named by its class and its fields.
    """
    if type(value) in _PLAIN:
        return value
    if type(value) in (list, tuple):
        return {type(value).__name__: [describe(each) for each in value]}
    if type(value) is dict and all(type(key) is str for key in value):
        return {"dict": {key: describe(each) for key, each in value.items()}}
    name = _name_of(value)
    if name is not None:
        return {"import": name}
    return {"make": _importable(type(value)), "fields": {key: describe(each) for key, each in _fields(value).items()}}


def described(data: Any) -> Any:
    """Return the object that was described."""
    if not isinstance(data, Mapping):
        return data
    if "import" in data:
        return _imported(data["import"])
    if "make" in data:
        return _imported(data["make"])(**{key: described(each) for key, each in data["fields"].items()})
    if "dict" in data:
        return {key: described(each) for key, each in data["dict"].items()}
    made = [described(each) for each in data.get("list", data.get("tuple", ()))]
    return tuple(made) if "tuple" in data else made


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields of an instance."""
    if dataclasses.is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value) if each.init}
    if getattr(value, "__dict__", None):
        raise InvalidInput(f"{value!r} holds values, and its class {type(value).__qualname__} is not a dataclass")
    return {}


def _name_of(value: Any) -> str | None:
    """Return the reference of an object that can be imported; None for an instance, which must be created."""
    if isinstance(value, Enum):
        return f"{_importable(type(value))}.{value.name}"
    if inspect.isroutine(value) or isinstance(value, type):
        return _importable(value)
    return _name_in_module(value)


def _name_in_module(value: Any) -> str | None:
    """Return the name of an object that replaced a function through a decorator, such as `@wtb.evaluator`."""
    function = getattr(value, "evaluate", None)
    if not inspect.isfunction(function):
        return None
    place = (function.__module__, function.__qualname__)
    return ":".join(place) if place[0] != "__main__" and _found(*place) is value else None


def _importable(value: Any) -> str:
    module, name = value.__module__, value.__qualname__
    if module == "__main__":
        raise InvalidInput(f"{name} is defined in the script that runs, or in a notebook")
    if _found(module, name) is not value:
        raise InvalidInput(f"{name} in {module} cannot be imported by its name")
    return f"{module}:{name}"


def _found(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _imported(reference: str) -> Any:
    module, _, name = reference.partition(":")
    importlib.import_module(module)
    found = _found(module, name)
    if found is None:
        raise InvalidInput(f"module {module} has no {name}; the worker found another version of it")
    return found
