"""Walk: follows everything that a function can reach, and makes its fingerprint.

A function counts with its code, defaults and captured values, and with everything that it looks up: other functions
and classes of the user's own modules, and globals by value. Installed packages count by their version.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from uuid import uuid4

from wtb.application.dependencies import values
from wtb.application.dependencies.fingerprint import AS_WRITTEN, CALLED_AS, Fingerprint, digest_of
from wtb.application.dependencies.names import Import, inner_code, uses_of
from wtb.application.dependencies.objects import bases, full_name, functions_of, is_a, members, module_of, name_of
from wtb.application.dependencies.own_code import file_of, held_by, is_own_file, is_own_module, place, reader_of
from wtb.application.dependencies.sources import (
    binding,
    closure_of,
    imported_by,
    label_of,
    module_digest,
    own_file,
    relevant,
    resolve,
    source_file,
)
from wtb.domain.errors import InvalidInput
from wtb.domain.tools import Tool

_MOST_VALUES = 200_000
"""The most values to inspect for one node; a value that exceeds this counts as one that cannot be inspected."""

FindTool = Callable[[str], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all nodes of a workflow share: its tools, and which functions are nodes."""

    find_tool: FindTool | None = None
    nodes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The top-level names that belong to the workflow, by file: nodes, variants, the workflow itself."""
    modules: Mapping[str, str] = field(default_factory=dict)
    """The user's own modules that define the functions of nodes: names to files."""
    state_types: tuple[type, ...] = ()
    """The user's own classes whose objects may be in states."""
    state_functions: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """The functions that store objects of other classes and build them again, by the name of the class."""


def fingerprint(
    function: Any,
    config: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
    around: Surroundings | None = None,
) -> Fingerprint:
    """Return the fingerprint of a function: what its result depends on. `extra` holds further values by name."""
    walk = _Walk(around or Surroundings())
    walk.add(function)
    for name, value in {**({"its config": config} if config else {}), **(extra or {})}.items():
        walk.add_value(name, value, _module_of(function))
    return walk.finished()


def _module_of(function: Any) -> str:
    """Return the module that defines a function, or the class of a callable object."""
    while is_a(function, functools.partial):
        function = function.func
    is_code = is_a(function, FunctionType | MethodType | type)
    return module_of(function if is_code else type(function)) or "__main__"


