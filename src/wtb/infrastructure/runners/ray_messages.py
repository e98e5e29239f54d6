"""BeginWork: what a worker on Ray is told before its first job, and the code that it cannot import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wtb.domain.errors import InvalidInput
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


def packed(ray: Any, code: object) -> bytes:
    """Return code of a notebook or script as Ray's cloudpickle writes it; raise InvalidInput if it cannot.

    Ray would do it by itself for an argument of a call, but prints a page about what it cannot copy.
    """
    try:
        return bytes(ray.cloudpickle.dumps(code))
    except Exception as error:  # it raises whatever a class of the user raises
        raise InvalidInput(
            f"this workflow cannot be sent to Ray: {error}. One of its functions uses something that cannot be copied, "
            "as a connection, a lock or an open file: make it inside the function, or put the workflow into a file"
        ) from error
