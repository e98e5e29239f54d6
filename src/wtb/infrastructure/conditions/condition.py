"""CelCondition: one compiled expression, called with the state; every error names it and the variable."""

from __future__ import annotations

import dataclasses
import re
import reprlib
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from wtb.domain.errors import InvalidCondition
from wtb.infrastructure.conditions.library import cel_library

if TYPE_CHECKING:
    from cel import Program

GUARD = "wtb_time_is_left"
"""The function that the loops of an expression call in every round."""

ASKED = "wtb_has_"
"""The prefix of the variable that answers `has(key)`; the key follows."""

FAILURES = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)
"""The errors that the binding raises."""

INSTEAD = "use a Python function as the condition"

_DEEPEST_VALUE = 200
"""The depth that the codec stores; a value that contains itself would overflow the binding's stack, and crash us."""

_FLAT = frozenset({str, int, float, bool, bytes, type(None)})
_UNDEFINED = re.compile(r"Undefined variable or function: '(.*?)'")


class CelCondition:
    """A compiled condition: called with a state, it returns whether to follow the edge."""

    def __init__(
        self,
        expression: str,
        program: Program,
        names: tuple[str, ...],
        *,
        asked: tuple[str, ...] = (),
        nullable: Collection[str] = (),
        timeout_s: float | None = None,
    ) -> None:
        self._expression = expression
        self._program = program
        self._names = names
        self._asked = asked
        self._nullable = nullable
        self._timeout_s = timeout_s

    def __call__(self, state: Mapping[str, Any]) -> bool:
        values = {name: state[name] for name in self._names if name in state}
        for name, value in values.items():
            self._check(name, value)
        result = self._execute(self._with_missing(values, state))
        if type(result) is not bool:
            raise self._invalid(f"gave {reprlib.repr(result)} ({_kind(result)}); it must return true or false")
        return result

    def _with_missing(self, values: dict[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values with the answers to the expression's questions about keys that may be missing."""
        for name in self._nullable:
            if name in self._names and name not in state:
                values[name] = None
        for name in self._asked:
            values[ASKED + name] = name in state
        return values

    def _execute(self, values: Mapping[str, Any]) -> Any:
        clock = None if self._timeout_s is None else _LoopClock(self._timeout_s)
        try:
            result = self._program.execute({**values, GUARD: clock.time_is_left} if clock else dict(values))
        except FAILURES as error:
            plain = {name: as_mappings(value) for name, value in values.items()}
            if any(plain[name] is not value for name, value in values.items()):
                return self._execute(plain)  # rare: converting every value at every step would cost more
            problem = self._too_slow if clock and clock.is_up else self._problem(error, values)
            raise self._invalid(problem) from error
        if clock and clock.is_up:  # the expression ignored the loop's error, as in `slow || true`
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
        null = [name for name in self._nullable if values.get(name, 0) is None]
        if null and not undefined:
            return f"cannot be evaluated: {sentence(error)}; {null[0]!r} is null or missing: ask for that first"
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
    """Checks in every round of a loop whether there is time for another one.

    It counts only the time that this thread works, so that no condition fails because the machine is busy.
    """

    __slots__ = ("_end", "_look_again", "is_up")

    def __init__(self, timeout_s: float) -> None:
        self._end = time.thread_time() + timeout_s
        self._look_again = time.monotonic() + timeout_s
        self.is_up = False

    def time_is_left(self) -> bool:
        # A thread cannot work longer than real time passes, and reading the real time is ten times quicker.
        if time.monotonic() < self._look_again:
            return True
        left_s = self._end - time.thread_time()
        self._look_again = time.monotonic() + left_s
        self.is_up = left_s <= 0
        return not self.is_up


def as_mappings(value: Any) -> Any:
    """Return a value with dataclasses and pydantic models as mappings of their fields; itself if it holds none."""
    kind = type(value)
    if kind in _FLAT:
        return value
    if kind is list or kind is tuple:
        items = [as_mappings(item) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if isinstance(value, Mapping):
        plain = {key: as_mappings(item) for key, item in value.items()}
        return plain if any(plain[key] is not item for key, item in value.items()) else value
    names = _field_names(value)
    return value if names is None else {name: as_mappings(getattr(value, name)) for name in names}


def _field_names(value: Any) -> list[str] | None:
    """Return the fields of a dataclass or a pydantic model, without importing pydantic; None for other values."""
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    if hasattr(type(value), "model_fields") and hasattr(value, "__pydantic_extra__"):
        return [*type(value).model_fields, *(value.__pydantic_extra__ or ())]
    return None


def _conversion_error(name: str, value: Any) -> str | None:
    try:
        cel_library().Context({name: value})
    except FAILURES as error:
        return sentence(error).rpartition("Conversion Error: ")[2]
    return None


def _is_shallow(value: Any, levels: int) -> bool:
    """Whether a value is nested at most this many levels deep."""
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
    """Return the first sentence of a message from the binding, on one line."""
    return " ".join(str(error).split()).split(". ")[0]


def _kinds(values: Mapping[str, Any]) -> str:
    return f" ({', '.join(f'{name}: {_kind(value)}' for name, value in values.items())})" if values else ""


def _kind(value: Any) -> str:
    return type(value).__qualname__
