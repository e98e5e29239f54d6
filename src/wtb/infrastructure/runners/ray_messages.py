"""BeginWork: what a worker on Ray is told before its first job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wtb.domain.runner import Assignment


@dataclass(frozen=True, kw_only=True)
class BeginWork:
    """The assignment, and where the process that runs the batch works."""

    assignment: Assignment
    machine: str
    """The machine of that process, as leases have it."""
    folder: str
    """The folder in which it works."""
    path: Sequence[str]
    """Where it looks for modules."""

    def to_data(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "assignment": self.assignment.to_data(),
            "machine": self.machine,
            "folder": self.folder,
            "path": list(self.path),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> BeginWork:
        """Read it from plain JSON."""
        return cls(
            assignment=Assignment.from_data(data["assignment"]),
            machine=data["machine"],
            folder=data["folder"],
            path=data["path"],
        )
