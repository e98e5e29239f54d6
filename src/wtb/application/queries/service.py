"""Queries: all reads, each method in one read-only unit of work.

Methods take the id of a run, or a `Prefix` of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from typing import Any, Unpack

from wtb.application.queries import checkpoints as pages
from wtb.application.queries.batch_data import BatchStatusView, batch_status
from wtb.application.queries.batch_drivers import DrivenBatches
from wtb.application.queries.cursors import position_cursor, position_of
from wtb.application.queries.failures import explain
from wtb.application.queries.limits import LimitView, limit_views
from wtb.application.queries.lookup import Prefix, find_batch, find_checkpoint, find_run, find_stream, head_of
from wtb.application.queries.node_usage import CallView, NodeUsage, call_views, usage_by_node
from wtb.application.queries.run_pages import RunLister
from wtb.application.queries.run_scores import scores_of
from wtb.application.queries.runs import RunReader, spent, used
from wtb.application.queries.timeline import TimelineView, timeline
from wtb.application.queries.views import (
    BaselineView,
    BatchPage,
    BatchView,
    CheckpointPage,
    CheckpointView,
    DeletionView,
    EventPage,
    FailureView,
    Health,
    HistoryRow,
    RunPage,
    RunRow,
    RunView,
    WorkflowView,
)
from wtb.application.runs.run_figures import measured_history
from wtb.application.upkeep.listing import legible_executions
from wtb.domain.audit import AuditCounts, AuditFilter, AuditPage, ChainCheck, Period, ToolUse
from wtb.domain.batch import Baseline, Batch, Job
from wtb.domain.checkpoint import Checkpoint
from wtb.domain.errors import BatchNotFound, DamagedData, ExecutionNotFound, InvalidInput, WorkflowNotFound
from wtb.domain.events import EventType, RecordedEvent, Severity
from wtb.domain.execution import Branch, Execution
from wtb.domain.figures import Usage
from wtb.domain.files import EMPTY_TREE, FileCommitId
from wtb.domain.filters import read_filters
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import ExecutionId, WorkflowId
from wtb.domain.ports import CheckpointCounts, Clock, Owners, Storage, UnitOfWork, WorkflowUse
from wtb.domain.ports.events import EventNumber
from wtb.domain.rollback import Rollback
from wtb.domain.run_filters import RunFilters
from wtb.domain.run_scores import RunScores
from wtb.domain.summary import RunSummary
from wtb.domain.tools import ToolCall
from wtb.domain.tree import HistoryTree
from wtb.domain.values import showing

_PAGE = 1_000
"""How many events are in memory at a time when all of them are read."""


class Queries:
    """The reads of all entry points. Nothing here writes."""

    def __init__(self, storage: Storage, clock: Clock, owners: Owners) -> None:
        self._storage = storage
        self._owners = owners
        self._runs = RunReader(clock, owners)
        self._batches = DrivenBatches(self._runs)

    def _reading(self) -> UnitOfWork:
        return self._storage.unit_of_work(readonly=True)

    def execution(self, run: str) -> Execution:
        """Return the record of a run."""
        with self._reading() as uow:
            return find_run(uow, run)

    def run(self, run: str) -> RunView:
        """Return everything about a run."""
        with self._reading() as uow, showing():
            return self._runs.view(uow, find_run(uow, run))

    def failure(self, run: str) -> FailureView:
        """Return why a run failed, and what changed since the last run that went well."""
        with self._reading() as uow, showing():
            return explain(uow, find_run(uow, run))

    def row(self, execution: Execution) -> RunRow:
        """Return a run as a list shows it."""
        with self._reading() as uow:
            return self._runs.row(uow, execution)

    def list_runs(self, **filters: Any) -> tuple[RunRow, ...]:
        """Return runs, newest first, skipping damaged ones; filters are those of `list_executions`."""
        filters = read_filters(filters)
        try:
            with self._reading() as uow:
                return self._rows(uow, uow.executions.list_executions(**filters))
        except DamagedData:
            executions = legible_executions(self._storage, **filters)
            with self._reading() as uow:
                return self._rows(uow, executions)

    def run_page(
        self,
        *,
        cursor: str | None = None,
        limit: int = 100,
        health: Health | None = None,
        with_counts: bool = False,
        **filters: Unpack[RunFilters],
    ) -> RunPage:
        """Return one page of runs, newest first, skipping damaged ones; the cursor is that of the page before."""
        with self._reading() as uow:
            return RunLister(uow, self._runs, filters, health).page(cursor, limit, with_counts=with_counts)

    def _rows(self, uow: UnitOfWork, executions: Iterable[Execution]) -> tuple[RunRow, ...]:
        return tuple(self._runs.row(uow, execution) for execution in executions)

    def list_workflows(self) -> tuple[WorkflowView, ...]:
        """Return the workflows that have runs, by name."""
        with self._reading() as uow:
            found = uow.pages.list_workflows()
        return tuple(_workflow(name, tuple(uses)) for name, uses in groupby(found, key=lambda use: use.name))

    def definition(self, workflow_id: WorkflowId) -> Mapping[str, Any]:
        """Return the definition of a workflow as data."""
        with self._reading() as uow:
            return uow.workflows.get(workflow_id)

    def state(self, run: str) -> tuple[Execution, dict[str, Any]]:
        """Return the record of a run and the stored state at its head."""
        with self._reading() as uow, showing():
            execution = find_run(uow, run)
            head_id = head_of(uow, execution)
            return execution, {} if head_id is None else dict(uow.checkpoints.load(head_id).state)

    def usage(self, run: str) -> Usage:
        """Return what was used on the way to the head of a run."""
        with self._reading() as uow:
            return used(uow, find_run(uow, run))

    def spent(self, run: str) -> Usage:
        """Return everything that a run has spent, including other lines and failed attempts."""
        with self._reading() as uow:
            return spent(uow, find_run(uow, run).id)

    def calls(self, run: str) -> tuple[ToolCall, ...]:
        """Return the recorded calls of a run."""
        with self._reading() as uow:
            return uow.tool_calls.list_calls(find_run(uow, run).id)

    def call_views(self, run: str, ended_with: str | None = None) -> tuple[CallView, ...]:
        """Return the recorded calls of a run with their visits, and how a rollback treats each.

        With `ended_with`, only those of the visits that ended with this checkpoint.
        """
        with self._reading() as uow, showing():
            execution = find_run(uow, run)
            checkpoint = None if ended_with is None else find_checkpoint(uow, execution, ended_with)
            return call_views(uow, execution, None if checkpoint is None else checkpoint.id)

    def timeline(self, run: str, *, before: int | None = None, limit: int = 100) -> TimelineView:
        """Return the node visits that ended with the last steps, or with those before a step."""
        with self._reading() as uow, showing():
            return timeline(uow, find_run(uow, run), before=before, limit=limit)

    def usage_by_node(self, run: str) -> tuple[NodeUsage, ...]:
        """Return what each node of a run used and spent."""
        with self._reading() as uow:
            return usage_by_node(uow, find_run(uow, run))

    def counts(self, run: str) -> CheckpointCounts:
        """Return how many checkpoints a run has, and how many of them are restore points."""
        with self._reading() as uow:
            return uow.pages.count_checkpoints(find_run(uow, run).id)

    def variants(self, run: str) -> tuple[Execution, dict[str, list[str]]]:
        """Return a run, and the variants of each node that its stored workflow has."""
        found: dict[str, list[str]] = {}
        with self._reading() as uow:
            execution = find_run(uow, run)
            try:
                definition = uow.workflows.get(execution.workflow_id)
            except WorkflowNotFound:  # a LangGraph thread has none
                return execution, found
        for variant in definition.get("variants", ()):
            found.setdefault(variant["node"], []).append(variant["name"])
        return execution, found

    def branches(self, run: str) -> tuple[Execution, tuple[Branch, ...]]:
        """Return a run and its branches, in the order of their creation."""
        with self._reading() as uow:
            execution = find_run(uow, run)
            return execution, uow.branches.list_branches(execution.id)

    def rollbacks(self, run: str) -> tuple[Rollback, ...]:
        """Return the journals of a run's rollbacks, oldest first."""
        with self._reading() as uow:
            return uow.rollbacks.list_rollbacks(find_run(uow, run).id)

    def scores(self, run: str) -> RunScores:
        """Return the scores of a run."""
        with self._reading() as uow:
            return scores_of(uow, find_run(uow, run))

    def history(self, run: str) -> ExecutionHistory:
        """Return the whole history of a run."""
        with self._reading() as uow:
            return uow.checkpoints.load_history(find_run(uow, run).id)

    def tree(self, run: str) -> HistoryTree:
        """Return all lines of a run, and its forks into other runs."""
        with self._reading() as uow:
            history = uow.checkpoints.load_history(find_run(uow, run).id)
            forks = uow.branches.list_forks([checkpoint.id for checkpoint in history.checkpoints])
        return HistoryTree.of(history, [fork for fork in forks if fork.execution_id != history.execution_id])

    def summary(self, run: str) -> RunSummary:
        """Return the figures of a run up to its head, and how often each event occurred."""
        with self._reading() as uow:
            history = measured_history(uow, find_run(uow, run).id)
            runs = {each.execution_id for each in history.runs()}
            calls = [call for each in sorted(runs) for call in uow.tool_calls.list_calls(each)]
            return RunSummary.of(list(_each_event(uow, history.execution_id)), calls, history)

    def deletion(self, run: str) -> DeletionView:
        """Return what deleting a run would delete, and which forks would stay; works even if the state is damaged."""
        with self._reading() as uow:
            execution = find_run(uow, run)
            own = [checkpoint.id for checkpoint in uow.checkpoints.list_infos(execution.id)]
            forks = {branch.execution_id for branch in uow.branches.list_forks(own)} - {execution.id}
        return DeletionView(execution=execution, checkpoints=len(own), forks=tuple(sorted(forks)))

    def checkpoints(self, run: str) -> tuple[Checkpoint, ...]:
        """Return all checkpoints of a run on all branches."""
        with self._reading() as uow:
            return uow.checkpoints.list_infos(find_run(uow, run).id)

    def checkpoint(self, run: str, target: str | int | None = None) -> Checkpoint:
        """Return the checkpoint that a person means, without its state; by default the head."""
        with self._reading() as uow:
            return find_checkpoint(uow, find_run(uow, run), target)

    def checkpoint_view(self, run: str, target: str | int | None = None) -> CheckpointView:
        """Return a checkpoint with its stored state and its files."""
        with self._reading() as uow, showing():
            execution = find_run(uow, run)
            snapshot = uow.checkpoints.load(find_checkpoint(uow, execution, target).id)
            commit = snapshot.checkpoint.file_commit
            files = EMPTY_TREE if commit is None else uow.files.get(FileCommitId(commit))
            mark = pages.mark_of(uow, execution, snapshot.checkpoint)
        return CheckpointView(checkpoint=snapshot.checkpoint, mark=mark, state=snapshot.state, files=files)

    def file_commit(self, run: str, target: str | int | None = None) -> FileCommitId | None:
        """Return the file commit at a checkpoint, by default at the head; None if there is none."""
        with self._reading() as uow:
            execution = find_run(uow, run)
            if target is None and head_of(uow, execution) is None:
                return None
            found = find_checkpoint(uow, execution, target).file_commit
        return None if found is None else FileCommitId(found)

    def history_page(
        self,
        run: str,
        *,
        every: bool = False,
        before: str | int | None = None,
        after: str | int | None = None,
        limit: int = 100,
    ) -> CheckpointPage:
        """Return one page of checkpoints of the line to the head, or with `every` of all lines.

        It is the last page, unless `before` or `after` names a checkpoint.
        """
        with self._reading() as uow:
            execution = find_run(uow, run)
            if not every:
                return pages.line_page(uow, execution, before=before, after=after, limit=limit)
            if after is not None:
                raise InvalidInput("`after` works only for the line to the head; for all lines, use `before`")
            return pages.every_page(uow, execution, before=before, limit=limit)

    def each_checkpoint(self, run: str, *, every: bool = False) -> Iterator[HistoryRow]:
        """Yield all checkpoints of the line to the head, or with `every` of all lines, oldest first, some at a time."""
        with self._reading() as uow:
            execution = find_run(uow, run)
            yield from (pages.each_checkpoint if every else pages.each_on_line)(uow, execution)

    def event_page(
        self,
        stream: str | None = None,
        *,
        by: EventNumber = "position",
        types: Collection[EventType] = (),
        severities: Collection[Severity] = (),
        before: int | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> EventPage:
        """Return one page of matching events, of the whole log or of a stream: a run, a batch, or the system.

        It is the last page, unless `before` or `after` is given: a position, or a number in the stream, as `by` says.
        """
        with self._reading() as uow:
            wanted = None if stream is None else find_stream(uow, stream)
            found = uow.events.list_events(
                stream=wanted,
                by=by,
                types=types,
                severities=severities,
                after=after or 0,
                before=before,
                limit=limit + 1,
                newest=after is None,
            )
        return _event_page(wanted, found, before, after, limit)

    def run_stream(self, run: str) -> str:
        """Return the event stream of a run; a deleted run needs its whole id."""
        with self._reading() as uow:
            try:
                return find_stream(uow, Prefix(run))
            except ExecutionNotFound:
                if not uow.events.list_events(stream=run, by="sequence", limit=1):
                    raise
                return run

    def each_event(self, run: str, **filters: Any) -> Iterator[RecordedEvent]:
        """Yield all matching events of a run, oldest first, a few at a time. Filters: `types`, `severities`."""
        wanted = read_filters(filters)
        with self._reading() as uow:
            yield from _each_event(uow, find_stream(uow, run), **wanted)

    def list_events(self, run: str, **filters: Any) -> tuple[RecordedEvent, ...]:
        """Return events of a run; filters are those of `EventLog.list_events`."""
        with self._reading() as uow:
            return uow.events.list_events(stream=find_stream(uow, run), **read_filters(filters))

    def batch(self, name_or_id: str) -> BatchView:
        """Return a batch with its jobs, by its id or by its name (then the latest of that name).

        The `batch_id` of a baseline gives its saved results.
        """
        with self._reading() as uow:
            try:
                batch = find_batch(uow, name_or_id)
            except BatchNotFound:
                baseline = uow.baselines.find(name_or_id)
                if baseline is None:
                    raise
                return _saved_results(uow, baseline)
            return BatchView(batch=self._batches.seen(uow, batch), jobs=uow.batches.list_jobs(batch.id))

    def batch_stamp(self, name_or_id: str) -> tuple[Batch, bytes | None]:
        """Return the record of a batch, and what differs if any of its jobs has changed since; None if nobody can tell.

        It takes a fraction of the time that `batch` takes.
        """
        with self._reading() as uow:
            batch = self._batches.seen(uow, find_batch(uow, name_or_id))
            return batch, uow.batches.digest_jobs(batch.id)

    def batch_status(self, name_or_id: str, jobs: Sequence[Job] | None = None) -> BatchStatusView:
        """Return how far a batch has come, and which of its jobs run right now. If you know its jobs, pass them."""
        with self._reading() as uow:
            batch, lost = self._batches.lost_driver(uow, find_batch(uow, name_or_id))
            jobs = uow.batches.list_jobs(batch.id) if jobs is None else jobs
            alive = self._batches.busy_runs(uow, batch, lost)
            limits = limit_views(uow, batch, self._owners)
        return batch_status(batch, jobs, alive, limits, lost)

    def list_limits(self, batch: Batch) -> tuple[LimitView, ...]:
        """Return the limits of a batch as they are now, sorted by name."""
        with self._reading() as uow:
            return limit_views(uow, batch, self._owners)

    def first_difference(self, runs: Sequence[str]) -> str | None:
        """Return the first node after which the states of these runs differ; None if they do not, or are gone."""
        with self._reading() as uow:
            try:
                lines = [_line_of(uow, ExecutionId(run)) for run in runs]
            except (ExecutionNotFound, DamagedData):
                return None
        for steps in zip_longest(*lines):
            present = [step for step in steps if step is not None]
            if len(present) < len(steps) or len({(step.node, step.state_hash) for step in present}) > 1:
                return next((step.node for step in present if step.node is not None), None)
        return None

    def batch_record(self, name_or_id: str) -> Batch:
        """Return the record of a batch without its jobs, so that a damaged job does not matter."""
        with self._reading() as uow:
            return self._batches.seen(uow, find_batch(uow, name_or_id))

    def list_batches(self, limit: int) -> tuple[Batch, ...]:
        """Return the records of batches, newest first."""
        with self._reading() as uow:
            return tuple(self._batches.seen(uow, batch) for batch in uow.batches.list_batches(limit=limit))

    def batch_page(self, *, cursor: str | None = None, limit: int = 100, name: str | None = None) -> BatchPage:
        """Return one page of batches, newest first; the cursor is that of the page before."""
        with self._reading() as uow:
            found = uow.batches.list_batches(name=name, before=position_of(cursor), limit=limit + 1)
            seen = tuple(self._batches.seen(uow, batch) for batch in found[:limit])
        last = seen[-1] if len(found) > limit else None
        return BatchPage(batches=seen, next=None if last is None else position_cursor(last.created_at, last.id))

    def baseline(self, name: str) -> BaselineView:
        """Return a baseline with its results, even if others are damaged; BaselineNotFound names those that exist."""
        with self._reading() as uow:
            found = uow.baselines.get(name)
            return BaselineView(baseline=found, results=_saved_results(uow, found))

    def list_baselines(self) -> tuple[Baseline, ...]:
        """Return all baselines, sorted by name."""
        with self._reading() as uow:
            return uow.baselines.list_baselines()

    def audit_page(self, wanted: AuditFilter, *, before: int | None = None, limit: int = 100) -> AuditPage:
        """Return events of the whole log, newest first."""
        with self._reading() as uow:
            return uow.audit.list_events(wanted, before=before, limit=limit)

    def audit_counts(self, period: Period) -> AuditCounts:
        """Return how often what happened in a period, and who caused how much."""
        with self._reading() as uow:
            return uow.audit.count(period)

    def tool_use(self, period: Period) -> tuple[ToolUse, ...]:
        """Return how tools were used in a period, by name."""
        with self._reading() as uow:
            return uow.audit.tool_use(period)

    def check_chain(self, stream: str | None = None, *, after: int = 0, limit: int = 1_000) -> ChainCheck:
        """Check the hashes of the next events of a stream, or of the whole log."""
        with self._reading() as uow:
            return uow.audit.check_chain(stream, after=after, limit=limit)


_LONGEST_LINE = 1_000
"""How many checkpoints of a run are compared with those of another."""


def _line_of(uow: UnitOfWork, run_id: ExecutionId) -> list[Checkpoint]:
    """Return the checkpoints on the way to the head of a run, oldest first."""
    head_id = uow.branches.get(uow.executions.get(run_id).branch_id).head_id
    return (
        [] if head_id is None else sorted(uow.pages.list_line(head_id, limit=_LONGEST_LINE), key=lambda each: each.step)
    )


def _saved_results(uow: UnitOfWork, baseline: Baseline) -> BatchView:
    results = uow.baselines.list_results(baseline.name)
    return BatchView(batch=baseline.as_batch(results), jobs=results)


def _each_event(uow: UnitOfWork, run_id: ExecutionId, **filters: Any) -> Iterator[RecordedEvent]:
    after = 0
    while page := uow.events.list_events(stream=run_id, by="sequence", after=after, limit=_PAGE, **filters):
        yield from page
        after = page[-1].sequence


def _event_page(
    stream: str | None, found: tuple[RecordedEvent, ...], before: int | None, after: int | None, limit: int
) -> EventPage:
    """Return a page of events. One event more than fits was read, to know whether there are others."""
    has_more = len(found) > limit
    if after is None:
        return EventPage(stream=stream, events=found[-limit:], has_earlier=has_more, has_later=before is not None)
    return EventPage(stream=stream, events=found[:limit], has_earlier=after > 0, has_later=has_more)


def _workflow(name: str, uses: Sequence[WorkflowUse]) -> WorkflowView:
    versions = dict.fromkeys(use.version for use in uses if use.version is not None)
    return WorkflowView(
        name=name,
        versions=tuple(versions),
        definitions=len(uses),
        runs=sum(use.runs for use in uses),
        first_run_at=min(use.first_at for use in uses),
        last_run_at=max(use.last_at for use in uses),
    )
