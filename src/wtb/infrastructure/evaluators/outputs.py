"""Read the output of a run from its final state, as `output=` of a batch says, or by a default rule."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import EvaluationContext
from wtb.infrastructure.evaluators.messages import holds_messages, last_message
from wtb.infrastructure.evaluators.paths import value_at


@dataclass(frozen=True)
class KeysOutput:
    """The values at these keys or paths of the final state."""

    keys: tuple[str, ...]

    def read(self, context: EvaluationContext) -> Any:
        """Return the value, or a mapping of several."""
        found = {key: value_at(key, context.state) for key in self.keys}
        return found if len(found) > 1 else found[self.keys[0]]


@dataclass(frozen=True)
class FunctionOutput:
    """What a function of the final state returns."""

    function: Callable[[Any], Any]

    def read(self, context: EvaluationContext) -> Any:
        """Call the function."""
        return self.function(context.state)


@dataclass(frozen=True)
class DefaultOutput:
    """The last AI message; else the keys that evaluators compare; else the keys that the run added or changed."""

    compared: tuple[str, ...] = ()

    def read(self, context: EvaluationContext) -> Any:
        """Return the first of these that the final state has."""
        if any(map(holds_messages, context.state.values())):
            try:
                return last_message(context)
            except InvalidInput:
                pass  # it holds no message of a model, or several keys do: then the keys say more
        state = context.state
        return {key: state[key] for key in self.compared if key in state} or dict(_changed(context))


def _changed(context: EvaluationContext) -> Iterator[tuple[str, Any]]:
    given = context.case.input
    for key, value in context.state.items():
        if key not in given or not _is_same(value, given[key]):
            yield key, value


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal; arrays have no truth value, so they count as different."""
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001  whatever a class of the user's raises
        return False


OutputReader = KeysOutput | FunctionOutput | DefaultOutput


def read_output(given: Any, evaluators: Sequence[Any]) -> OutputReader:
    """Return the reader for the option `output=` of a batch."""
    if given is None:
        compared = (getattr(each, "key", None) for each in evaluators)
        roots = (key.partition(".")[0] for key in compared if isinstance(key, str))
        return DefaultOutput(tuple(dict.fromkeys(roots)))
    if inspect.iscoroutinefunction(given):
        raise InvalidInput("output= takes a function that is not async")
    if callable(given):
        return FunctionOutput(given)
    keys = (given,) if isinstance(given, str) else given
    if isinstance(keys, list | tuple) and keys and all(isinstance(key, str) and key for key in keys):
        return KeysOutput(tuple(keys))
    raise InvalidInput(f"output= takes a key of the state, a list of keys, or a function of the state, not {given!r}")
