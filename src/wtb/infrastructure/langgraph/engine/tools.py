"""LangChain tools as ours: their calls are recorded, and a result that is recorded answers when a node runs again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.tools.simple import Tool as SimpleTool
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest

from wtb.application.runs.context import CURRENT
from wtb.domain.errors import StateNotSerialisable
from wtb.domain.tools import Tool, ToolCall, ToolSpec
from wtb.infrastructure.langgraph.engine.questions import questions_of
from wtb.infrastructure.langgraph.values import StateValues

RECORDED = "wtb_recorded"
"""Marks a tool, in its metadata, whose calls go through the context."""

Keep = Callable[[Any, str], Any]
"""Says how a tool's result is stored."""

_VALUES = StateValues()


def kept_result(value: Any, tool: str) -> Any:
    """Return a tool's result as it is stored."""
    return _VALUES.store(value, f"the result of {tool!r}")


def kept_text(value: Any, tool: str) -> Any:
    """Return a tool's result as it is stored; the text of what cannot be."""
    try:
        return kept_result(value, tool)
    except StateNotSerialisable:
        return str(value)


def through_context(tool: BaseTool, known: Tool, keep: Keep = kept_result) -> BaseTool:
    """Return the tool with its calls recorded as those of a tool of ours, wherever a node calls it."""
    marked = tool.model_copy(update={"metadata": {**(tool.metadata or {}), RECORDED: True}})
    if not isinstance(tool, StructuredTool | SimpleTool):
        return _of_class(marked, tool, known, keep)
    parts: dict[str, Any] = {}
    if tool.func is not None:
        parts["func"] = _recorded(tool, known, tool.func, keep)
    if tool.coroutine is not None:
        parts["coroutine"] = _arecorded(tool, known, tool.coroutine, keep)
    return marked.model_copy(update=parts)


def _of_class(marked: BaseTool, tool: BaseTool, known: Tool, keep: Keep) -> BaseTool:
    """Return a tool that is a class of its own, and not made of a function, with its calls recorded."""
    kind = type(tool)
    run, arun = _recorded(tool, known, tool._run, keep), _arecorded(tool, known, tool._arun, keep)
    parts: dict[str, Any] = {"_run": wraps(kind._run)(lambda self, *args, **kwargs: run(*args, **kwargs))}
    if kind._arun is not BaseTool._arun:  # which would call the other one
        parts["_arun"] = wraps(kind._arun)(lambda self, *args, **kwargs: arun(*args, **kwargs))
    marked.__class__ = type(kind.__name__, (kind,), {**parts, "__module__": __name__})
    return marked


def _recorded(tool: BaseTool, known: Tool, function: Callable[..., Any], keep: Keep) -> Callable[..., Any]:
    @wraps(function)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        context = CURRENT.get(None)
        if context is None:
            return function(*args, **kwargs)

        def made(call: ToolCall) -> Any:
            with questions_of(call, context):
                return keep(function(*args, **kwargs), tool.name)

        return _given(tool, context.recorded(known, _arguments(tool, args, kwargs), made))

    recorded.__module__ = __name__  # not the user's: by the code of theirs the tool is known
    return recorded


def _arecorded(tool: BaseTool, known: Tool, function: Callable[..., Any], keep: Keep) -> Callable[..., Any]:
    @wraps(function)
    async def recorded(*args: Any, **kwargs: Any) -> Any:
        context = CURRENT.get(None)
        if context is None:
            return await function(*args, **kwargs)

        async def made(call: ToolCall) -> Any:
            with questions_of(call, context):
                return keep(await function(*args, **kwargs), tool.name)

        return _given(tool, await context.arecorded(known, _arguments(tool, args, kwargs), made))

    recorded.__module__ = __name__
    return recorded


def _given(tool: BaseTool, kept: Any) -> Any:
    """Return a recorded result as the tool gave it; content and artifact are a pair, which is stored as a list."""
    result = _VALUES.restore(kept)
    return tuple(result) if tool.response_format == "content_and_artifact" and type(result) is list else result


def _arguments(tool: BaseTool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the model or the node asked for, without what LangChain passes along."""
    schema = tool.tool_call_schema
    names: Any = schema.get("properties", {}) if isinstance(schema, dict) else getattr(schema, "model_fields", kwargs)
    named = {name: kept_result(value, tool.name) for name, value in kwargs.items() if name in names}
    return {**({"args": [kept_result(value, tool.name) for value in args]} if args else {}), **named}


@cache
def record_tool_nodes() -> None:
    """Let every ToolNode record the calls of its tools while a node of a graph of ours runs, and do as ever elsewhere.

    An agent that a node, a tool or a package invokes cannot be reached before it runs, and its tools change things too.
    """
    run, arun = ToolNode._execute_tool_sync, ToolNode._execute_tool_async

    @wraps(run)
    def recorded(self: ToolNode, request: ToolCallRequest, *args: Any) -> Any:
        return run(self, _recorded_request(request), *args)

    @wraps(arun)
    async def arecorded(self: ToolNode, request: ToolCallRequest, *args: Any) -> Any:
        return await arun(self, _recorded_request(request), *args)

    setattr(ToolNode, run.__name__, recorded)
    setattr(ToolNode, arun.__name__, arecorded)


def _recorded_request(request: ToolCallRequest) -> ToolCallRequest:
    context = CURRENT.get(None)
    if request.tool is None or context is None or not context.is_of_graph:
        return request
    return request.override(tool=_automatic(request.tool))


def _automatic(tool: BaseTool) -> BaseTool:
    """Record a tool of which nothing is known, so that it counts as external."""
    if (tool.metadata or {}).get(RECORDED):
        return tool
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None) or tool.run
    # What a ToolNode makes of a result that it cannot write as JSON is its text.
    keep = kept_text if tool.response_format == "content" else kept_result
    return through_context(tool, Tool(spec=ToolSpec(name=tool.name), function=function), keep)
