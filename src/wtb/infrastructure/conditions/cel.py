"""CelConditions: edge conditions in CEL, with bounds that the binding does not have.

`common-expression-language` holds the interpreter's lock while it evaluates and offers no limit. A thread with a
timeout would not help: nobody could look at the clock, and heartbeats would stop. So time is bounded from within:

- Macros (`all exists exists_one map filter`) are the only loops. Each is compiled with a call into Python in its
  body, which looks at the time that this thread has used; once that is up, every loop runs out at once and the
  evaluation is an error. The call also lets other threads have their turn.
- Everything between two such calls is bounded by the text and by the size of the values: the length of the text,
  the depth of its brackets and macros, additions (each copies a list or a text), how often macros can multiply a
  value (`[s].map(x, x + x).map(x, x + x)…` doubles it every time), and patterns, which must be written out.

An expression without macros is run as it is. Only the variables that it names are converted, so that others may
hold anything. CEL has no decimals, no integers beyond 64 bits and no times without a zone: such values count as
floats, floats and UTC.
"""

from __future__ import annotations

import re
import reprlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from wtb.domain.errors import InvalidCondition
from wtb.infrastructure.conditions.pattern import unrolled_length
from wtb.infrastructure.conditions.source import CelSource

if TYPE_CHECKING:
    from cel import Program

_MOST_ADDITIONS = 16
_MOST_COPIES = 1_000
_LONGEST_PATTERN = 1_000
_DEEPEST_VALUE = 200
"""As deep as the codec keeps; a value that contains itself would overflow the stack of the binding, and kill us."""

_GUARD = "_wtb_time_is_left"
_FAILURES = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)
_FLAT = frozenset({str, int, float, bool, bytes, type(None)})
_INSTEAD = "use a Python function as the condition"

_SYNTAX = re.compile(r"ERROR: <input>:(\d+):(\d+): (?:Syntax error: )?(.*?)(?: expecting \{.*)?$", re.MULTILINE)
_UNDEFINED = re.compile(r"Undefined variable or function: '(.*?)'")


class CelConditions:
    """The conditions language of workflows."""

    def __init__(
        self, *, max_length: int = 2_000, max_nesting: int = 32, max_macro_nesting: int = 2, timeout_s: float = 1.0
    ) -> None:
        self._max_length = max_length
        self._max_nesting = max_nesting
        self._max_macro_nesting = max_macro_nesting
        self._timeout_s = timeout_s

    def compile(self, expression: str) -> Callable[[Mapping[str, Any]], bool]:
        source = CelSource(expression[: self._max_length])
        _refuse_first(expression, self._form_faults(expression, source))
        program = _parse(expression, expression)
        _refuse_first(expression, self._cost_faults(source))
        names = tuple(name for name in program.variables() if name in source.free_names)
        if not source.macros:
            return CelCondition(expression, program, names)
        guarded = _parse(source.guarded(f"{_GUARD}()"), expression)
        return CelCondition(expression, guarded, names, timeout_s=self._timeout_s)

    def _form_faults(self, expression: str, source: CelSource) -> Iterator[str]:
        """Say what must not even be parsed."""
        if not expression.strip():
            yield "is empty"
        if len(expression) > self._max_length:
            yield f"has {len(expression)} characters; at most {self._max_length} are allowed: {_INSTEAD}"
        if source.nesting > self._max_nesting:
            yield f"has {source.nesting} brackets in each other; at most {self._max_nesting} are allowed"

    def _cost_faults(self, source: CelSource) -> Iterator[str]:
        """Say what could take too long between two looks at the clock."""
        if source.macro_nesting > self._max_macro_nesting:
            yield (
                f"has {source.macro_nesting} macros in each other; at most {self._max_macro_nesting} are allowed: "
                f"{_INSTEAD}"
            )
        if source.additions > _MOST_ADDITIONS:
            yield f"adds {source.additions} times; at most {_MOST_ADDITIONS} are allowed: add up in a node"
        if source.copies > _MOST_COPIES:
            yield (
                "names the variables of its macros too often: values could grow "
                f"{source.copies} times, and {_MOST_COPIES} are allowed: {_INSTEAD}"
            )
        for pattern in source.patterns():
            yield from _pattern_faults(pattern.text if pattern else None)


