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
        """Register a tool; declaring the same function again (a module that is reloaded) replaces it."""
        known = self._tools.get(tool.spec.name)
        if known is not None and _origin(known.function) != _origin(tool.function):
            raise AlreadyExists(f"there is a tool {tool.spec.name!r} already ({_origin(known.function)}); give name=…")
        self._tools[tool.spec.name] = tool
        return tool

    def get(self, name: str) -> Tool:
        """Return the tool of this name."""
        try:
            return self._tools[name]
        except KeyError:
            known = ", ".join(sorted(self._tools)) or "none"
            raise InvalidInput(f"there is no tool {name!r}; registered with @wtb.tool are: {known}") from None


def _origin(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', '?')}"


TOOLS = ToolRegistry()
"""The registry that `wtb.tool` fills: module-level, since a worker learns tools by importing modules."""
