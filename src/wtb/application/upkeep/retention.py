"""Retention: deletes old checkpoints, run by run, and the data that only they used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from wtb.application.upkeep.listing import every_execution
from wtb.domain.checkpoint import Checkpoint
from wtb.domain.errors import Conflict, DamagedData, NotFound, UnknownFormat
from wtb.domain.event_catalogue import CheckpointDeleted
from wtb.domain.events import Event
from wtb.domain.execution import Execution, ExecutionStatus
from wtb.domain.ids import ExecutionId
from wtb.domain.ports import Clock, Garbage, Storage, Swept, UnitOfWork
from wtb.domain.retention import Outline, Reason, RetentionPolicy, Stub, expendable, open_runs

BATCH = 500
"""How many checkpoints one transaction deletes, so that other writers do not wait long."""
_TRIES = 5
"""How often a run that others keep changing is planned again, before it is left for the next time."""

Expendable = tuple[Stub, Reason]

Watch = Callable[[str, int], None]
"""Called after each batch, with `looked at` or `deleted` and the number of checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPruning:
    """The checkpoints that one run loses or has lost: how many for each reason, and their stored size.

    `steps` are the first and the last of their steps; others between them may stay. `problem` says why the run, or the
    rest of it, was skipped.
    """

    execution_id: ExecutionId
    workflow: str
    counts: Mapping[Reason, int] = field(default_factory=dict)
    size_bytes: int = 0
    steps: tuple[int, int] | None = None
    problem: str | None = None


@dataclass(slots=True)
class _Tally:
    """The checkpoints found or deleted so far."""

    counts: Counter[Reason] = field(default_factory=Counter)
    size_bytes: int = 0
    steps: tuple[int, int] | None = None

    def add(self, batch: Sequence[Expendable]) -> None:
        if batch:
            newest, oldest = batch[0][0].step, batch[-1][0].step
            self.steps = (oldest, newest if self.steps is None else max(newest, self.steps[1]))
        self.counts.update(reason for _, reason in batch)
        self.size_bytes += sum(stub.size_bytes for stub, _ in batch)

    def of(self, execution: Execution, problem: Exception | None = None) -> RunPruning:
        return RunPruning(
            execution_id=execution.id,
            workflow=execution.workflow_name,
            counts=dict(sorted(self.counts.items())),
            size_bytes=self.size_bytes,
            steps=self.steps,
            problem=None if problem is None else str(problem),
        )


