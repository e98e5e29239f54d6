"""Stand-ins that answer tool calls instead of the tool: a function, a recorded run, or earlier calls of the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from wtb.domain.tools import ToolCall


class External(StrEnum):
    """What a batch does about calls of external tools: make them, make and take them back, or refuse them."""

    RUN = "run"
    REVERSE = "reverse"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class MockedTool:
    """A function that is called instead of the tool, with the same arguments."""

    function: Callable[..., Any]

    @property
    def depends_on(self) -> Any:
        """The dependencies of results that were made with this answer."""
        return self.function


@dataclass(frozen=True, slots=True)
class RunAnswers:
    """The successful calls of a tool in a run, in the order of their start."""

    run_id: str
    calls: tuple[tuple[str, int, ToolCall], ...]
    """Each call with the node that made it and the number of the visit."""

    @property
    def depends_on(self) -> Any:
        """The dependencies of results that were made with these answers."""
        return [[node, visit, dict(call.arguments), call.result] for node, visit, call in self.calls]


@dataclass(frozen=True, slots=True)
class Recording:
    """The first call of each kind is real; later equal ones on the same case of a batch get its result."""

    @property
    def depends_on(self) -> Any:
        """The dependencies of results that were made with such answers."""
        return "record"


ToolAnswer = MockedTool | RunAnswers | Recording
