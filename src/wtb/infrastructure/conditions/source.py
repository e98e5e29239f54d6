"""CelSource: the parts of a CEL expression that its limits need: tokens, macros, names, patterns.

The binding shows no syntax tree. The findings here are trusted only after CEL itself has parsed the text, so this
module need not check the syntax. It only finds where tokens begin and end, and which brackets belong together.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<space> \s+ | //[^\n]* )
  | (?P<text> [bB]?[rR] (?: \"{3}.*?\"{3} | '{3}.*?'{3} | "[^"\n]*" | '[^'\n]*' )
            | [bB]? (?: \"{3}(?:\\.|[^\\])*?\"{3} | '{3}(?:\\.|[^\\])*?'{3}
                      | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' ) )
  | (?P<name> [A-Za-z_][A-Za-z0-9_]* )
  | (?P<quoted> `[^`\n]*` )
  | (?P<number> (?: 0x[0-9A-Fa-f]+ | [0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)? ) [uU]? )
  | (?P<symbol> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_LEVEL = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
_MACROS = frozenset({"all", "exists", "exists_one", "existsOne", "map", "filter"})
_ERROR = "1 / 0 == 0"
"""Ends a loop; a plain false would let it continue, and in `map` and `filter` copy the list in every round."""


class ExpressionToken(NamedTuple):
    """A piece of the text that is neither white space nor comment."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Macro:
    """A loop, such as `items.exists(x, x > 1)`; places are numbers of tokens."""

    name: str
    variable: str
    first: int
    last: int
    commas: tuple[int, ...]