class Retention:
    """Plans and prunes, run by run. A plan holds few facts per checkpoint; a transaction deletes BATCH checkpoints."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        garbage: Garbage,
        *,
        policy_for: Callable[[str], RetentionPolicy],
        grace: timedelta,
        user: str | None = None,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._garbage = garbage
        self._policy_for = policy_for
        self._grace = grace
        self._user = user

    def plan(
        self, *, workflow: str | None = None, run: ExecutionId | None = None, watch: Watch = lambda what, count: None
    ) -> Iterator[RunPruning]:
        """Yield what would be deleted, run by run; runs that keep everything are yielded too, to show progress."""
        for execution in self._executions(workflow, run):
            found = _Tally()
            try:
                found.add(self._expendable(execution.id, watch)[1])
                yield found.of(execution)
            except (DamagedData, UnknownFormat, NotFound) as error:
                yield found.of(execution, error)

    def prune(
        self,
        *,
        workflow: str | None = None,
        run: ExecutionId | None = None,
        watch: Watch = lambda what, count: None,
        by: str | None = None,
    ) -> Iterator[RunPruning]:
        """Delete it, and yield what was deleted, run by run. Changes by others meanwhile are no error.

        `by` is who asked for it, if not the user of these services.
        """
        for execution in self._executions(workflow, run):
            gone = _Tally()
            try:
                self._prune(execution.id, gone, watch, by or self._user)
                yield gone.of(execution)
            except (Conflict, DamagedData, UnknownFormat, NotFound) as error:
                yield gone.of(execution, error)

    def sweep(self) -> Swept:
        """Delete the data that nothing refers to any more."""
        return self._garbage.sweep(self._grace)

    def count_garbage(self) -> Swept:
        """Return what a sweep would delete now."""
        return self._garbage.count(self._grace)

    def _executions(self, workflow: str | None, run: ExecutionId | None) -> Iterator[Execution]:
        if run is not None:
            with self._storage.unit_of_work(readonly=True) as uow:
                execution = uow.executions.get(run)
            yield execution
            return
        yield from every_execution(self._storage, workflow=workflow)

    def _expendable(self, execution_id: ExecutionId, watch: Watch) -> tuple[Execution, Sequence[Expendable]]:
        with self._storage.unit_of_work(readonly=True) as uow:
            execution = uow.executions.get(execution_id)
            outline = _outline(uow, execution, watch)
            found = expendable(outline, self._policy_for(execution.workflow_name), self._clock.now())
            ids = [stub.id for stub, _ in found]
            elsewhere = {branch.forked_from_id for branch in uow.branches.list_forks(ids)}
            elsewhere |= {branch.head_id for branch in uow.branches.list_at(ids)}
        return execution, [each for each in found if each[0].id not in elsewhere]

    def _prune(self, execution_id: ExecutionId, gone: _Tally, watch: Watch, by: str | None) -> None:
        """Delete in batches, newest first: a deleted child of a deleted checkpoint needs no keyframe."""
        for tries in range(1, _TRIES + 1):
            execution, found = self._expendable(execution_id, watch)
            try:
                for start in range(0, len(found), BATCH):
                    batch = found[start : start + BATCH]
                    self._delete(execution, batch, by)
                    gone.add(batch)
                    watch("deleted", len(batch))
            except Conflict:
                if tries == _TRIES:
                    raise
            else:
                return

    def _delete(self, planned: Execution, batch: Sequence[Expendable], by: str | None) -> None:
        ids = [stub.id for stub, _ in batch]
        with self._storage.unit_of_work() as uow:
            if not _has_only_stepped(planned, uow.executions.get(planned.id)):
                raise Conflict(f"another process changed run {planned.id!r}; run `wtb prune` again")
            try:
                uow.checkpoints.delete(ids)
            except NotFound as error:
                raise Conflict(f"another process has just deleted checkpoints of run {planned.id!r}") from error
            if uow.branches.list_forks(ids):  # checked only now, when no new fork can start there any more
                raise Conflict(f"another process has just forked run {planned.id!r}")
            self._record(uow, planned.id, Counter(reason for _, reason in batch), by)
            uow.commit()

    def _record(self, uow: UnitOfWork, execution_id: ExecutionId, counts: Mapping[Reason, int], by: str | None) -> None:
        now = self._clock.now()
        deleted = [
            CheckpointDeleted(count=count, reason=reason.value, by=by) for reason, count in sorted(counts.items())
        ]
        uow.events.append(*(Event.of(body, stream=execution_id, at=now) for body in deleted))


def _outline(uow: UnitOfWork, execution: Execution, watch: Watch) -> Outline:
    """Read a run, a few checkpoints at a time, and keep only what a plan needs."""
    branches = uow.branches.list_branches(execution.id)
    heads = [uow.checkpoints.get(branch.head_id) for branch in branches if branch.head_id is not None]
    runs = {run.id: run for run in uow.node_runs.list_unfinished(execution.id)}
    runs |= {run.id: run for run in uow.node_runs.list_leading_to(execution.id, heads)}
    return Outline.of(
        _watched(uow.checkpoints.each_info(execution.id), watch),
        head_id=uow.branches.get(execution.branch_id).head_id,
        branches=branches,
        open_runs=open_runs(runs.values(), heads),
    )


def _watched(checkpoints: Iterable[Checkpoint], watch: Watch) -> Iterator[Checkpoint]:
    for number, checkpoint in enumerate(checkpoints, 1):
        if number % BATCH == 0:
            watch("looked at", BATCH)
        yield checkpoint


def _has_only_stepped(planned: Execution, now: Execution) -> bool:
    """Whether the run has only made steps since the plan; the plan is still right then.

    A rollback needs an idle run, and resuming after it takes another lease.
    """
    running = planned.status is ExecutionStatus.RUNNING and now.status is ExecutionStatus.RUNNING
    return now.version == planned.version or (running and now.lease_token == planned.lease_token)
