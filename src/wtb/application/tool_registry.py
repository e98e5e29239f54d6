"""ToolRegistry: finds tools by name, for nodes and for workflows that are loaded from data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wtb.domain.errors import AlreadyExists, InvalidInput
from wtb.domain.tools import Tool


class ToolRegistry:
    """The tools that a program declared."""

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}

    def add(self, tool: Tool) -> Tool:
        """Register a tool; declaring the same function again, as a reloaded module does, replaces it."""
        known = self._tools.get(tool.spec.name)
        if known is not None and _origin(known.function) != _origin(tool.function):
            raise AlreadyExists(
                f"there is already a tool {tool.spec.name!r} ({_origin(known.function)}); give this one another name=…"
            )
        self._tools[tool.spec.name] = tool
        return tool

    def get(self, name: str) -> Tool:
        """Return the tool of this name."""
        try:
            return self._tools[name]
        except KeyError:
            known = ", ".join(sorted(self._tools)) or "none"
            raise InvalidInput(
                f"there is no tool {name!r}; tools registered with @wtb.tool: {known}. Import the module that "
                'registers it; a workflow as JSON names that module in "imports"'
            ) from None


def _origin(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', '?')}"


TOOLS = ToolRegistry()
"""The registry that `wtb.tool` fills. It is global, because a worker learns of tools by importing modules."""
