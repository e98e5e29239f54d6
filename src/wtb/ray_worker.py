"""RayWorker: a worker of a batch as a Ray actor. It follows the same protocol as `wtb.worker`, in calls, not in lines.

Ray runs `begin`, `run` and `end` one after the other in one thread. `ping` and `withdraw` have a thread of their own,
so that they answer while a job runs, and so has `watch`.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray

from wtb.application.batches.plan import CarriedCode
from wtb.application.batches.worker import BatchWorker
from wtb.application.batches.worker_messages import error_data, report_data
from wtb.bootstrap import Services, bootstrap
from wtb.domain.job_attempt import RayIds
from wtb.domain.ports import NO_TELEMETRY
from wtb.domain.runner import Assignment, ResultSettled
from wtb.infrastructure.runners.process_family import memory_above
from wtb.infrastructure.runners.project_folder import go_to_project
from wtb.infrastructure.runners.ray_messages import BeginWork
from wtb.infrastructure.runners.shared_store import check_shared_store
from wtb.infrastructure.worker_telemetry import WorkerTelemetry
from wtb.settings import settings_from
from wtb.worker import join, keep_claims, reported

_WATCH_S = 0.2
"""How often a worker looks at its memory."""


class RayWorker:
    """One worker. A restarted actor has another token, and knows nothing of what ran before."""

    def __init__(self) -> None:
        self._token = uuid.uuid4().hex
        self._ended = threading.Event()
        self._settled: list[bytes] = []
        self._measurements = WorkerTelemetry()
        self._turn = threading.Lock()
        self._begun: set[int] = set()
        self._running: int | None = None
        self._withdrawn: set[int] = set()
        self._services: Services | None = None
        self._worker: BatchWorker | None = None

    def ping(self) -> dict[str, Any]:
        """Return a token that no other process has, and the number of the job that runs, if one does."""
        return {"token": self._token, "job": self._running}

    def begin(self, message: Mapping[str, Any], carried: bytes | None = None) -> dict[str, Any]:
        """Join a batch; return that this worker is ready, or why it refuses.

        `carried` is code of a notebook, packed by the driver with Ray's cloudpickle. Ray trusts its cluster anyway.
        """
        given = BeginWork.from_data(message)
        try:
            check_shared_store(given)
            folder = go_to_project(given.folder, given.path)
            telemetry = self._measurements if given.assignment.is_measured else NO_TELEMETRY
            self._services = bootstrap(settings_from(given.assignment.settings), telemetry=telemetry, is_worker=True)
            code = None if carried is None else ray.cloudpickle.loads(carried)
            self._worker = self._joined(self._services, given.assignment, folder, code)
        except Exception as error:  # noqa: BLE001  whatever the user's module raises, the driver says it
            return {"refused": error_data(error)}
        return {"ready": self._worker.name}

    def _joined(
        self, services: Services, given: Assignment, folder: Path | None, carried: CarriedCode | None
    ) -> BatchWorker:
        worker = join(services, given, folder=folder, carried=carried, ray=_ray_ids)
        worker.listen(self._settled.append)
        threading.Thread(target=keep_claims, args=(worker, self._ended), name="wtb-claims", daemon=True).start()
        return worker

    def run(self, number: int) -> dict[str, Any]:
        """Run a job; return its report and what else there is to report, or that the job was withdrawn.

        A process that Ray has started in the place of another one says so: it has not joined the batch.
        """
        if self._worker is None:
            return {"restarted": number}
        with self._turn:
            if number in self._withdrawn:
                self._withdrawn.discard(number)
                return {"withdrawn": number}
            self._begun = {number}  # it stays there: whoever asks for it back too late must not get it
            self._running = number
        try:
            report = report_data(reported(self._worker, number))
        finally:
            self._running = None
        more, self._settled[:] = [report_data(ResultSettled(key)) for key in self._settled], []
        if (measured := self._measurements.taken()) is not None:
            more.append(report_data(measured))
        return {"report": report, "more": more}

    def withdraw(self, number: int) -> bool:
        """Take back a job that waits here behind another one; return False if it has begun."""
        with self._turn:
            if number in self._begun:
                return False
            self._withdrawn.add(number)
            return True

    def watch(self, limit_bytes: int | None) -> dict[str, Any] | None:
        """Wait until this worker uses more memory than a limit; return how much, and the job that runs.

        Return None when the worker ends. Without a limit it only waits: if the process ends, this call fails.
        """
        if limit_bytes is None:
            self._ended.wait()
            return None
        while not self._ended.wait(_WATCH_S):
            used = memory_above(os.getpid(), limit_bytes)
            if used is not None:
                with self._turn:
                    return {"used": used, "job": next(iter(self._begun), None)}
        return None

    def end(self) -> dict[str, Any]:
        """Return what only this worker has seen, and close the store."""
        assert self._worker is not None
        assert self._services is not None
        report = report_data(self._worker.end())
        self._ended.set()
        self._services.close()
        return report


def _ray_ids() -> RayIds:
    context = ray.get_runtime_context()
    return RayIds(actor=str(context.get_actor_id()), task=str(context.get_task_id()))