class _Walk:
    """One walk through everything that a function reaches."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._parts: dict[str, str] = {"Python": sys.version}
        self._values: set[str] = set()
        self._mutable: set[str] = set()
        self._written_values: dict[str, str] = {}
        self._readers: set[str] = set()
        self._coarse: dict[str, None] = {}
        self._reads_anything = False
        self._waiting: list[Callable[[], None]] = []
        self._about_calls: list[Callable[[], None]] = []
        """Looks at `reverse` and `confirm` of tools, last of all: what only these read is no part of a result."""
        self._met: dict[int, Any] = {}
        """Functions and classes that were met, by id; kept alive, so that nothing else gets their id."""
        self._labelled: dict[tuple[str, int], Any] = {}
        """Values and statements that became parts, by label and id."""
        self._looked_at = 0
        self._home = "__main__"
        """The module of the function that was added last; objects that a library holds count as bound there."""
        self._modules: dict[str, str] = {}
        """The user's own modules of the added functions, with their files."""

    def add(self, function: Any) -> None:
        """Take a function, a method, a callable object or a tool into account."""
        module = self._home = _module_of(function)
        if (file := own_file(module)) is not None:
            self._modules[module] = file
        if is_a(function, functools.partial):
            self._arguments(function, module)
            function = function.func
        if is_a(function, MethodType) and values.own_attributes(function.__self__) is not None:
            self._value_part(_made(function.__self__), function.__self__, module)
            function = function.__func__
        if values.own_attributes(function) is not None:
            self._value_part(_made(function), function, module)
        else:
            self._put(CALLED_AS, self._tokens(function, module, ()))
        self._work()

    def _arguments(self, partial: functools.partial[Any], module: str) -> None:
        for name, value in (*enumerate(partial.args, 1), *sorted(partial.keywords.items())):
            self._value_part(f"`{name}` that it is given", value, module)

    def add_value(self, label: str, value: Any, module: str) -> None:
        """Take a value into account under a name."""
        self._put(label, self._tokens(value, module, ()), is_value=True)
        self._work()

    def finished(self) -> Fingerprint:
        """Return the fingerprint of everything that was added."""
        readers = frozenset(self._readers)
        while self._about_calls:
            self._waiting.append(self._about_calls.pop())
            self._work()
        return Fingerprint(
            parts=self._parts,
            values=frozenset(self._values),
            mutable=frozenset(self._mutable),
            written=self._written_values,
            readers=readers,
            reads_anything=self._reads_anything,
            coarse=tuple(self._coarse),
        )

    def _work(self) -> None:
        while self._waiting:
            self._waiting.pop()()

    def _put(self, label: str, tokens: Iterable[str], *, is_value: bool = False) -> None:
        digest = digest_of(tokens)
        # Two lambdas of a file, or two functions that a factory made, have the same label.
        known = self._parts.get(label)
        self._parts[label] = digest if known is None else digest_of((known, digest))
        if is_value:
            self._values.add(label)

    # Code

    def _later(self, thing: Any, look: Callable[[], None]) -> None:
        if id(thing) not in self._met:
            self._met[id(thing)] = thing
            self._waiting.append(look)

    def _code(self, code: CodeType) -> Iterator[str]:
        yield code.co_name
        yield code.co_code.hex()
        yield ",".join((*code.co_names, *code.co_varnames))
        for constant in code.co_consts:
            if is_a(constant, CodeType):
                yield from self._code(constant)
            else:
                yield from values.plain_tokens(constant)

    def _function(self, function: FunctionType) -> None:
        code, module = function.__code__, _module_of(function)
        self._readers.update(reader_of(each) for each in inner_code(code))
        tokens = [*self._code(code)]
        if function.__annotations__:
            tokens += ["annotations", *self._tokens(dict(function.__annotations__), module, ())]
        defaults = (function.__defaults__ or (), tuple(sorted((function.__kwdefaults__ or {}).items())))
        tokens += [*self._tokens(defaults, module, ())]
        self._put(_label(function), tokens)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self._captured(function, name, cell)
        self._named_tools(code)
        self._lookups(function, code)

    def _captured(self, function: FunctionType, name: str, cell: Any) -> None:
        try:
            value = cell.cell_contents
        except ValueError:  # the cell has no value yet
            return
        if name == "__class__":
            return
        label = f"`{name}` captured by {_label(function)}"
        self._value_part(label, value, _module_of(function))

    def _named_tools(self, code: CodeType) -> None:
        """Take into account the tools whose names occur as texts in the code."""
        if self._around.find_tool is None:
            return
        for each in inner_code(code):
            for constant in each.co_consts:
                if is_a(constant, str) and constant.isprintable():
                    with suppress(InvalidInput):
                        self._tool(self._around.find_tool(constant))

    def _tool(self, tool: Tool) -> None:
        def look() -> None:
            label, module = f"tool `{tool.spec.name}`", _module_of(tool.function)
            self._put(label, [repr(tool.spec), *self._tokens(tool.function, module, ())])
            self._about_calls.append(lambda: self._put(label, self._tokens((tool.reverse, tool.confirm), module, ())))

        self._later(tool, look)

    def _lookups(self, function: FunctionType, code: CodeType) -> None:
        uses, module = uses_of(code), _module_of(function)
        for chain in uses.chains:
            if chain[0] in function.__globals__:
                self._global(chain, function.__globals__[chain[0]], module)
        for each in uses.imports:
            self._imported(each, module, code.co_filename)
        for reason in uses.dynamic:
            self._everything(f"{_label(function)} uses {reason}")

    def _global(self, chain: tuple[str, ...], value: Any, module: str) -> None:
        """Take a global into account; if it is an own module, only the names that are looked up in it."""
        depth = 1
        while is_a(value, ModuleType) and is_own_module(value.__name__):
            if depth == len(chain):
                self._module(value.__name__, f"`{'.'.join(chain)}` is used as a whole")
                return
            if chain[depth] not in vars(value):
                self._module(value.__name__, f"`{'.'.join(chain[: depth + 1])}` is not there before the run")
                return
            module, value = value.__name__, vars(value)[chain[depth]]
            depth += 1
        if is_a(value, ModuleType) and (replaced := _own_in_library(value, chain[depth:])) is not None:
            self._put_reference(f"`{'.'.join(chain)}`", replaced, module)
        self._value_part(f"`{chain[depth - 1]}` in {_place_of(module)}", value, module, name=chain[depth - 1])

    def _value_part(self, label: str, value: Any, module: str, name: str = "") -> None:
        """Take the value of a name into account; each attribute of an own object is a separate part."""
        if values.is_code(value) or is_a(value, ModuleType):
            self._put_reference(label, value, module)
            return
        key = (label, id(value))
        if key in self._labelled:
            return
        self._labelled[key] = value
        attributes = values.own_attributes(value)
        if attributes is None:
            self._bound_by(label, module, name)
            self._put(label, self._tokens(value, module, (name,) if name else ()), is_value=True)
            self._mutable.update(() if is_a(value, values.IMMUTABLE) else (label,))
            return
        self._put(label, self._class_tokens(type(value)))
        for attribute, held in attributes.items():
            inside = label.replace("` ", f".{attribute}` ", 1)
            self._put(inside, self._tokens(held, module, (name,) if name else (), inside_of=value), is_value=True)
            self._mutable.add(inside)
            self._bound_by(inside, module, name)

    def _bound_by(self, label: str, module: str, name: str) -> None:
        """Note the code that makes a global, in case its value is left out because runs change it."""
        file = own_file(module) if name else None
        source = None if file is None else source_file(file)
        if source is not None:
            statements = binding(source, name, self._around.nodes.get(source.path, frozenset()))
            modules = {each: own for each in imported_by(statements, module, source.path) if (own := own_file(each))}
            digests = [module_digest(path) or "" for _, path in sorted(closure_of(modules).items())]
            self._written_values[label] = digest_of([*(each.digest for each in statements), *digests])

    def _put_reference(self, label: str, value: Any, module: str) -> None:
        """Take a function, class or module into account, and also which one the name refers to."""
        tokens = list(self._tokens(value, module, ()))
        known = f"{label} is"
        if known not in self._parts:
            self._put(known, tokens)

    def _imported(self, found: Import, module: str, file: str) -> None:
        """Take into account the source of an own module that is imported inside a function."""
        name = resolve("." * found.level + found.name, module, file)
        names = [name] if name is not None else []
        names += [f"{name}.{each}" for each in found.names] if name is not None else []
        for each in names:
            if own_file(each) is not None:
                self._module(each, f"`{each}` is imported inside a function")

    def _module(self, name: str, reason: str, names: frozenset[str] = frozenset()) -> None:
        """Take into account the source of an own module and of those that it imports."""
        file = own_file(name) or held_by(sys.modules.get(name)).get("__file__")
        if file is None or source_file(file) is None:
            self._unreadable(reason)
            return
        self._coarse[f"{reason}: the code of {place(file)} counts"] = None
        for each, path in closure_of({name: file}).items():
            self._written(path, names if each == name else frozenset())

    def _everything(self, reason: str) -> None:
        """Take into account the source of all own modules."""
        self._coarse[f"{reason}: all your modules count"] = None
        self._reads_anything = True
        for path in closure_of({**self._modules, **self._around.modules}).values():
            self._written(path, frozenset())

    def _written(self, path: str, names: frozenset[str]) -> None:
        source = source_file(path)
        if source is None:
            return
        for statement in relevant(source, names, self._around.nodes.get(path, frozenset()) - self._met_in(path)):
            label = label_of(statement, path)
            key = (label, hash(statement))
            if key not in self._labelled:
                self._labelled[key] = statement
                self._put(f"{label}{AS_WRITTEN}", (statement.digest,))
        self._readers.add(f"{place(path)}:<module>")

    def _met_in(self, path: str) -> set[str]:
        """Return the functions of a file that the walk has met: their decorators count with them."""
        functions = [each for each in self._met.values() if is_a(each, FunctionType)]
        return {each.__code__.co_qualname for each in functions if os.path.realpath(each.__code__.co_filename) == path}

    def _unreadable(self, reason: str) -> None:
        """Take a module without a file, such as a notebook, into account by an id of this process."""
        self._coarse[f"{reason}: results are kept in this process only"] = None
        self._parts[f"this process ({reason})"] = _PROCESS

    # Values

    def _tokens(self, value: Any, module: str, names: tuple[str, ...], inside_of: Any = None) -> Iterator[str]:
        """Yield what a value is made of; code in it becomes a part of its own.

        If that fails, because an object misbehaves or is nested too deep, only that value is hidden.
        """
        reader = values.Reader(
            self._seen_code,
            lambda thing: self._opaque(thing, module, names),
            lambda thing: self._hidden(thing, module, names),
            self._count,
        )
        if inside_of is not None:
            reader.knows(inside_of)
        try:
            tokens = list(reader.read(value))
        except Exception:  # noqa: BLE001  an object may raise anything when inspected; planning goes on
            tokens = list(self._hidden(value, module, names))
        yield from tokens

    def _count(self) -> bool:
        self._looked_at += 1
        return self._looked_at <= _MOST_VALUES

    def _seen_code(self, thing: Any) -> Iterator[str]:
        """Yield the name of a function, class or tool; if it is the user's own, it is inspected later."""
        if is_a(thing, MethodType):
            yield from self._seen_code(thing.__func__)
            return
        if is_a(thing, Tool):
            self._tool(thing)
            yield f"tool {thing.spec.name}"
        elif is_a(thing, FunctionType):
            yield from self._seen_function(thing)
        elif is_a(thing, CodeType):
            yield from self._code(thing)
        else:
            yield from self._class_tokens(thing)

    def _seen_function(self, function: FunctionType) -> Iterator[str]:
        if _is_own(function):
            self._later(function, lambda: self._function(function))
            yield _label(function)
            return
        yield values.library_name(function)
        wrapped = vars(function).get("__wrapped__")
        if wrapped is not None:
            yield from self._tokens(wrapped, self._home, ())
        for cell in function.__closure__ or ():  # the arguments of a library's decorator
            with suppress(ValueError):
                yield from self._tokens(cell.cell_contents, self._home, ())

    def _own_inside(self, value: Any, module: str) -> Iterator[str]:
        for found in values.own_code_inside(value):
            yield from self._tokens(found, module, ())

    def _class_tokens(self, kind: type) -> Iterator[str]:
        if is_own_module(module_of(kind)):
            self._later(kind, lambda: self._class(kind))
            yield _label(kind)
        else:
            yield values.library_name(kind)

    def _class(self, kind: type) -> None:
        tokens = [name_of(kind)]
        for base in (*bases(kind), type(kind)):
            tokens += self._class_tokens(base)
        for name, member in members(kind):
            functions = functions_of(member)
            if functions:
                tokens += [name, name_of(type(member))]
                for function in functions:
                    tokens += self._seen_code(function)
            else:
                tokens += [name, *self._tokens(member, module_of(kind), ())]
        self._put(_label(kind), tokens)

    def _opaque(self, thing: Any, module: str, names: tuple[str, ...]) -> Iterator[str]:
        """Yield what is known about an object that cannot be inspected, and the user's own code that it holds."""
        yield from self._own_inside(thing, module)
        yield from self._hidden(thing, module, names)

    def _hidden(self, thing: Any, module: str, names: tuple[str, ...]) -> Iterator[str]:
        """Yield what is known about a value that is not inspected further; the code around it counts instead."""
        yield values.library_name(type(thing))
        reason = f"a {full_name(type(thing))} cannot be looked into"
        if is_own_module(module):
            self._module(module, reason, frozenset(names))
        else:
            self._everything(reason)


