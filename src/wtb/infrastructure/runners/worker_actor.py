"""WorkerActor: an actor of Ray that is a worker of a batch, and the calls of it that a runner makes."""

from __future__ import annotations

from typing import Any

from wtb.domain.job_limits import Resources

_CONTROL, _WATCH = "control", "watch"


class WorkerActor:
    """One actor. Each call returns at once, with Ray's reference to the answer."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    @property
    def id(self) -> str:
        """Ray's id of the actor."""
        return str(self.handle._actor_id.hex())

    def ping(self) -> Any:
        """Ask which process this is, and which job it runs."""
        return self.handle.ping.options(concurrency_group=_CONTROL).remote()

    def begin(self, message: dict[str, Any], carried: bytes | None) -> Any:
        """Tell the worker what to work on. `carried` is code that it cannot import, packed by cloudpickle."""
        return self.handle.begin.remote(message, carried)

    def run(self, number: int) -> Any:
        """Send a job."""
        return self.handle.run.remote(number)

    def withdraw(self, number: int) -> Any:
        """Ask for a job that has not begun."""
        return self.handle.withdraw.options(concurrency_group=_CONTROL).remote(number)

    def watch(self, limit_bytes: int | None) -> Any:
        """Ask the worker to answer when it uses too much memory. The call fails when the process ends."""
        return self.handle.watch.options(concurrency_group=_WATCH).remote(limit_bytes)

    def end(self) -> Any:
        """Ask for the last report of the worker, which then closes its store."""
        return self.handle.end.remote()


def start_actor(ray: Any, worker_class: type, resources: Resources) -> WorkerActor:
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
    return WorkerActor(remote(worker_class).remote())
