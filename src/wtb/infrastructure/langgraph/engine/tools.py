"""LangChain tools: records their calls, and returns the recorded result when a node runs again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.tools.simple import Tool as SimpleTool
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest

from wtb.application.runs.engine_context import CURRENT
from wtb.domain.errors import StateNotSerialisable
from wtb.domain.tools import Tool, ToolCall, ToolSpec
from wtb.infrastructure.langgraph.engine.questions import questions_of
from wtb.infrastructure.langgraph.values import StateValues

RECORDED = "wtb_recorded"
"""The key in a tool's metadata that says that its calls are recorded."""

StoreResult = Callable[[Any, str], Any]
"""Converts a tool's result into its stored form."""

_VALUES = StateValues()


def stored_result(value: Any, tool: str) -> Any:
    """Return the stored form of a tool's result."""
    return _VALUES.store(value, f"the result of {tool!r}")


def stored_or_text(value: Any, tool: str) -> Any:
    """Return the stored form of a tool's result; its text if it cannot be stored."""
    try:
        return stored_result(value, tool)
    except StateNotSerialisable:
        return str(value)


def recorded_tool(tool: BaseTool, known: Tool, store: StoreResult = stored_result) -> BaseTool:
    """Return the tool with its calls recorded like those of WTB's own tools, wherever a node calls it."""
    marked = tool.model_copy(update={"metadata": {**(tool.metadata or {}), RECORDED: True}})
    if not isinstance(tool, StructuredTool | SimpleTool):
        return _of_class(marked, tool, known, store)
    parts: dict[str, Any] = {}
    if tool.func is not None:
        parts["func"] = _recorded(tool, known, tool.func, store)
    if tool.coroutine is not None:
        parts["coroutine"] = _arecorded(tool, known, tool.coroutine, store)
    return marked.model_copy(update=parts)


def _of_class(marked: BaseTool, tool: BaseTool, known: Tool, store: StoreResult) -> BaseTool:
    """Return a tool that is a class of its own, not made from a function, with its calls recorded."""
    kind = type(tool)
    run, arun = _recorded(tool, known, tool._run, store), _arecorded(tool, known, tool._arun, store)
    parts: dict[str, Any] = {"_run": wraps(kind._run)(lambda self, *args, **kwargs: run(*args, **kwargs))}
    if kind._arun is not BaseTool._arun:  # the default, which calls _run
        parts["_arun"] = wraps(kind._arun)(lambda self, *args, **kwargs: arun(*args, **kwargs))
    marked.__class__ = type(kind.__name__, (kind,), {**parts, "__module__": __name__})
    return marked


def _recorded(tool: BaseTool, known: Tool, function: Callable[..., Any], store: StoreResult) -> Callable[..., Any]:
    @wraps(function)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        context = CURRENT.get(None)
        if context is None:
            return function(*args, **kwargs)

        arguments, mock = _arguments(tool, args, kwargs), context.mock_of(tool.name)

        def made(call: ToolCall) -> Any:
            with questions_of(call, context):
                return store(function(*args, **kwargs) if mock is None else _mocked(mock, arguments), tool.name)

        return _as_returned(tool, context.recorded(known, arguments, made))

    recorded.__module__ = __name__  # so that the user's function, not this one, counts as the tool's code
    return recorded


def _arecorded(tool: BaseTool, known: Tool, function: Callable[..., Any], store: StoreResult) -> Callable[..., Any]:
    @wraps(function)
    async def recorded(*args: Any, **kwargs: Any) -> Any:
        context = CURRENT.get(None)
        if context is None:
            return await function(*args, **kwargs)

        arguments, mock = _arguments(tool, args, kwargs), context.mock_of(tool.name)

        async def made(call: ToolCall) -> Any:
            with questions_of(call, context):
                if mock is None:
                    return store(await function(*args, **kwargs), tool.name)
                given = _mocked(mock, arguments)
                return store(await given if inspect.isawaitable(given) else given, tool.name)

        return _as_returned(tool, await context.arecorded(known, arguments, made))

    recorded.__module__ = __name__
    return recorded


def _mocked(mock: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call a mock with the arguments that the model or the node gave, without those that LangChain adds."""
    named = {name: _VALUES.restore(value) for name, value in arguments.items()}
    return mock(*named.pop("args", ()), **named)


def _as_returned(tool: BaseTool, stored: Any) -> Any:
    """Return a recorded result as the tool gave it; a pair of content and artifact is stored as a list."""
    result = _VALUES.restore(stored)
    return tuple(result) if tool.response_format == "content_and_artifact" and type(result) is list else result


def _arguments(tool: BaseTool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments from the model or the node, without those that LangChain adds."""
    schema = tool.tool_call_schema
    names: Any = schema.get("properties", {}) if isinstance(schema, dict) else getattr(schema, "model_fields", kwargs)
    named = {name: stored_result(value, tool.name) for name, value in kwargs.items() if name in names}
    return {**({"args": [stored_result(value, tool.name) for value in args]} if args else {}), **named}


@cache
def record_tool_nodes() -> None:
    """Make every ToolNode record its tool calls while WTB runs a node of a graph; elsewhere nothing changes.

    A node, a tool or a package may invoke an agent that nobody can reach before it runs, and its tools have effects.
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
    return request.override(tool=_undeclared(request.tool))


def _undeclared(tool: BaseTool) -> BaseTool:
    """Record the calls of an undeclared tool, which counts as external."""
    if (tool.metadata or {}).get(RECORDED):
        return tool
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None) or tool.run
    # A ToolNode uses the text of a result that it cannot write as JSON.
    store = stored_or_text if tool.response_format == "content" else stored_result
    return recorded_tool(tool, Tool(spec=ToolSpec(name=tool.name), function=function), store)
