"""JobAttempt: one attempt at a job, with its process, its times and its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

MOST_LOST_WORKERS = 3
"""A job that has lost its worker this often becomes a dead letter."""


class AttemptEnd(StrEnum):
    """How an attempt at a job ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    LOST = "lost"
    """The worker ended before the job did."""


@dataclass(frozen=True, slots=True)
class WorkerName:
    """The name of a process in leases: `host-boot:namespace/pid/start`."""

    name: str

    @property
    def machine(self) -> str:
        """The machine, with what tells it from others of the same name."""
        place = self.name.partition("/")[0]
        return place.rpartition(":")[0] or place

    @property
    def host(self) -> str:
        """The name of the machine."""
        return self.machine.rpartition("-")[0] or self.machine

    @property
    def pid(self) -> str:
        """The number of the process."""
        return self.name.partition("/")[2].partition("/")[0]

    @property
    def label(self) -> str:
        """The machine and the number of the process, as `host/pid`."""
        return f"{self.host}/{self.pid}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RayIds:
    """The ids that Ray gave to an attempt: its logs and its dashboard name them."""

    actor: str
    task: str

    def to_data(self) -> dict[str, str]:
        """Return it as plain JSON."""
        return {"actor": self.actor, "task": self.task}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAttempt:
    """One attempt at a job. `worker` is the name of the process, as in leases."""

    worker: str
    end: AttemptEnd
    started: datetime | None
    """None if it is unknown because the worker was lost."""
    ended: datetime
    reason: str | None = None
    """How the worker ended, if it was lost."""
    ray: RayIds | None = None
    """Ray's ids, if the attempt was made on Ray."""

    @property
    def host(self) -> str:
        """The name of the machine."""
        return WorkerName(self.worker).host

    @property
    def pid(self) -> str:
        """The number of the process."""
        return WorkerName(self.worker).pid

    def to_data(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "worker": self.worker,
            "end": self.end.value,
            "started": None if self.started is None else self.started.isoformat(),
            "ended": self.ended.isoformat(),
            **({} if self.reason is None else {"reason": self.reason}),
            **({} if self.ray is None else {"ray": self.ray.to_data()}),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> JobAttempt:
        """Read it from plain JSON."""
        started, ray = data["started"], data.get("ray")
        return cls(
            worker=data["worker"],
            end=AttemptEnd(data["end"]),
            started=None if started is None else datetime.fromisoformat(started),
            ended=datetime.fromisoformat(data["ended"]),
            reason=data.get("reason"),
            ray=None if ray is None else RayIds(actor=ray["actor"], task=ray["task"]),
        )
