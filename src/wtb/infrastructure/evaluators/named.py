"""Find evaluators by name: built-in ones without options, and those of packages (entry points `wtb.evaluators`)."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from wtb.application.evaluation_engine import check_evaluators
from wtb.domain.errors import InvalidInput
from wtb.infrastructure.evaluators.builtin import (
    Contains,
    Cost,
    ExactMatch,
    FitsSchema,
    Latency,
    NumericMatch,
    RegexMatch,
    Steps,
    TokenF1,
    Tokens,
    ToolErrors,
)
from wtb.infrastructure.evaluators.functions import plain_evaluator

GROUP = "wtb.evaluators"

_BUILT_IN = {each.name: each for each in (Latency(), Cost(), Tokens(), Steps(), ToolErrors())}
_KEYED = {each.name: each.__name__ for each in (ExactMatch, Contains, RegexMatch, NumericMatch, TokenF1, FitsSchema)}


def read_evaluators(given: Sequence[Any]) -> tuple[Any, ...]:
    """Return the evaluators, looking up those given by name, after checking all of them."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidInput(f"evaluators must be a list, such as [wtb.Latency()], not {given!r}")
    found = tuple(_evaluator(each) for each in given)
    check_evaluators(found)
    return found


def _evaluator(given: Any) -> Any:
    if isinstance(given, str):
        return evaluator_named(given)
    if inspect.isroutine(given) and given.__name__.isidentifier():  # a lambda has no name
        return plain_evaluator(given)
    return given


def evaluator_named(name: str) -> Any:
    """Return an evaluator by name; if an entry point names a class or a function, it is called."""
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    installed = {each.name: each for each in entry_points(group=GROUP)}
    if name not in installed:
        known = ", ".join([*_BUILT_IN, *sorted(map(_told, installed.values()))])
        keyed = f"; give wtb.{_KEYED[name]}('KEY', …), which scores a value of the state" if name in _KEYED else ""
        raise InvalidInput(f"there is no evaluator {name!r}; known names: {known}{keyed}")
    entry = installed[name]
    try:
        found = entry.load()
        return found if hasattr(found, "evaluate") and not isinstance(found, type) else found()
    except Exception as error:
        raise InvalidInput(f"evaluator {_told(entry)} cannot be loaded: {type(error).__name__}: {error}") from error


def _told(entry: EntryPoint) -> str:
    return entry.name if entry.dist is None else f"{entry.name} (of {entry.dist.name})"
