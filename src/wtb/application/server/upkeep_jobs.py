"""UpkeepJobs: what servers do in the background to keep a store small and whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from wtb.application.server.background_jobs import JobPlan, JobRun
from wtb.application.upkeep.abandoned_runs import AbandonedRuns
from wtb.application.upkeep.light_check import LightCheck
from wtb.application.upkeep.retention import Retention
from wtb.application.upkeep.workspace_collection import WorkspaceCollection
from wtb.domain.commands import KEEP_ENDED, KEEP_REQUESTS
from wtb.domain.errors import DamagedData, NotFound
from wtb.domain.ports import Storage, UnitOfWork
from wtb.domain.webhooks import DeliveryStatus

CHECK_S = 5.0
"""How long one light check takes at most."""
_KEPT = {DeliveryStatus.DELIVERED: timedelta(days=1), DeliveryStatus.DEAD: timedelta(days=30)}
"""How long deliveries are kept, so that people can look at them."""

Expire = Callable[[UnitOfWork, datetime], Mapping[str, int]]
"""Deletes what has expired by a time, and returns how much of what."""


class UpkeepJobs:
    """The jobs themselves. Each ends soon after its run is stopped, and can be repeated at any time."""

    def __init__(
        self,
        storage: Storage,
        retention: Retention,
        collection: WorkspaceCollection,
        abandoned: AbandonedRuns,
        check: LightCheck,
    ) -> None:
        self._storage = storage
        self._retention = retention
        self._collection = collection
        self._abandoned = abandoned
        self._check = check

    def plans(self, seconds: Mapping[str, float | None]) -> Iterator[JobPlan]:
        """Yield the jobs with their intervals; None turns one off."""
        works: Mapping[str, tuple[str, Callable[[JobRun], None]]] = {
            "retention": ("Delete old checkpoints and unused data, as `wtb prune` does.", self.prune),
            "workspaces": ("Delete the folders of ended runs, as `wtb prune` does.", self.collect),
            "abandoned_runs": ("Pause runs whose process has been silent for an hour.", self.pause_abandoned),
            "doctor": ("Verify a part of the store for some seconds.", self.verify),
            "expired": ("Delete what has expired: sign-ins, finished commands, delivered events.", self.drop_expired),
        }
        for name, (summary, work) in works.items():
            every = seconds[name]
            yield JobPlan(
                name=name, summary=summary, every=None if every is None else timedelta(seconds=every), work=work
            )

    def prune(self, run: JobRun) -> None:
        """Delete old checkpoints, then the data that nothing refers to any more."""
        for each in self._retention.prune(by=_who("retention", run)):
            run.count(
                checkpoints=sum(each.counts.values()), bytes=each.size_bytes, skipped_runs=each.problem is not None
            )
            if run.stopped.is_set():
                return
        swept = self._retention.sweep()
        run.count(blobs=swept.blobs, file_commits=swept.commits, objects=swept.objects, bytes=swept.size_bytes)

    def collect(self, run: JobRun) -> None:
        """Delete the folders of ended runs on this machine."""
        for each in self._collection.collect():
            removed = each.kept is None
            run.count(removed=removed, kept=not removed, bytes=each.size_bytes if removed else 0)
            if run.stopped.is_set():
                return

    def pause_abandoned(self, run: JobRun) -> None:
        """Pause what was left an hour ago, and tell of rollbacks that were left."""
        for found in self._abandoned.list_neglected():
            with suppress(NotFound):  # deleted meanwhile
                run.count(abandoned=self._abandoned.settle(found, by=_who("abandoned_runs", run)))
            if run.stopped.is_set():
                return

    def verify(self, run: JobRun) -> None:
        """Verify a part of the store; new faults fail the run, so that somebody notices."""
        place = run.notes.get("place", {})
        report = self._check.check(place, seconds=CHECK_S, is_stopped=run.stopped.is_set)
        run.count(events=report.events, runs=report.runs, faults=len(report.faults))
        faults = [*(run.notes.get("faults", []) if place else []), *map(fault_data, report.faults)]
        run.notes |= {"place": report.place, "faults": faults}
        if report.is_complete:
            run.notes |= {"rounds": run.notes.get("rounds", 0) + 1}
        if report.faults:
            raise DamagedData(f"{report.faults[0].problem}; `wtb doctor` shows everything")

    def drop_expired(self, run: JobRun) -> None:
        """Delete what has expired, each kind in a transaction of its own."""
        for expire in EXPIRING:
            with self._storage.unit_of_work() as uow:
                run.count(**expire(uow, uow.now()))
                uow.commit()


def _who(job: str, run: JobRun) -> str:
    """Return the name in events: whoever asked for the run, or the job itself."""
    return run.by or f"background job {job}"


def fault_data(fault: Any) -> dict[str, Any]:
    """Return a fault as plain JSON."""
    return {"kind": fault.kind.value, "what": fault.what, "problem": fault.problem, "runs": list(fault.runs)}


def _deliveries(uow: UnitOfWork, now: datetime) -> Mapping[str, int]:
    return {"deliveries": sum(uow.deliveries.drop(status, ended_before=now - age) for status, age in _KEPT.items())}


def _sign_ins(uow: UnitOfWork, now: datetime) -> Mapping[str, int]:
    uow.sign_ins.delete_expired(now)
    return {}


def _commands(uow: UnitOfWork, now: datetime) -> Mapping[str, int]:
    old = uow.commands.delete_old(ended_before=now - KEEP_ENDED, requests_before=now - KEEP_REQUESTS)
    return {"commands": old}


EXPIRING: Sequence[Expire] = (_deliveries, _sign_ins, _commands)
"""Everything that expires."""
