"""Follow a path such as `messages.-1.content` through mappings, lists and attributes of objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any

from wtb.domain.errors import InvalidInput

_MOST_NAMES = 20
"""The most names that a message lists."""


def value_at(path: str, root: Mapping[str, Any], what: str = "the state") -> Any:
    """Return the value at a key or path; raise InvalidInput with the missing part and the existing ones.

    A key that contains dots is found as it is.
    """
    if path in root:
        return root[path]
    found: Any = root
    walked = ""
    for part in path.split("."):
        found = _step(found, part, walked or what, path)
        walked = f"{walked}.{part}" if walked else part
    return found


def is_path(key: str) -> bool:
    """Whether a text leads further than to a key."""
    return "." in key


def _step(value: Any, part: str, where: str, path: str) -> Any:
    if isinstance(value, Mapping):
        return _in_mapping(value, part, where, path)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and part not in _names(value):
        return _in_list(value, part, where, path)
    return _in_object(value, part, where, path)


def _in_mapping(value: Mapping[Any, Any], part: str, where: str, path: str) -> Any:
    for key in (part, _number(part)):
        if key is not None and key in value:
            return value[key]
    raise _nowhere(path, f"{where} has no key {part!r}", _listed(map(str, value)))


def _in_list(value: Sequence[Any], part: str, where: str, path: str) -> Any:
    number = _number(part)
    if number is None:
        reason = f"{where} is {_kind(value)}, which has no {part!r}"
        raise _nowhere(path, reason, "items that go by their number: 0 is the first, -1 the last")
    try:
        return value[number]
    except IndexError:
        raise _nowhere(path, f"{where} has no item {number}", _items(len(value))) from None


def _in_object(value: Any, part: str, where: str, path: str) -> Any:
    if not part.startswith("_"):
        with suppress(AttributeError):
            found = getattr(value, part)
            # A method would be compared as an object; the `text` of a message is a str that can be called.
            if isinstance(found, str) or not callable(found):
                return found
    raise _nowhere(path, f"{where} is {_kind(value)}, which has no {part!r}", _listed(_names(value)))


def _nowhere(path: str, reason: str, there_is: str) -> InvalidInput:
    beginning = f"{path!r} leads nowhere: " if is_path(path) else ""
    return InvalidInput(f"{beginning}{reason}; it has {there_is}")


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def _number(part: str) -> int | None:
    try:
        return int(part)
    except ValueError:
        return None


def _items(count: int) -> str:
    return {0: "no items", 1: "1 item"}.get(count, f"{count:,} items")


def _listed(names: Iterator[str] | Sequence[str]) -> str:
    found = sorted(names)
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    return ", ".join(found[:_MOST_NAMES]) + more if found else "nothing inside"


def _names(value: Any) -> list[str]:
    """Return the fields of a dataclass, a model or a named tuple, and the other attributes of an object."""
    declared = [field.name for field in fields(value)] if is_dataclass(value) else []
    models = list(getattr(type(value), "model_fields", ()))
    tuples = list(getattr(type(value), "_fields", ()))
    own = getattr(value, "__dict__", {})
    found = dict.fromkeys([*declared, *models, *tuples, *own])
    return [name for name in found if isinstance(name, str) and not name.startswith("_")]
