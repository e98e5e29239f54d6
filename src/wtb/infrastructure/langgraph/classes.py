"""Classes of the objects in a state: which objects a value holds, and where a script's classes are found again."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from langgraph.types import Send
from pydantic import BaseModel

from wtb.domain.errors import InvalidInput

_SCRIPT = b"\xa8__main__"
"""How the serialiser writes the module of a class that the script itself defines; the name of the class follows."""


def objects_in(value: Any) -> Iterator[Any]:
    """Yield the models and dataclasses in a value.

    The serialiser writes the fields of a model as data and lets the model rebuild them, so the search stops at models.
    """
    if isinstance(value, BaseModel):
        yield value
        return
    inside: Iterable[Any] = ()
    if isinstance(value, dict):
        inside = value.values()
    elif isinstance(value, list | tuple | set | frozenset | deque):
        inside = value
    elif isinstance(value, Send):
        inside = (value.arg,)
    elif is_dataclass(value):
        inside = [getattr(value, field.name) for field in fields(value)]
    for each in inside:
        yield from objects_in(each)
    if is_dataclass(value):  # after its contents: an error message names the innermost object
        yield value


def is_importable(kind: type) -> bool:
    """Whether a class is found under its name in its module."""
    return getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind


def find_script_classes(data: bytes, home: str | None) -> None:
    """Make sure that the serialiser finds the script's classes in these bytes; else it would return data instead.

    A run that a script began may go on in another process, where the script is the module `home` of the graph.
    """
    if _SCRIPT not in data:
        return
    script, module = sys.modules["__main__"], sys.modules.get(home or "")
    for name in _class_names(data):
        if not hasattr(script, name) and not hasattr(module, name):
            raise InvalidInput(
                f"the state holds a {name}, a class of the script that began the run, and this process has no such "
                f"class; move {name} to a module that the script imports, or continue the run in the script"
            )
        if not hasattr(script, name):
            setattr(script, name, getattr(module, name))


def _class_names(data: bytes) -> Iterator[str]:
    """Yield the names of the script's classes, each a short text as msgpack writes it."""
    for rest in data.split(_SCRIPT)[1:]:
        start, size = (2, rest[1]) if rest[:1] == b"\xd9" else (1, rest[0] & 0x1F)
        yield rest[start : start + size].decode(errors="replace")
