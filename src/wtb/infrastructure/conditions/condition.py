"""CelCondition: one compiled expression, called with the state; whatever goes wrong names it and the variable."""

from __future__ import annotations

import re
import reprlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wtb.domain.errors import InvalidCondition

if TYPE_CHECKING:
    from cel import Program

GUARD = "wtb_time_is_left"
"""The function that the loops of an expression call in every round."""

FAILURES = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)
"""What the binding raises."""

INSTEAD = "use a Python function as the condition"

_DEEPEST_VALUE = 200
"""As deep as the codec keeps; a value that contains itself would overflow the stack of the binding, and kill us."""

_FLAT = frozenset({str, int, float, bool, bytes, type(None)})
_UNDEFINED = re.compile(r"Undefined variable or function: '(.*?)'")


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
        result = self._execute(values)
        if type(result) is not bool:
            raise self._invalid(f"gave {reprlib.repr(result)} ({_kind(result)}); it must return true or false")
        return result

    def _execute(self, values: Mapping[str, Any]) -> Any:
        clock = None if self._timeout_s is None else _LoopClock(self._timeout_s)
        try:
            result = self._program.execute({**values, GUARD: clock.time_is_left} if clock else dict(values))
        except FAILURES as error:
            problem = self._too_slow if clock and clock.is_up else self._problem(error, values)
            raise self._invalid(problem) from error
        if clock and clock.is_up:  # the error that left the loop was outweighed, as in `slow || true`
            raise self._invalid(self._too_slow)
        return result

    @property
    def _too_slow(self) -> str:
        return f"took longer than {self._timeout_s:g} s; {INSTEAD}"

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
            return f"needs {undefined[1]!r}, but the state has no such key; set it in the input or in an earlier node"
        for name, value in values.items():
            if (reason := _conversion_error(name, value)) is not None:
                return f"cannot use {name!r} ({_kind(value)}): {reason}; keep plain data there, or {INSTEAD}"
        if isinstance(error, KeyError):
            return f"uses a key {error.args[0]!r} that does not exist; check has(…) first{_kinds(values)}"
        if undefined:
            return f"calls {undefined[1]!r}, which does not exist or does not take such values{_kinds(values)}"
        return f"cannot be evaluated: {sentence(error)}{_kinds(values)}"

    def _invalid(self, problem: str) -> InvalidCondition:
        return invalid(self._expression, problem)


class _LoopClock:
    """Says in every round of a loop whether there is time for another one.

    Counted is the time that this thread works, so that a busy machine fails nobody's condition.
    """

    __slots__ = ("_end", "_look_again", "is_up")

    def __init__(self, timeout_s: float) -> None:
        self._end = time.thread_time() + timeout_s
        self._look_again = time.monotonic() + timeout_s
        self.is_up = False

    def time_is_left(self) -> bool:
        # No thread works longer than time passes, and the time that passes is ten times quicker to ask for.
        if time.monotonic() < self._look_again:
            return True
        left_s = self._end - time.thread_time()
        self._look_again = time.monotonic() + left_s
        self.is_up = left_s <= 0
        return not self.is_up


def _conversion_error(name: str, value: Any) -> str | None:
    import cel

    try:
        cel.Context({name: value})
    except FAILURES as error:
        return sentence(error).rpartition("Conversion Error: ")[2]
    return None


def _is_shallow(value: Any, levels: int) -> bool:
    """Say whether everything in the value lies within so many levels."""
    if not isinstance(value, (list, tuple)):
        if not isinstance(value, (dict, Mapping)):  # dict is a Mapping, and much quicker to ask for
            return True
        value = value.values()
    return levels > 0 and all(type(item) in _FLAT or _is_shallow(item, levels - 1) for item in value)


def invalid(expression: str, problem: str) -> InvalidCondition:
    """Return the error that names the expression."""
    shown = expression if len(expression) <= 200 else f"{expression[:200]}…"
    return InvalidCondition(f"condition {shown!r} {problem}")


def sentence(error: Exception) -> str:
    """Return the first sentence of a message of the binding, on one line."""
    return " ".join(str(error).split()).split(". ")[0]


def _kinds(values: Mapping[str, Any]) -> str:
    return f" ({', '.join(f'{name}: {_kind(value)}' for name, value in values.items())})" if values else ""


def _kind(value: Any) -> str:
    return type(value).__qualname__
