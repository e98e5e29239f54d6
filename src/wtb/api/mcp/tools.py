"""All tools with their hints. Their errors are the sentences of the API and the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import ToolAnnotations
from pydantic import ValidationError

from wtb.api.mcp import batch_tools, reading_tools, run_tools
from wtb.domain.errors import WTBError
from wtb.domain.printable import printable_lines

READING: tuple[Callable[..., Any], ...] = (
    reading_tools.list_workflows,
    reading_tools.list_runs,
    reading_tools.show_run,
    reading_tools.show_history,
    reading_tools.list_calls,
    reading_tools.show_state,
    reading_tools.show_diff,
    reading_tools.explain_failure,
    run_tools.plan_rollback,
    batch_tools.list_batches,
    batch_tools.plan_batch,
    batch_tools.show_batch,
    batch_tools.list_answers,
    batch_tools.show_case,
)
"""Tools that change nothing."""

CHANGING: dict[Callable[..., Any], bool] = {
    run_tools.rollback: True,
    run_tools.fork: False,
    run_tools.resume: True,
    run_tools.start_run: True,
    batch_tools.start_batch: True,
}
"""Tools that change something, and whether it may be something that exists: the user's code may do anything."""


class PlainTool(Tool):
    """A tool whose errors are plain sentences."""

    async def run(self, arguments: dict[str, Any], context: Any, convert_result: bool = False) -> Any:
        """Run the tool; what WTB refuses, and arguments that do not fit, are told without the name of the tool."""
        try:
            return await super().run(arguments, context, convert_result)
        except ToolError as error:
            if isinstance(error.__cause__, WTBError):
                raise ToolError(printable_lines(str(error.__cause__))) from error
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(_faults(error.__cause__)) from error
            raise


def _faults(error: ValidationError) -> str:
    faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
    return printable_lines(f"the arguments cannot be used: {'; '.join(faults)}")


def all_tools() -> list[Tool]:
    """Return all tools."""
    reading = [_tool(each, ToolAnnotations(read_only_hint=True, open_world_hint=False)) for each in READING]
    changing = [
        _tool(each, ToolAnnotations(read_only_hint=False, destructive_hint=destructive, idempotent_hint=False))
        for each, destructive in CHANGING.items()
    ]
    return [*reading, *changing]


def _tool(function: Callable[..., Any], hints: ToolAnnotations) -> Tool:
    words = inspect.getdoc(function)
    return PlainTool.from_function(function, description=words, annotations=hints, structured_output=False)
