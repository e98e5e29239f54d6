"""Find evaluators for a command: by name, as `exact_match:answer` with its key, or your own as `file.py:evaluator`."""

from __future__ import annotations

import inspect
from typing import Any

from wtb.infrastructure.evaluators.named import is_keyed
from wtb.loading import load_named


def load_evaluator(name: str) -> Any:
    """Return your evaluator from `file.py[:evaluator]` or `module:evaluator`; any other name stays as it is."""
    if is_keyed(name) or not (":" in name or name.endswith(".py")):
        return name
    return load_named(name, _is_evaluator, "evaluator", "evaluator")[0]


def _is_evaluator(value: object) -> bool:
    """Whether something scores a run: an object with `evaluate`, or a function. What is wrong with it is told later."""
    return inspect.isfunction(value) or callable(getattr(value, "evaluate", None))
