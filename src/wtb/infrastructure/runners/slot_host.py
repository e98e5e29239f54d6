"""SlotHost: what the place of a worker on Ray needs of its runner."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from wtb.domain.job_limits import JobLimits
from wtb.domain.runner import RunnerReport
from wtb.infrastructure.runners.worker_actor import WorkerActor


class SlotHost(Protocol):
    """The runner of a slot, as the slot uses it. It calls the slot from one thread only."""

    limits: JobLimits

    @property
    def errors(self) -> Any:
        """Ray's exceptions."""
        ...

    def soon(self, act: Callable[[], None], after_s: float = 0.0) -> None:
        """Call a function in the thread of the runner; may be called from any thread."""
        ...

    def report(self, report: RunnerReport) -> None:
        """Pass a report on."""
        ...

    def send_elsewhere(self, numbers: Iterable[int]) -> None:
        """Send jobs that have not begun to any worker, before all others."""
        ...

    def give_up(self, error: BaseException) -> None:
        """Stop the batch."""
        ...

    def worker_ended(self, error: BaseException) -> None:
        """Hear that a slot has no worker any more, and gets none."""
        ...

    def start_actor(self) -> WorkerActor:
        """Start another actor."""
        ...

    def kill(self, actor: WorkerActor) -> None:
        """End an actor, if it lives."""
        ...

    def work_to_do(self) -> tuple[dict[str, Any], bytes | None]:
        """Return the arguments of `begin`."""
        ...
