"""RaySlot: the place of one worker on Ray: an actor, the jobs that were sent to it, and what is known of its state."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from wtb.domain.job_attempt import RayIds
from wtb.domain.job_limits import ExceededLimit, Resources

_CONTROL, _WATCH = "control", "watch"
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
    first_at: float | None = None
    """When it came to its turn, by the monotonic clock; None while it waits behind another job."""
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
    """Whether Ray has ever found a machine for it. If that machine is lost, the worker waits for another one."""
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
    exceeded: tuple[SentJob | None, ExceededLimit] | None = None
    """The limit for which it is being ended, and the job that exceeded it."""
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
        now = time.monotonic()
        job = SentJob(number, RayIds(actor=self.actor_id, task=call.task_id().hex()), now, None if self.sent else now)
        self.sent.append(job)
        call.future().add_done_callback(lambda future: done(job, future))

    @property
    def actor_id(self) -> str:
        """Ray's id of the actor."""
        return str(self.actor._actor_id.hex())

    def reported(self, job: SentJob) -> None:
        """Note that a job was reported, so that the next one has its turn."""
        self.sent.remove(job)
        if self.sent and self.sent[0].first_at is None:
            self.sent[0].first_at = time.monotonic()

    def runs_longer_than(self, limit_s: float) -> SentJob | None:
        """Return the job that runs now, if it has taken longer than a limit."""
        first = self.sent[0] if self.sent else None
        if self.state is not SlotState.READY or first is None or first.first_at is None or first.withdrawn:
            return None
        return first if time.monotonic() - first.first_at > limit_s else None

    def watch(self, limit_bytes: int, done: Done) -> None:
        """Ask the worker to answer when it uses too much memory."""
        call = self.actor.watch.options(concurrency_group=_WATCH).remote(limit_bytes)
        call.future().add_done_callback(done)

    def begin(self, message: dict[str, Any], carried: object, done: Done) -> None:
        """Tell the worker what to work on. `carried` is code that it cannot import, or None."""
        self.actor.begin.remote(message, carried).future().add_done_callback(done)

    def ping(self, done: Done) -> None:
        """Ask for the token of the worker."""
        self.actor.ping.options(concurrency_group=_CONTROL).remote().future().add_done_callback(done)

    def withdraw(self, job: SentJob, done: Done) -> None:
        """Ask for a job that has not begun."""
        job.is_wanted_back = True
        call = self.actor.withdraw.options(concurrency_group=_CONTROL).remote(job.number)
        call.future().add_done_callback(done)


def new_actor(ray: Any, worker_class: type, resources: Resources) -> Any:
    """Start an actor. Ray restarts it when its process ends, but repeats no call: leases decide what runs again."""
    remote = ray.remote(
        num_cpus=resources.num_cpus,
        num_gpus=resources.num_gpus,
        memory=resources.memory_bytes,
        resources=dict(resources.custom),
        max_restarts=-1,
        max_task_retries=0,
        concurrency_groups={_CONTROL: 1, _WATCH: 1},
    )
    return remote(worker_class).remote()
