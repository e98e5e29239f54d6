"""RaySlot: the place of one worker on Ray: an actor, the jobs that were sent to it, and what is known of its state."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from wtb.domain.job_attempt import RayIds

_CONTROL = "control"
Done = Callable[["Future[Any]"], None]


class SlotState(StrEnum):
    """What is known of a worker."""

    STARTING = "starting"
    READY = "ready"
    IN_DOUBT = "in doubt"
    """A call failed. The worker is asked whether it lives; until it answers, it gets no job."""
    LOST = "lost"
    """The process is gone; its calls have still to fail."""
    ENDED = "ended"


@dataclass(slots=True)
class SentJob:
    """A job that was sent to a worker."""

    number: int
    ids: RayIds
    sent_at: float
    """When it was sent, by the monotonic clock."""
    failed: bool = False
    """Whether the call failed, so that nobody knows whether the job has run."""
    is_wanted_back: bool = False
    """Whether the worker was asked to give the job back, if it has not begun."""
    withdrawn: bool = False
    """Whether the worker gave it back, so that another worker got it."""


@dataclass(slots=True, eq=False)
class RaySlot:
    """One worker."""

    actor: Any
    since: float = field(default_factory=time.monotonic)
    """When it came into its state, by the monotonic clock."""
    state: SlotState = SlotState.STARTING
    is_placed: bool = False
    """Whether Ray found a machine for it."""
    token: str = ""
    """Tells the process from one that Ray started in its place."""
    name: str = ""
    """The name of the process, as leases have it."""
    is_restarted: bool = False
    """Whether Ray has started another process in its place, which is in `token`."""
    failed_starts: int = 0
    """How often its process ended before it was ready."""
    reason: str = ""
    """How the process was lost."""
    sent: list[SentJob] = field(default_factory=list)
    """The jobs that were sent and not reported, in the order in which they run."""

    def move(self, state: SlotState) -> None:
        """Change the state."""
        self.state, self.since = state, time.monotonic()

    def has_been(self, state: SlotState, longer_than_s: float) -> bool:
        """Whether it has been in a state for so long."""
        return self.state is state and time.monotonic() - self.since > longer_than_s

    @property
    def unanswered(self) -> list[SentJob]:
        """The jobs whose calls have not come back."""
        return [job for job in self.sent if not job.failed]

    def run(self, number: int, done: Callable[[SentJob, Future[Any]], None]) -> None:
        """Send a job to the worker."""
        call = self.actor.run.remote(number)
        actor = self.actor._actor_id.hex()
        job = SentJob(number, RayIds(actor=actor, task=call.task_id().hex()), time.monotonic())
        self.sent.append(job)
        call.future().add_done_callback(lambda future: done(job, future))

    def begin(self, message: dict[str, Any], done: Done) -> None:
        """Tell the worker what to work on."""
        self.actor.begin.remote(message).future().add_done_callback(done)

    def ping(self, done: Done) -> None:
        """Ask for the token of the worker."""
        self.actor.ping.options(concurrency_group=_CONTROL).remote().future().add_done_callback(done)

    def withdraw(self, job: SentJob, done: Done) -> None:
        """Ask for a job that has not begun."""
        job.is_wanted_back = True
        call = self.actor.withdraw.options(concurrency_group=_CONTROL).remote(job.number)
        call.future().add_done_callback(done)


def new_actor(ray: Any, worker_class: type) -> Any:
    """Start an actor. Ray restarts it when its process ends, but repeats no call: leases decide what runs again."""
    remote = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=0, concurrency_groups={_CONTROL: 1})
    return remote(worker_class).remote()
