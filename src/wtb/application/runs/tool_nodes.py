"""Nodes that call a registered tool: a workflow as data names the tool, and its config has the arguments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from wtb.domain.errors import InvalidInput
from wtb.domain.tools import Tool
from wtb.domain.workflow import NodeFunction


def tool_node(tool: Tool) -> NodeFunction:
    """Return a node that calls a tool through `ctx`, so that the call is recorded and can be reversed.

    An argument comes from the node's config, or else from the state's key of the same name. If the tool returns a
    mapping, that is the node's update; any other result is stored under the node's name.
    """

    def call(state: Any, ctx: Any) -> Mapping[str, Any]:
        return _changes(ctx, ctx.tool(tool, **_arguments(tool, state, ctx)))

    async def acall(state: Any, ctx: Any) -> Mapping[str, Any]:
        return _changes(ctx, await ctx.atool(tool, **_arguments(tool, state, ctx)))

    return acall if inspect.iscoroutinefunction(tool.function) else call


def _arguments(tool: Tool, state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    parameters = inspect.signature(tool.function).parameters.values()
    names = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters)
    unknown = [] if takes_all else [key for key in ctx.config if key not in names]
    if unknown:
        raise InvalidInput(
            f"node {ctx.run.node!r}: tool {tool.spec.name!r} has no argument {', '.join(unknown)}; it has "
            f"{', '.join(names) or 'none'}. Correct the node's config"
        )
    return {**{name: state[name] for name in names if name in state}, **ctx.config}


def _changes(ctx: Any, returned: Any) -> Mapping[str, Any]:
    return returned if isinstance(returned, Mapping) else {ctx.run.node: returned}
