"""Observation: something outside the program that a function read, with its digest at that time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class SourceKind(StrEnum):
    """The kind of thing that was read."""

    FILE = "file"
    FOLDER = "folder"
    MODULE = "module"
    VARIABLE = "variable"
    NETWORK = "network"
    PROCESS = "process"

    @property
    def is_verifiable(self) -> bool:
        """Whether WTB can notice a later change; it cannot know what a server would answer now."""
        return self not in (SourceKind.NETWORK, SourceKind.PROCESS)


@dataclass(frozen=True, slots=True, order=True)
class ObservedSource:
    """A file, folder, module or variable by name; files inside the project are named relative to its root."""

    kind: SourceKind
    name: str

    def __str__(self) -> str:
        match self.kind:
            case SourceKind.VARIABLE if self.name == EVERY_VARIABLE:
                return "the environment as a whole"
            case SourceKind.VARIABLE:
                return f"${self.name}"
            case SourceKind.FOLDER:
                return f"the files in {self.name}"
            case _:
                return self.name


EVERY_VARIABLE = "*"
"""The name for all variables at once, used when a function copies the whole environment."""

ABSENT = "absent"
"""The digest of a file or variable that does not exist."""

WRITTEN = "written by the run"
"""The digest of a file that the run itself wrote: its content is a result, not an input."""

ANYBODY = "*"
"""The reader if no function of the user was on the stack; the observation may concern any node."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One function read one source; `reader` is `file:function`."""

    reader: str
    source: ObservedSource
    digest: str


def worker_trace(trace_id: str, worker: str) -> str:
    """Return the name of a worker's own trace in a run of a batch."""
    return f"{run_of(trace_id)}/{worker}"


def run_of(trace_id: str) -> str:
    """Return the run of a batch that a trace belongs to: the trace of the process that began it."""
    return trace_id.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a trace in which a result was made: the observations from `begin` up to, not including, `end`."""

    trace_id: str
    begin: int
    end: int

    def to_data(self) -> list[Any]:
        """Return the window as plain data."""
        return [self.trace_id, self.begin, self.end]

    @classmethod
    def from_data(cls, data: Sequence[Any]) -> Window:
        """Read a window from plain data."""
        return cls(str(data[0]), int(data[1]), int(data[2]))
