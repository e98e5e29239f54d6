"""LightCheck: verifies a part of the store in a few seconds, and goes on from there the next time.

It looks at events, at runs with their workflows, and at the newest state of each branch. `wtb doctor` looks at
everything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from wtb.domain.errors import DamagedData, NotFound, StorageError, StorageUnavailable
from wtb.domain.execution import Execution
from wtb.domain.ids import ExecutionId
from wtb.domain.integrity import Fault, FaultKind
from wtb.domain.ports import Storage
from wtb.domain.values import showing

_EVENTS = 500
_RUNS = 20
_MOST_FAULTS = 100
"""How many faults are remembered; the first ones are enough to send somebody to `wtb doctor`."""


@dataclass(slots=True, kw_only=True)
class LightReport:
    """What was looked at, the faults of this round so far, and where the next check goes on."""

    events: int = 0
    runs: int = 0
    faults: list[Fault] = field(default_factory=list)
    """The faults that this check found."""
    place: dict[str, Any] = field(default_factory=dict)
    """Where the next check goes on, as plain JSON."""
    is_complete: bool = False
    """Whether it reached the end of the store; the next check begins anew."""


class LightCheck:
    """Reads and changes nothing. Values of the user's classes are not built."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def check(
        self, place: Mapping[str, Any], *, seconds: float, is_stopped: Callable[[], bool] = lambda: False
    ) -> LightReport:
        """Go on from a place for some seconds; an empty place is the beginning."""
        report = LightReport(place={"event": place.get("event", 0), "run": place.get("run", 0)})
        until = time.monotonic() + seconds

        def has_time() -> bool:
            return time.monotonic() < until and not is_stopped()

        with showing():
            while has_time():
                events = self._events(report)
                runs = self._runs(report, has_time)
                if not events and not runs:
                    report.is_complete, report.place = True, {}
                    break
        report.faults = report.faults[:_MOST_FAULTS]
        return report

    def _events(self, report: LightReport) -> bool:
        """Verify a page of events; return whether there were any."""
        after = report.place["event"]
        try:
            found = self._listed(after, _EVENTS)
        except DamagedData:
            return self._one_by_one(report)
        report.events += found[0]
        report.place["event"] = found[1]
        return found[0] > 0

    def _one_by_one(self, report: LightReport) -> bool:
        """Find the damaged events of a page."""
        at = report.place["event"]
        for _ in range(_EVENTS):
            try:
                count, at = self._listed(at, 1)
                report.events += count
                if not count:
                    break
            except DamagedData as error:
                at += 1
                _note(report, Fault(kind=FaultKind.EVENT, what=str(error), problem=str(error)))
        report.place["event"] = at
        return True

    def _listed(self, after: int, limit: int) -> tuple[int, int]:
        with self._storage.unit_of_work(readonly=True) as uow:
            found = uow.events.list_events(after=after, limit=limit)
        return len(found), found[-1].position if found else after

    def _runs(self, report: LightReport, has_time: Callable[[], bool]) -> bool:
        """Verify a page of runs; return whether there were any."""
        offset: int = report.place["run"]
        with self._storage.unit_of_work(readonly=True) as uow:
            try:
                page = uow.executions.list_executions(limit=_RUNS, offset=offset)
            except DamagedData:
                page = ()
        for execution in page or self._each_of(report, offset):
            report.runs += 1
            report.place["run"] += 1
            for fault in self._run(execution):
                _note(report, fault)
            if not has_time():
                break
        return bool(report.place["run"] > offset)

    def _each_of(self, report: LightReport, offset: int) -> Iterator[Execution]:
        """Yield the legible runs of a page that holds a damaged one, which becomes a fault."""
        for number in range(offset, offset + _RUNS):
            try:
                with self._storage.unit_of_work(readonly=True) as uow:
                    page = uow.executions.list_executions(limit=1, offset=number)
            except DamagedData as error:
                report.place["run"] += 1
                _note(report, Fault(kind=FaultKind.RUN, what=str(error), problem=str(error)))
                continue
            yield from page

    def _run(self, execution: Execution) -> Iterator[Fault]:
        """Yield what is wrong with a run: its workflow, and the newest state of each branch."""
        with self._storage.unit_of_work(readonly=True) as uow:
            try:
                if not execution.is_thread:
                    uow.workflows.get(execution.workflow_id)
                for branch in uow.branches.list_branches(execution.id):
                    if branch.head_id is not None:
                        uow.checkpoints.load(branch.head_id)
            except StorageUnavailable:
                raise
            except (StorageError, NotFound) as error:
                if _is_there(self._storage, execution.id):
                    yield Fault(kind=FaultKind.RUN, what=execution.id, problem=str(error), runs=(execution.id,))


def _is_there(storage: Storage, execution_id: ExecutionId) -> bool:
    """Whether a run still exists; somebody may have deleted it while it was looked at."""
    with storage.unit_of_work(readonly=True) as uow:
        try:
            uow.executions.get(execution_id)
        except NotFound:
            return False
        except StorageError:
            return True
    return True


def _note(report: LightReport, fault: Fault) -> None:
    if all(known.what != fault.what for known in report.faults):
        report.faults.append(fault)
