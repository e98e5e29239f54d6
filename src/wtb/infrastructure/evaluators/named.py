"""Find evaluators by name: built-in ones, and those of packages (entry points `wtb.evaluators`).

A built-in one that compares a value of the state is named with its key: `exact_match:answer`.
"""

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
_KEYED = {each.name: each for each in (ExactMatch, Contains, RegexMatch, NumericMatch, TokenF1)}


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
    if is_keyed(name):
        keyed_name, _, key = name.partition(":")
        return _KEYED[keyed_name](key)
    installed = {each.name: each for each in entry_points(group=GROUP)}
    if name not in installed:
        raise InvalidInput(_unknown(name, installed.values()))
    entry = installed[name]
    try:
        found = entry.load()
        return found if hasattr(found, "evaluate") and not isinstance(found, type) else found()
    except Exception as error:
        raise InvalidInput(f"evaluator {_labelled(entry)} cannot be loaded: {type(error).__name__}: {error}") from error


def is_keyed(name: str) -> bool:
    """Whether a name is that of a built-in evaluator with the key of the state that it compares."""
    return ":" in name and name.partition(":")[0] in _KEYED


def _unknown(name: str, installed: Iterable[EntryPoint]) -> str:
    if name in _KEYED:
        return f"evaluator {name!r} needs a key of the state: '{name}:KEY', or wtb.{_KEYED[name].__name__}('KEY', …)"
    if name == FitsSchema.name:
        return f"evaluator {name!r} needs a schema: give wtb.FitsSchema('KEY', …)"
    known = ", ".join([*_BUILT_IN, *(f"{each}:KEY" for each in _KEYED), *sorted(map(_labelled, installed))])
    return f"there is no evaluator {name!r}; known names: {known}"


def _labelled(entry: EntryPoint) -> str:
    return entry.name if entry.dist is None else f"{entry.name} (of {entry.dist.name})"