class CelCondition:
    """A compiled condition: called with a state, it says whether the edge is followed."""

    def __init__(
        self, expression: str, program: Program, names: tuple[str, ...], *, timeout_s: float | None = None
    ) -> None:
        self._expression = expression
        self._program = program
        self._names = names
        self._timeout_s = timeout_s

    def __call__(self, state: Mapping[str, Any]) -> bool:
        values = {name: state[name] for name in self._names if name in state}
        for name, value in values.items():
            self._check(name, value)
        result = self._execute(values) if self._timeout_s is None else self._execute_within(self._timeout_s, values)
        if type(result) is not bool:
            raise self._invalid(f"gave {reprlib.repr(result)} ({_kind(result)}); it must give true or false")
        return result

    def _execute_within(self, timeout_s: float, values: dict[str, Any]) -> Any:
        clock = _LoopClock(timeout_s)
        too_slow = self._invalid(f"took longer than {timeout_s:g} s; {_INSTEAD}")
        try:
            result = self._execute({**values, _GUARD: clock.time_is_left})
        except InvalidCondition:
            if clock.is_up:  # what comes out of loops that were cut short means nothing
                raise too_slow from None
            raise
        if clock.is_up:
            raise too_slow
        return result

    def _execute(self, values: dict[str, Any]) -> Any:
        try:
            return self._program.execute(values)
        except _FAILURES as error:
            raise self._invalid(self._problem(error, values)) from error

    def _check(self, name: str, value: Any) -> None:
        if type(value) in _FLAT:
            return
        if callable(value):  # the binding would let the expression call it
            raise self._invalid(f"cannot use {name!r}: it is code ({_kind(value)}), not data")
        if not _is_shallow(value, _DEEPEST_VALUE):
            raise self._invalid(f"cannot use {name!r}: it is nested deeper than {_DEEPEST_VALUE} levels, or in itself")

    def _problem(self, error: Exception, values: Mapping[str, Any]) -> str:
        undefined = _UNDEFINED.search(str(error))
        if undefined and undefined[1] in self._names and undefined[1] not in values:
            return f"needs {undefined[1]!r}, and the state has no such key"
        for name, value in values.items():
            if (reason := _conversion_error(name, value)) is not None:
                return f"cannot use {name!r} ({_kind(value)}): {reason}; keep plain data there, or {_INSTEAD}"
        if isinstance(error, KeyError):
            return f"asks for a key {error.args[0]!r} that is not there; ask has(…) first{_kinds(values)}"
        if undefined:
            return f"calls {undefined[1]!r}, which does not exist or does not take such values{_kinds(values)}"
        return f"cannot be evaluated: {str(error).split('. ')[0]}{_kinds(values)}"

    def _invalid(self, problem: str) -> InvalidCondition:
        return _invalid(self._expression, problem)


class _LoopClock:
    """Says in every round of a loop whether there is time for another one.

    Counted is the time that this thread works, so that a busy machine fails nobody's condition.
    """

    __slots__ = ("_end", "is_up")

    def __init__(self, timeout_s: float) -> None:
        self._end = time.thread_time() + timeout_s
        self.is_up = False

    def time_is_left(self) -> bool:
        self.is_up = self.is_up or time.thread_time() >= self._end
        return not self.is_up


def _parse(text: str, expression: str) -> Program:
    # Not at the top: importing it brings its command line with it, which takes 0.2 s.
    import cel

    try:
        return cel.compile(text)
    except _FAILURES as error:
        syntax = _SYNTAX.search(str(error))
        where = f"line {syntax[1]}, column {syntax[2]}: {syntax[3]}" if syntax else str(error)
        raise _invalid(expression, f"cannot be read: {where}") from error


def _pattern_faults(literal: str | None) -> Iterator[str]:
    """Say what is wrong with the argument of `matches`, given as it is written in the expression."""
    if literal is None:
        yield "has a pattern for matches() that is not written in it as one text"
        return
    length = unrolled_length(str(_parse(literal, literal).execute()))
    if length > _LONGEST_PATTERN:
        yield (
            f"has a pattern {literal} that is {length} pieces long when its repetitions are written out; at most "
            f"{_LONGEST_PATTERN} are allowed: write + or * instead of counts"
        )
    try:
        _parse(f"''.matches({literal})", literal).execute()
    except _FAILURES as error:
        yield f"has a pattern {literal} that is not valid: {error}"


def _conversion_error(name: str, value: Any) -> str | None:
    import cel

    try:
        cel.Context({name: value})
    except _FAILURES as error:
        return str(error).removeprefix("Conversion Error: ")
    return None


def _is_shallow(value: Any, levels: int) -> bool:
    """Say whether everything in the value lies within so many levels."""
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return True
    inner = [item for item in value if type(item) not in _FLAT]
    return levels > 0 and all([_is_shallow(item, levels - 1) for item in inner])


def _refuse_first(expression: str, faults: Iterator[str]) -> None:
    for fault in faults:
        raise _invalid(expression, fault)


def _invalid(expression: str, problem: str) -> InvalidCondition:
    shown = expression if len(expression) <= 200 else f"{expression[:200]}…"
    return InvalidCondition(f"condition {shown!r} {problem}")


def _kinds(values: Mapping[str, Any]) -> str:
    return f" ({', '.join(f'{name}: {_kind(value)}' for name, value in values.items())})" if values else ""


def _kind(value: Any) -> str:
    return type(value).__qualname__
