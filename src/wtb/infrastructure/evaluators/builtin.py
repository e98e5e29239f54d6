"""The built-in evaluators: dataclasses that score a run against its case."""

from __future__ import annotations

import inspect
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from wtb.domain.cases import Case
from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import Direction, EvaluationContext
from wtb.domain.messages import is_message
from wtb.infrastructure.evaluators.messages import is_spoken, refuse_messages, text_of
from wtb.infrastructure.evaluators.paths import is_path, value_at

Key = str | Callable[[EvaluationContext], Any]
"""Where an evaluator looks: a key of the state, a path such as "messages.-1.content", or a function of the context."""


@dataclass(frozen=True, kw_only=True)
class _Keyed:
    """Compares a value in the final state with the value that the case expects.

    `key` is a key, a path or a function of the context. If `expected` is a mapping, the expected value is found in it
    by `expected_key`, or else by the same key or path. Otherwise `expected` itself is the value.
    """

    key: Key
    expected_key: str | None = None
    worst: float = 0.0
    best: float = 1.0
    takes_whole: ClassVar[bool] = False
    """Whether lists and mappings are compared as they are, and not as text or as a number."""

    def __post_init__(self) -> None:
        """Refuse a key that cannot lead to a value."""
        if inspect.iscoroutinefunction(self.key):
            raise InvalidInput(f"{type(self).__name__} cannot await its function; give one that is not async")
        if not self.key or not isinstance(self.key, str | Callable):
            raise InvalidInput(
                f"{type(self).__name__} takes a key of the state, a path such as 'messages.-1.content' or a function "
                f"of the context, not {self.key!r}"
            )

    def actual(self, context: EvaluationContext) -> Any:
        """Return the value in the final state."""
        found = value_at(self.key, context.state) if isinstance(self.key, str) else self.key(context)
        name = self.key if isinstance(self.key, str) else self._function_name
        refuse_messages(name, found, is_message if self.takes_whole else is_spoken)
        return found

    def check_case(self, case: Case) -> None:
        """Raise InvalidInput if the case has no expected value; called before anything runs."""
        if case.expected is None:
            raise InvalidInput(f"expected is missing; {type(self).__name__} needs it")
        self.wanted_of(case)

    def wanted(self, context: EvaluationContext) -> Any:
        """Return the value that the case of a run expects."""
        self.check_case(context.case)
        return self.wanted_of(context.case)

    def wanted_of(self, case: Case) -> Any:
        """Return the value that a case expects."""
        if not isinstance(case.expected, Mapping):
            return case.expected
        key = self.expected_key or (self.key if isinstance(self.key, str) else None)
        if key is not None:
            return self._expected_at(key, case.expected)
        if self.takes_whole:
            return case.expected
        raise InvalidInput(f"expected is a mapping; name the value that {type(self).__name__} needs{_hint(case)}")

    def _expected_at(self, key: str, expected: Mapping[str, Any]) -> Any:
        try:
            return value_at(key, expected, "expected")
        except InvalidInput as error:
            hint = f"; {error}; expected_key= names another key" if is_path(key) else ""
            raise InvalidInput(f"expected.{key} is missing; {type(self).__name__} needs it{hint}") from error

    @property
    def _function_name(self) -> str:
        return getattr(self.key, "__name__", "the function")


def _hint(case: Case) -> str:
    return f": expected_key={next(iter(case.expected), 'KEY')!r}"


@dataclass(frozen=True)
class ExactMatch(_Keyed):
    """1 if the value in the state equals the expected one, else 0."""

    key: Key
    name: str = "exact_match"
    takes_whole: ClassVar[bool] = True

    def evaluate(self, context: EvaluationContext) -> float:
        return float(self.actual(context) == self.wanted(context))


@dataclass(frozen=True)
class Contains(_Keyed):
    """1 if the value in the state contains the expected text, or each of several texts. Capitals do not matter."""

    key: Key
    name: str = "contains"

    def evaluate(self, context: EvaluationContext) -> float:
        wanted = self.wanted(context)
        texts = wanted if isinstance(wanted, list | tuple) else [wanted]
        actual = text_of(self.actual(context)).casefold()
        return float(all(str(text).casefold() in actual for text in texts))


