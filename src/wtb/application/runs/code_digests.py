"""Digests of the user's code that a function can reach, to notice that two processes have different versions of it.

Only code counts: values may differ between processes without a fault. Installed packages do not count, because an
environment may have others on purpose.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import unwrap
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from wtb.application.dependencies.own_code import is_own_file, is_own_module

_MOST_ITEMS = 1_000
"""How many items of a list or a dictionary are looked at for functions."""
_MOST_KNOWN = 20_000
_KNOWN: dict[int, tuple[CodeType, str]] = {}
"""Digests by the id of the code, which is kept alive, so that nothing else gets its id."""


def code_digests(function: Callable[..., Any]) -> dict[str, str]:
    """Return the digests of a function and of the user's own functions that it can reach, by name.

    Each names the version of Python: another version compiles the same text differently.
    """
    found: dict[str, set[str]] = {}
    met: set[int] = set()
    waiting: list[Any] = [unwrap(getattr(function, "__func__", function))]
    while waiting:
        thing = waiting.pop()
        if id(thing) in met:
            continue
        met.add(id(thing))
        if isinstance(thing, FunctionType) and (is_own_file(thing.__code__.co_filename) or not found):
            code = thing.__code__
            found.setdefault(_name_of(code), set()).add(_digest(code))
            waiting += _reached(thing)
        elif isinstance(thing, type) and is_own_module(thing.__module__):
            waiting += [*thing.__bases__, *_code_in(vars(thing).values())]
    return {name: f"{_PYTHON} {'+'.join(sorted(digests))}" for name, digests in sorted(found.items())}


_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def other_code(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the names of the functions that both know and that differ.

    One that only one side reaches is no difference: if that is because of an edit, the edited function differs. The
    digests of two versions of Python cannot be compared.
    """
    both = [name for name in one if name in other]
    return [name for name in both if one[name] != other[name] and _python_of(one[name]) == _python_of(other[name])]


def _python_of(digest: str) -> str:
    return digest.partition(" ")[0]


def _name_of(code: CodeType) -> str:
    return f"`{code.co_qualname}` in {PurePath(code.co_filename).name}"


def _reached(function: FunctionType) -> Iterator[Any]:
    """Yield the functions and classes that a function looks up, has captured, or is wrapped around."""
    names = list(_names(function.__code__))
    held = function.__globals__
    yield from _code_in(held[name] for name in names if name in held)
    for module in [held[name] for name in names if type(held.get(name)) is ModuleType]:
        if is_own_module(module.__name__):
            yield from _code_in(vars(module)[name] for name in names if name in vars(module))
    yield from _code_in(_captured(function))
    yield from _code_in((*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _captured(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # the cell has no value yet
            continue


def _code_in(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the functions and classes among values, in lists and dictionaries, and the classes of objects."""
    for value in values:
        kind = type(value)
        if kind is FunctionType or issubclass(kind, type):
            yield value
            if kind is FunctionType and "__wrapped__" in vars(value):
                yield unwrap(value)
        elif issubclass(kind, staticmethod | classmethod | MethodType):
            yield value.__func__
        elif kind is property:
            yield from (each for each in (value.fget, value.fset, value.fdel) if each is not None)
        elif kind in (list, tuple, set, frozenset, dict):
            items = list(value.values() if kind is dict else value)[:_MOST_ITEMS]
            yield from (each for each in items if type(each) is FunctionType or issubclass(type(each), type))
        else:
            yield kind


def _digest(code: CodeType) -> str:
    known = _KNOWN.get(id(code))
    if known is None:
        digest = hashlib.sha256()
        for token in _tokens(code):
            digest.update(token.encode("utf-8", "surrogatepass") + b"\0")
        known = code, digest.hexdigest()[:32]
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[id(code)] = known
    return known[1]


def _tokens(code: CodeType) -> Iterator[str]:
    yield code.co_qualname
    yield code.co_code.hex()
    yield ",".join((*code.co_names, *code.co_varnames))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _tokens(constant)
        elif isinstance(constant, frozenset):
            yield repr(sorted(map(repr, constant)))  # its order differs from process to process
        else:
            yield repr(constant)
