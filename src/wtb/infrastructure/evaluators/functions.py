"""Functions as evaluators: plain ones, and those that declare their scale with `@wtb.evaluator`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, overload

from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import Direction, EvaluationContext, metric_of

Function = Callable[[EvaluationContext], Any]


@dataclass(frozen=True, kw_only=True)
class FunctionEvaluator:
    """A function of the context as an evaluator; you can still call it like the function."""

    name: str
    evaluate: Function
    direction: str = Direction.HIGHER
    worst: float | None = None
    best: float | None = None

    def __call__(self, context: EvaluationContext) -> Any:
        """Call the function."""
        return self.evaluate(context)


@overload
def evaluator(function: Function, /) -> FunctionEvaluator: ...


@overload
def evaluator(
    *, worst: float | None = None, best: float | None = None, direction: str = "higher", name: str | None = None
) -> Callable[[Function], FunctionEvaluator]: ...


def evaluator(
    function: Any = None,
    /,
    *,
    worst: float | None = None,
    best: float | None = None,
    direction: str = "higher",
    name: str | None = None,
) -> Any:
    """Make a function of the context an evaluator: `@wtb.evaluator(worst=0, best=1)`.

    - `worst`, `best`: the ends of the scale. If you declare them, a failed run scores the worst.
    - `direction`: whether `higher` or `lower` scores are better.
    - `name`: the name of the metric; by default that of the function.

    The function returns a number or a bool, and may be async.
    """

    def made(given: Any) -> FunctionEvaluator:
        found = FunctionEvaluator(
            name=name or _name_of(given), evaluate=given, direction=direction, worst=worst, best=best
        )
        metric_of(found)  # refuses a direction or a scale that makes no sense
        return found

    return made if function is None else made(function)


def _name_of(function: Any) -> str:
    if not callable(function) or isinstance(function, type):
        raise InvalidInput(f"@wtb.evaluator decorates a function of the context, not {function!r}")
    name: str = getattr(function, "__name__", "")
    if not name.isidentifier():
        raise InvalidInput("a function without a name needs one: wtb.evaluator(name='is_short')(…)")
    return name


def plain_evaluator(function: Function) -> FunctionEvaluator:
    """Return a plain function as an evaluator; if its signature says `-> bool`, the scale is 0 to 1."""
    if inspect.signature(function).return_annotation in (bool, "bool"):
        return FunctionEvaluator(name=function.__name__, evaluate=function, worst=0.0, best=1.0)
    return FunctionEvaluator(name=function.__name__, evaluate=function)