_PROCESS = uuid4().hex
_NOWHERE = "code that was made at run time"


def _is_own(function: FunctionType) -> bool:
    """Whether a function is the user's. One made at run time is, unless its module belongs to a library."""
    file, module = function.__code__.co_filename, module_of(function)
    if not file.startswith("<") or file.startswith("<frozen"):
        return is_own_file(file)
    return is_own_file(file) or module in ("", "builtins") or is_own_module(module)


def _label(thing: Any) -> str:
    """Return the name of a function or class in explanations: its name in the source, whatever a decorator says."""
    if is_a(thing, FunctionType):
        if thing.__code__.co_filename.startswith("<"):
            return f"`{thing.__qualname__}` in {_place_of(module_of(thing) or _NOWHERE)}"
        return f"`{thing.__code__.co_qualname}` in {file_of(thing.__code__)}"
    return f"`{name_of(thing)}` in {_place_of(module_of(thing) or _NOWHERE)}"


def _own_in_library(value: Any, names: Iterable[str]) -> Any:
    """Return the user's own function or object that replaces one in a library's module; None if there is none."""
    for name in names:
        if not is_a(value, ModuleType):
            break
        value = vars(value).get(name)
    return value if values.is_own(value) else None


def _made(value: Any) -> str:
    """Return a label for an object that has no name of its own."""
    return f"`{name_of(type(value))}(…)` in {_place_of(module_of(type(value)))}"


def _place_of(module: str) -> str:
    file = held_by(sys.modules.get(module)).get("__file__")
    return module if file is None else place(file)
