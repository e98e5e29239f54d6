"""Writes the Python API page; layout.py holds its order, the docstrings in the code hold its texts."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import cached_property
from typing import Any, get_overloads

from scripts.reference.layout import PUBLIC, SECTIONS, START, Described, Section
from scripts.reference.markdown import anchor, code, table, wrapped

_WIDTH = 96
_UNTOLD = ("None", "Any", "T", "Self", inspect.Signature.empty)
"""Return types that the page does not show."""
_ALWAYS = ("name", "direction", "worst", "best")
"""Fields that every evaluator has."""


def page() -> str:
    """Return docs/api.md; raise ValueError if a public name or member has no place on it."""
    _check()
    contents = "\n".join(f"- [{each.title}](#{anchor(each.title)}){_names(each)}" for each in SECTIONS)
    return "\n\n".join([START.strip(), contents, *map(_section, SECTIONS)]) + "\n"


def _names(section: Section) -> str:
    classes = [name for each in section.classes for name, value in PUBLIC.items() if value is each.cls]
    names = [f"`{name}`" for name in (*section.names, *classes, *section.calls)]
    return f": {', '.join(names)}" if names else ""


def _check() -> None:
    placed = {name for section in SECTIONS for name in (*section.names, *section.calls)}
    classes = {id(each.cls) for section in SECTIONS for each in section.classes}
    lacking = [name for name, value in PUBLIC.items() if name not in placed and id(value) not in classes]
    lacking += [
        f"{each.cls.__name__}.{name}" for section in SECTIONS for each in section.classes for name in _left(each)
    ]
    if lacking:
        raise ValueError(f"these have no place in scripts/reference/layout.py: {', '.join(lacking)}")


def _left(described: Described) -> Iterator[str]:
    grouped = {name for names in described.groups.values() for name in names}
    placed = {*grouped, *described.attributes, *described.beside, *getattr(described.cls, "__dataclass_fields__", ())}
    return (name for name in vars(described.cls) if not name.startswith("_") and name not in placed)


def _section(section: Section) -> str:
    parts = [f"## {section.title}", wrapped(section.text)]
    if section.names:
        parts.append(table(_name_row(name, text) for name, text in section.names.items()))
    parts += [_described(each) for each in section.classes]
    parts += [_call(f"wtb.{name}", PUBLIC[name], level=3) for name in section.calls]
    if section.results:
        parts.append(table(_result_row(cls, names) for cls, names in section.results.items()))
    return "\n\n".join(parts)


def _name_row(name: str, text: str) -> tuple[str, str]:
    value = PUBLIC[name]
    is_evaluator = hasattr(value, "evaluate")
    shown = f"wtb.{name}{_parameters(value, without=_ALWAYS)}" if is_evaluator else f"wtb.{name}"
    metric = f" Metric: `{value.name}`." if is_evaluator else ""
    return code(shown), (text or " ".join(_doc(value)[0].split())) + metric


def _result_row(cls: type, names: tuple[str, ...]) -> tuple[str, str]:
    fields = {*getattr(cls, "__dataclass_fields__", ()), *vars(cls)}
    absent = [name for name in names if name not in fields]
    if absent:
        raise ValueError(f"{cls.__name__} has no {', '.join(absent)}")
    members = [f"`{name}()`" if inspect.isfunction(vars(cls).get(name)) else f"`{name}`" for name in names]
    return f"`{cls.__name__}`", f"{' '.join(_doc(cls)[0].split())} Has {', '.join(members)}."


def _described(described: Described) -> str:
    name = next((f"wtb.{name}" for name, value in PUBLIC.items() if value is described.cls), described.called)
    parts = [f"### {name}"]
    if described.is_made:
        parts.append(_block(f"{name}{_parameters(described.cls)}"))
    parts += map(wrapped, _doc(described.cls))
    if described.attributes:
        parts.append(table((f"`{described.called}.{each}`", text) for each, text in described.attributes.items()))
    for title, members in described.groups.items():
        parts += [f"#### {title}", *_members(described, members)]
    return "\n\n".join(parts)


def _members(described: Described, names: tuple[str, ...]) -> Iterator[str]:
    """Yield a table of the properties, then each method with its signature."""
    found = {name: inspect.getattr_static(described.cls, name) for name in names}
    values = {name: each for name, each in found.items() if isinstance(each, property | cached_property)}
    if values:
        yield table(
            (f"`{described.called}.{name}`", " ".join(" ".join(_doc(each)).split())) for name, each in values.items()
        )
    for name in names:
        if name not in values:
            owner = f"wtb.{described.cls.__name__}" if isinstance(found[name], classmethod) else described.called
            yield _call(f"{owner}.{name}", getattr(described.cls, name), level=5)


def _call(name: str, function: Callable[..., Any], *, level: int) -> str:
    returned = _signature(function).return_annotation
    is_decorator = str(returned).startswith("Callable[[")
    before = "@" if is_decorator else "await " if inspect.iscoroutinefunction(function) else ""
    has_arrow = not is_decorator and not inspect.isclass(function) and returned not in _UNTOLD
    block = _block(f"{before}{name}{_parameters(function)}", returned if has_arrow else None)
    return "\n\n".join([f"{'#' * level} {name}", block, *map(wrapped, _doc(function))])


def _block(call: str, returned: str | None = None) -> str:
    """Return a signature as a code block; the return type stays on the last line."""
    arrow = "" if returned is None else f" -> {returned}".replace(" ", "\0")
    lines = textwrap.fill(
        f"{call}{arrow}", _WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return f"```\n{lines}\n```".replace("\0", " ")


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the most telling signature: for a decorator with overloads, the one with options."""
    return inspect.signature((get_overloads(function) or [function])[-1])


def _parameters(function: Callable[..., Any], without: tuple[str, ...] = ()) -> str:
    signature = _signature(function)
    kept = [
        each.replace(annotation=each.empty, default=_default(each))
        for each in signature.parameters.values()
        if each.name not in ("self", *without)
    ]
    return str(signature.replace(parameters=kept, return_annotation=signature.empty))


def _default(parameter: inspect.Parameter) -> Any:
    """Return a default as users write it: the text of an enum, an empty mapping for a factory."""
    if isinstance(parameter.default, StrEnum):
        return parameter.default.value
    return {} if repr(parameter.default) == "<factory>" else parameter.default


def _doc(value: Any) -> list[str]:
    """Return the paragraphs of a docstring."""
    text = inspect.getdoc(value)
    if not text:
        raise ValueError(f"{value!r} has no docstring")
    return text.split("\n\n")
