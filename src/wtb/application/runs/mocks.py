"""Mocks: node functions that return prepared or recorded results instead of computing them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from wtb.domain.errors import InvalidInput
from wtb.domain.tool_answers import MockedTool, Recording, RunAnswers, ToolAnswer
from wtb.domain.tools import CallKind, CallStatus


def mock(node: str, given: Any) -> Callable[..., Any]:
    """Return a function for a node: the given callable, or a function that returns the given results visit by visit."""
    if callable(given) and not _is_error(given):
        return given  # type: ignore[no-any-return]
    each_visit = isinstance(given, list)
    results = [_kept(node, result) for result in (given if each_visit else [given])]

    def mocked(state: Any, ctx: Any) -> Any:
        visit = ctx.run.visit if each_visit else 1
        if visit > len(results):
            raise InvalidInput(
                f"node {node!r} is at visit {visit}, but its mock has only {len(results)} results; give it more, or a "
                "mapping, which it returns at every visit"
            )
        result = results[visit - 1]
        if _is_error(result):
            raise result.with_traceback(None) if isinstance(result, BaseException) else result
        return deepcopy(result)

    return mocked


def _kept(node: str, result: Any) -> Any:
    """Return a copy of a result, so that later changes to the original do not matter."""
    if result is None or isinstance(result, Mapping):
        return deepcopy(result)
    if _is_error(result):
        return result
    raise InvalidInput(
        f"node {node!r} cannot be mocked with a {type(result).__name__}; give a mapping, a list of mappings "
        "(one a visit), an exception or a function"
    )


def _is_error(given: Any) -> bool:
    return isinstance(given, BaseException) or (isinstance(given, type) and issubclass(given, BaseException))


def tool_answers(given: Mapping[str, Any]) -> dict[str, ToolAnswer]:
    """Return the ToolAnswer of each tool."""
    if not isinstance(given, Mapping):
        raise InvalidInput(f"tools={given!r}: give a mapping of tool names, as {{'open_ticket': 'record'}}")
    return {name: _answer(name, each) for name, each in given.items()}


def _answer(tool: str, given: Any) -> ToolAnswer:
    if isinstance(given, MockedTool | RunAnswers | Recording):
        return given
    if given == "record":
        return Recording()
    if callable(given):
        return MockedTool(given)
    if hasattr(given, "calls") and hasattr(given, "history"):
        return _answers_of(tool, given)
    raise InvalidInput(
        f"tool {tool!r} cannot be mocked with {given!r}; give a function that is called instead, a run whose answers "
        "to use, or 'record' to make each call once for a case"
    )


def _answers_of(tool: str, run: Any) -> RunAnswers:
    """Return the answers that a tool gave in a run."""
    made_by = {each.id: each for each in run.history.node_runs}
    calls = sorted(
        (
            call
            for call in run.calls
            if call.kind is CallKind.TOOL and call.tool == tool and call.status is not CallStatus.FAILED
        ),
        key=lambda call: call.start_order,
    )
    ended = [call for call in calls if call.ended_at is not None]
    if not ended:
        raise InvalidInput(f"run {run.id} has no answers of tool {tool!r}: it never called it, or never got a result")
    return RunAnswers(
        str(run.id), tuple((made_by[call.node_run_id].node, made_by[call.node_run_id].visit, call) for call in ended)
    )
