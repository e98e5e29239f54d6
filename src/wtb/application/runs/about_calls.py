"""Asks a tool about a call, or undoes it. What its functions read for that says nothing about the result of a node."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from types import CodeType
from typing import Any

from wtb.application.runs.callers_loop import finished
from wtb.domain.tools import ToolCall


def asked(function: Callable[[ToolCall], Any], call: ToolCall) -> Any:
    """Return what `confirm` or `reverse` of a tool says about a call, also if the function is async."""
    returned = function(call)
    return finished(call.tool, _awaited(returned)) if inspect.iscoroutine(returned) else returned


async def _awaited(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return await coroutine


def is_about_a_call(code: CodeType) -> bool:
    """Whether a frame with this code has called such a function."""
    return code is asked.__code__ or code is _awaited.__code__