class CelSource:
    """An expression that is inspected without evaluating it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tuple(
            ExpressionToken(match.lastgroup or "", match[0], *match.span())
            for match in _TOKEN.finditer(text)
            if match.lastgroup != "space"
        )

    @property
    def nesting(self) -> int:
        """How deeply brackets are nested."""
        return max(itertools.accumulate(_LEVEL.get(token.text, 0) for token in self.tokens), default=0)

    @property
    def macro_nesting(self) -> int:
        """How deeply macros are nested."""
        return max((sum(m.first <= inner.first < m.last for m in self.macros) for inner in self.macros), default=0)

    @property
    def additions(self) -> int:
        """The number of additions; each copies a list or a text."""
        return sum(token.text == "+" for token in self.tokens)

    @property
    def copies(self) -> int:
        """How many copies of one value another value can hold because macros name it repeatedly."""
        return math.prod(max(1, self._uses(macro)) for macro in self.macros)

    @cached_property
    def macros(self) -> tuple[Macro, ...]:
        """Every loop, in the order of the text."""
        found = (self._macro(index) for index, token in enumerate(self.tokens) if token.text in _MACROS)
        return tuple(macro for macro in found if macro is not None)

    @cached_property
    def free_names(self) -> frozenset[str]:
        """Names that appear where no macro binds them: these variables come from outside."""
        return frozenset(
            token.text
            for index, token in enumerate(self.tokens)
            if self._is_plain_name(index)
            and not any(m.first < index < m.last and m.variable == token.text for m in self.macros)
        )

    @cached_property
    def asked_names(self) -> frozenset[str]:
        """Keys of the state in `has(key)`: CEL itself only supports fields, as in `has(last.topic)`."""
        return frozenset(self._text(index + 2) for index in self._questions)

    @property
    def nullable_names(self) -> frozenset[str]:
        """Names that are compared with null."""
        return frozenset(
            token.text for index, token in enumerate(self.tokens) if self._is_whole(index) and self._meets_null(index)
        )

    def with_questions_answered(self, prefix: str) -> str:
        """Return the text with each `has(key)` replaced by a variable named `prefix` and the key."""
        pieces, end = list[str](), 0
        for index in self._questions:
            pieces += (self.text[end : self.tokens[index].start], prefix + self._text(index + 2))
            end = self.tokens[index + 3].end
        return "".join((*pieces, self.text[end:]))

    @cached_property
    def _questions(self) -> tuple[int, ...]:
        """The positions of `has(key)`."""
        return tuple(
            index
            for index, token in enumerate(self.tokens)
            if token.text == "has"
            and self._is_plain_name(index)
            and (self._text(index + 1), self._text(index + 3)) == ("(", ")")
            and self._is_plain_name(index + 2)
        )

    def calls(self, function: str) -> bool:
        """Whether the text calls a function with this name."""
        return any(
            token.text == function and self._is_plain_name(index) and self._text(index + 1) == "("
            for index, token in enumerate(self.tokens)
        )

    def _is_whole(self, index: int) -> bool:
        """Whether a token is a name, and not the beginning of `name.field`, `name[0]` or `name(…)`."""
        return self._is_plain_name(index) and self._text(index + 1) not in (".", "[", "(")

    def _meets_null(self, index: int) -> bool:
        after = (self._text(index + 1) + self._text(index + 2), self._text(index + 3))
        before = (self._text(index - 2) + self._text(index - 1), self._text(index - 3))
        return any(sign in ("==", "!=") and other == "null" for sign, other in (after, before))

    def patterns(self) -> Iterator[ExpressionToken | None]:
        """Yield the pattern of every call of `matches`; None if it is not a literal."""
        for index in range(len(self.tokens)):
            if self._text(index) == "matches" and self._text(index + 1) == "(":
                last = self._closers[index + 1]
                written = self.tokens[last - 1].kind == "text" and self._text(last - 2) in ("(", ",")
                yield self.tokens[last - 1] if written else None

    def guarded(self, guard: str) -> str:
        """Return the text with a call of `guard` in every loop; once that returns false, all loops end at once."""
        edits = sorted(edit for macro in self.macros for edit in self._edits(macro, guard))
        places = [0, *(place for place, _ in edits), len(self.text)]
        pieces = [self.text[start:end] for start, end in itertools.pairwise(places)]
        return pieces[0] + "".join(added + piece for (_, added), piece in zip(edits, pieces[1:], strict=True))

    def _edits(self, macro: Macro, guard: str) -> Iterator[tuple[int, str]]:
        start = self.tokens[macro.commas[0]].end
        if macro.name == "map" and len(macro.commas) == 1:
            yield start, f" {guard} ? true : {_ERROR},"  # map(x, predicate, result)
            return
        # The bracket needs its own line: the text before it may end with a comment.
        yield start, f" {guard} ? ("
        yield self.tokens[(*macro.commas, macro.last)[1]].start, f"\n) : {_ERROR}"

    def _macro(self, index: int) -> Macro | None:
        if self._text(index - 1) != "." or self._text(index + 1) != "(":
            return None
        name, first, last = self._text(index), index + 1, self._closers[index + 1]
        commas = tuple(self._commas(first, last))
        if len(commas) != 1 and not (name == "map" and len(commas) == 2):
            return None
        return Macro(name=name, variable=self._text(first + 1), first=first, last=last, commas=commas)

    def _commas(self, first: int, last: int) -> Iterator[int]:
        """Yield the commas between the arguments in two brackets, skipping brackets inside them."""
        index = first + 1
        while index < last:
            if self._text(index) == ",":
                yield index
            index = self._closers.get(index, index) + 1

    @cached_property
    def _closers(self) -> dict[int, int]:
        """The closing bracket of every opening bracket."""
        closers, opened = {}, list[int]()
        for index, token in enumerate(self.tokens):
            if token.text in _CLOSING:
                opened.append(index)
            elif opened and token.text == _CLOSING[self._text(opened[-1])]:
                closers[opened.pop()] = index
        return closers

    def _uses(self, macro: Macro) -> int:
        body = range(macro.commas[0] + 1, macro.last)
        return sum(self._text(index) == macro.variable and self._is_plain_name(index) for index in body)

    def _is_plain_name(self, index: int) -> bool:
        return index < len(self.tokens) and self.tokens[index].kind == "name" and self._text(index - 1) != "."

    def _text(self, index: int) -> str:
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""