@dataclass(frozen=True)
class RegexMatch(_Keyed):
    """1 if a pattern, given here or expected by the case, is found in the value in the state."""

    key: Key
    pattern: str | None = None
    name: str = "regex_match"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pattern is not None:
            _compiled(self.pattern)

    def check_case(self, case: Case) -> None:
        if self.pattern is None:
            super().check_case(case)
            _compiled(str(self.wanted_of(case)))

    def evaluate(self, context: EvaluationContext) -> float:
        pattern = self.pattern if self.pattern is not None else str(self.wanted(context))
        return float(_compiled(pattern).search(text_of(self.actual(context))) is not None)


@dataclass(frozen=True)
class NumericMatch(_Keyed):
    """1 if a number is within a tolerance of the expected one (relative, or absolute near zero)."""

    key: Key
    relative: float = 1e-6
    absolute: float = 1e-9
    name: str = "numeric_match"

    def check_case(self, case: Case) -> None:
        super().check_case(case)
        try:
            float(self.wanted_of(case))
        except (TypeError, ValueError):
            raise InvalidInput(
                f"expected is {self.wanted_of(case)!r}, but {type(self).__name__} needs a number"
            ) from None

    def evaluate(self, context: EvaluationContext) -> float:
        actual, wanted = float(self.actual(context)), float(self.wanted(context))
        return float(abs(actual - wanted) <= max(self.relative * abs(wanted), self.absolute))


@dataclass(frozen=True)
class FitsSchema(_Keyed):
    """1 if the value in the state fits a JSON schema."""

    key: Key
    schema: Mapping[str, Any]
    name: str = "fits_schema"
    takes_whole: ClassVar[bool] = True

    def check_case(self, case: Case) -> None:
        """Accept every case: the schema does not depend on it."""

    def evaluate(self, context: EvaluationContext) -> float:
        from jsonschema import Draft202012Validator
        from referencing import Registry

        return float(Draft202012Validator(dict(self.schema), registry=Registry()).is_valid(self.actual(context)))


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidInput(f"{pattern!r} is not a regular expression: {error}") from error


_ARTICLES = frozenset({"a", "an", "the"})
_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class TokenF1(_Keyed):
    """How many words the answer shares with the expected one: harmonic mean of precision and recall, as in SQuAD."""

    key: Key
    name: str = "token_f1"

    def evaluate(self, context: EvaluationContext) -> float:
        actual, wanted = _words(text_of(self.actual(context))), _words(str(self.wanted(context)))
        common = sum((Counter(actual) & Counter(wanted)).values())
        if not actual or not wanted:
            return float(actual == wanted)
        return 2 * common / (len(actual) + len(wanted))


def _words(text: str) -> list[str]:
    return [word for word in text.casefold().translate(_PUNCTUATION).split() if word not in _ARTICLES]


@dataclass(frozen=True)
class Latency:
    """Seconds of the slowest node of each step, in all, without failed attempts and waiting for workers or people."""

    name: str = "latency_s"
    direction: Direction = Direction.LOWER
    best: float = 0.0

    def evaluate(self, context: EvaluationContext) -> float:
        return context.latency_s


@dataclass(frozen=True)
class Cost:
    """Money that the nodes reported, or the price of their tokens. No score if a price is unknown."""

    name: str = "cost_usd"
    direction: Direction = Direction.LOWER
    best: float = 0.0

    def evaluate(self, context: EvaluationContext) -> float:
        if context.unpriced:
            raise InvalidInput(f"no price is known for {', '.join(context.unpriced)}")
        return context.usage.get("cost_usd", 0.0)


@dataclass(frozen=True)
class Tokens:
    """Input and output tokens that the nodes reported."""

    name: str = "tokens"
    direction: Direction = Direction.LOWER
    best: float = 0.0

    def evaluate(self, context: EvaluationContext) -> float:
        return context.usage.get("input_tokens", 0) + context.usage.get("output_tokens", 0)


@dataclass(frozen=True)
class Steps:
    """Steps on the way to the final state."""

    name: str = "steps"
    direction: Direction = Direction.LOWER
    best: float = 0.0

    def evaluate(self, context: EvaluationContext) -> float:
        return context.steps


@dataclass(frozen=True)
class ToolErrors:
    """Failed tool calls on the way to the final state, including those in failed attempts."""

    name: str = "tool_errors"
    direction: Direction = Direction.LOWER
    best: float = 0.0

    def evaluate(self, context: EvaluationContext) -> float:
        return context.tool_errors
