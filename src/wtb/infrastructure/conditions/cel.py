"""CelConditions: edge conditions in CEL, with bounds that the binding does not have.

`common-expression-language` holds the interpreter's lock while it evaluates and offers no limit. A thread with a
timeout would not help: it could not run to check the clock, and heartbeats would stop. So time is limited from within:

- Macros (`all exists exists_one map filter`) are the only loops. Each is compiled with a call into Python in its
  body, which checks the time that this thread has used; once that is up, every loop ends with an error. The call
  also lets other threads run.
- The work between two such calls is limited by the text and by the size of the values: there are limits on the length
  of the text, the depth of its brackets and macros, additions (each copies a list or a text), and how often macros can
  multiply a value (`[s].map(x, x + x).map(x, x + x)…` doubles it every time); patterns must be literals.

`has(key)` for a key of the state is answered here, because CEL only supports fields. A missing key that the expression
compares with null counts as null.

An expression without macros runs unchanged. Only the variables that it names are converted, so that others may hold
anything. CEL has no decimals, no integers beyond 64 bits and no times without a zone: such values count as floats,
floats and UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from wtb.infrastructure.conditions.condition import ASKED, FAILURES, GUARD, INSTEAD, CelCondition, invalid, sentence
from wtb.infrastructure.conditions.library import cel_library
from wtb.infrastructure.conditions.pattern import unrolled_length
from wtb.infrastructure.conditions.source import CelSource

if TYPE_CHECKING:
    from cel import Program

_MOST_ADDITIONS = 16
_MOST_COPIES = 1_000
_LONGEST_PATTERN = 1_000

_SYNTAX = re.compile(r"ERROR: <input>:(\d+):(\d+): (?:Syntax error: )?(.*?)(?: expecting \{.*)?$", re.MULTILINE)

_PYTHON_VALUES = ("True", "False", "None")
_PYTHON_WORDS = re.compile(r"\b(and|or|not|is)\b|[^=!<>]=[^=]")
_WRITTEN = "CEL is written with ==, &&, ||, !, true, false and null"


class CelConditions:
    """The conditions language of workflows."""

    def __init__(
        self, *, max_length: int = 2_000, max_nesting: int = 32, max_macro_nesting: int = 2, timeout_s: float = 1.0
    ) -> None:
        self._max_length = max_length
        self._max_nesting = max_nesting
        self._max_macro_nesting = max_macro_nesting
        self._timeout_s = timeout_s

        # A workflow is compiled when a run is created and when it begins, and a batch has thousands of runs.
        self.compile = lru_cache(maxsize=4096)(self._compile)

    def _compile(self, expression: str) -> Callable[[Mapping[str, Any]], bool]:
        source = CelSource(expression[: self._max_length])
        _refuse_first(expression, self._form_faults(expression, source))
        asked, nullable = source.asked_names, source.nullable_names
        if asked:
            source = CelSource(source.with_questions_answered(ASKED))
        program = _parse(source.text, expression)
        _refuse_first(expression, self._cost_faults(source))
        names = tuple(name for name in program.variables() if name in source.free_names)
        _refuse_first(expression, (f"names {name!r}: {_WRITTEN}" for name in names if name in _PYTHON_VALUES))
        names = tuple(name for name in names if name.removeprefix(ASKED) not in asked or name in asked)
        timeout_s = None
        if source.macros:
            program, timeout_s = _parse(source.guarded(f"{GUARD}()"), expression), self._timeout_s
        return CelCondition(expression, program, names, asked=tuple(asked), nullable=nullable, timeout_s=timeout_s)

    def _form_faults(self, expression: str, source: CelSource) -> Iterator[str]:
        """Yield the faults for which a text must not even be parsed."""
        if not expression.strip():
            yield "is empty"
        if len(expression) > self._max_length:
            yield f"has {len(expression)} characters; at most {self._max_length} are allowed: {INSTEAD}"
        if source.nesting > self._max_nesting:
            yield f"has {source.nesting} nested brackets; at most {self._max_nesting} are allowed"
        if source.calls("len"):
            yield "calls len(…), which CEL does not have: use size(…)"

    def _cost_faults(self, source: CelSource) -> Iterator[str]:
        """Yield the faults that could take too long between two checks of the clock."""
        if source.macro_nesting > self._max_macro_nesting:
            yield (
                f"has {source.macro_nesting} nested macros; at most {self._max_macro_nesting} are allowed: {INSTEAD}"
            )
        if source.additions > _MOST_ADDITIONS:
            yield f"has {source.additions} additions; at most {_MOST_ADDITIONS} are allowed: add up in a node"
        if source.copies > _MOST_COPIES:
            yield (
                "names the variables of its macros too often: values could grow "
                f"{source.copies} times, and {_MOST_COPIES} are allowed: {INSTEAD}"
            )
        for pattern in source.patterns():
            yield from _pattern_faults(pattern.text if pattern else None)


def _parse(text: str, expression: str) -> Program:
    try:
        program: Program = cel_library().compile(text)
    except FAILURES as error:
        syntax = _SYNTAX.search(str(error))
        where = f"line {syntax[1]}, column {syntax[2]}: {syntax[3]}" if syntax else sentence(error)
        advice = f"; {_WRITTEN}" if _PYTHON_WORDS.search(expression) else ""
        raise invalid(expression, f"cannot be read: {where}{advice}") from error
    return program


def _pattern_faults(literal: str | None) -> Iterator[str]:
    """Yield the faults of the argument of `matches`, which is given as written in the expression."""
    if literal is None:
        yield "has a pattern for matches() that is not written in it as one text"
        return
    length = unrolled_length(str(_parse(literal, literal).execute()))
    if length > _LONGEST_PATTERN:
        yield (
            f"has a pattern {literal} that is {length} pieces long with its repetitions written out; at most "
            f"{_LONGEST_PATTERN} are allowed: write + or * instead of counts"
        )
    try:
        _parse(f"''.matches({literal})", literal).execute()
    except FAILURES as error:
        yield f"has a pattern {literal} that is not valid: {sentence(error)}"


def _refuse_first(expression: str, faults: Iterator[str]) -> None:
    for fault in faults:
        raise invalid(expression, fault)
