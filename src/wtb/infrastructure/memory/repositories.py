"""Repositories and the event log over dictionaries: rows are the domain's own immutable values."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Unpack

from wtb.domain.checkpoint import Checkpoint, NodeBoundary, NodeRun, NodeStatus
from wtb.domain.errors import (
    AlreadyExists,
    BranchNotFound,
    CheckpointNotFound,
    Conflict,
    ExecutionNotFound,
    NodeRunNotFound,
    WorkflowNotFound,
)
from wtb.domain.events import Event, EventType, RecordedEvent, Severity
from wtb.domain.execution import Branch, Execution
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId, WorkflowId
from wtb.domain.ports import Codec, HeadMove, RunPosition
from wtb.domain.ports.events import EventNumber
from wtb.domain.run_filters import RunFilters
from wtb.domain.values import evolve
from wtb.infrastructure.event_chain import (
    EventRow,
    chained,
    check_numbering,
    counted_types,
    event_text,
    read_event,
    recorded,
)
from wtb.infrastructure.json_text import json_text, workflow_id_of
from wtb.infrastructure.memory.fitting_runs import fitting_runs
from wtb.infrastructure.memory.pending_writes import drop_writes_after, drop_writes_of
from wtb.infrastructure.memory.tables import MemoryTransaction
from wtb.infrastructure.timestamps import to_us


class MemoryWorkflowRepository:
    """Definitions by the hash of their text."""

    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction

    def save(self, definition: Mapping[str, Any]) -> WorkflowId:
        text = json_text(definition, f"the definition of workflow {definition['name']!r}")
        workflow_id = workflow_id_of(text)
        self._transaction.put("workflows", workflow_id, text)
        return workflow_id

    def get(self, workflow_id: WorkflowId) -> Mapping[str, Any]:
        text = self._transaction.find("workflows", workflow_id)
        if text is None:
            raise WorkflowNotFound(workflow_id)
        found: dict[str, Any] = json.loads(text)
        return found


class MemoryExecutionRepository:
    """Executions, guarded by version and lease token."""

    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction

    def add(self, execution: Execution) -> None:
        if self._transaction.find("executions", execution.id) is not None:
            raise AlreadyExists(f"there is already a run {execution.id!r}; give another id, or resume that run")
        self._put(execution)

    def _put(self, execution: Execution) -> None:
        metadata = json_text(execution.metadata, f"the metadata of run {execution.id!r}")
        options = json_text(execution.options, f"the options of run {execution.id!r}")
        if execution.metadata or execution.options:  # copies: the caller may continue to change its own
            execution = evolve(execution, metadata=json.loads(metadata), options=json.loads(options))
        self._transaction.put("executions", execution.id, execution)

    def get(self, execution_id: ExecutionId) -> Execution:
        found: Execution | None = self._transaction.find("executions", execution_id)
        if found is None:
            raise ExecutionNotFound(execution_id)
        return found

    def save(self, execution: Execution, *, token: int | None = None) -> None:
        self._expected(execution, token)
        self._put(execution)

    def advance(self, execution: Execution, *, token: int | None = None, move: HeadMove | None = None) -> str | None:
        stored = self._expected(execution, token)
        stepped = evolve(stored, version=execution.version, updated_at=execution.updated_at)
        self._transaction.put("executions", execution.id, stepped)
        if move is not None:
            MemoryBranchRepository(self._transaction).move_head(move.branch_id, move.head_id, expected=move.expected)
        return self._transaction.find("requests", execution.id) or None

    def _expected(self, execution: Execution, token: int | None) -> Execution:
        """Return the stored run; raise Conflict if it is not the version before this one."""
        stored = self.get(execution.id)
        if token is not None:
            stored.check_lease(token)
        if stored.version != execution.version - 1:
            raise Conflict(
                f"run {execution.id!r} was changed by somebody else (version {stored.version}, expected "
                f"{execution.version - 1}); read it again"
            )
        return stored

    def check_lease(self, execution_id: ExecutionId, token: int | None) -> None:
        if token is not None:
            self.get(execution_id).check_lease(token)

    def renew(self, execution_id: ExecutionId, token: int, expires_at: datetime) -> None:
        self._put(self.get(execution_id).renewed(token, expires_at))

    def request(self, execution_id: ExecutionId, request: str | None) -> None:
        self.get(execution_id)
        self._transaction.put("requests", execution_id, request or "")

    def list_executions(
        self,
        *,
        before: RunPosition | None = None,
        limit: int = 100,
        offset: int = 0,
        **filters: Unpack[RunFilters],
    ) -> tuple[Execution, ...]:
        found = [
            execution
            for execution in fitting_runs(self._transaction, filters)
            if before is None or (execution.created_at, execution.id) < before
        ]
        found.sort(key=lambda execution: (execution.created_at, execution.id), reverse=True)
        return tuple(found[offset : offset + limit])

    def delete(self, execution_id: ExecutionId) -> None:
        self.get(execution_id)
        if any(not row.deleted for row, _ in self._transaction.group("checkpoints", 0, execution_id)):
            raise Conflict(f"run {execution_id!r} still has checkpoints; delete them first")
        self._transaction.drop("executions", execution_id)
        for branch in list(self._transaction.group("branches", 0, execution_id)):
            self._transaction.drop("branches", branch.id)
        kept = {row.id for row, _ in self._transaction.group("checkpoints", 0, execution_id)}
        for run in list(self._transaction.group("node_runs", 0, execution_id)):
            if run.last_id not in kept:  # otherwise a fork still counts its visits
                self._transaction.drop("node_runs", run.id)
        for call, _, _ in list(self._transaction.group("tool_calls", 0, execution_id)):
            self._transaction.drop("tool_calls", (execution_id, call.node_run_id, call.identity))
        for rollback in list(self._transaction.group("rollbacks", 0, execution_id)):
            self._transaction.drop("rollbacks", (execution_id, rollback.id))
        drop_writes_of(self._transaction, execution_id)
        for score in list(self._transaction.group("evaluations", 0, execution_id)):
            self._transaction.drop("evaluations", (execution_id, score.id))


class MemoryBranchRepository:
    """Branches; a head moves only from the expected checkpoint, and only to one that exists."""

    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction

    def add(self, branch: Branch) -> None:
        if branch.head_id is not None:
            self._check_head(branch.head_id)
        taken = any(other.name == branch.name for other in self.list_branches(branch.execution_id))
        if taken or self._transaction.find("branches", branch.id) is not None:
            raise AlreadyExists(
                f"run {branch.execution_id!r} already has a branch {branch.name!r}; choose another name"
            )
        self._transaction.put("branches", branch.id, branch)

    def get(self, branch_id: BranchId) -> Branch:
        found: Branch | None = self._transaction.find("branches", branch_id)
        if found is None:
            raise BranchNotFound(branch_id)
        return found

    def move_head(self, branch_id: BranchId, head_id: CheckpointId, *, expected: CheckpointId | None) -> None:
        found = self.get(branch_id)
        self._check_head(head_id)
        if found.head_id != expected:
            raise Conflict(f"branch {found.name!r} has its head at {found.head_id!r}, not {expected!r}; read it again")
        self._transaction.put("branches", branch_id, found.moved(head_id))

    def rewind(self, branch_id: BranchId, head_id: CheckpointId, *, expected: CheckpointId | None) -> None:
        self.move_head(branch_id, head_id, expected=expected)
        drop_writes_after(self._transaction, self.get(branch_id).execution_id, head_id)

    def fork_from(self, branch_id: BranchId, checkpoint_id: CheckpointId) -> None:
        self._transaction.put("branches", branch_id, evolve(self.get(branch_id), forked_from_id=checkpoint_id))

    def _check_head(self, head_id: CheckpointId) -> None:
        found = self._transaction.find("checkpoints", head_id)
        if found is None or found[0].deleted:
            raise CheckpointNotFound(head_id)

    def delete(self, branch_id: BranchId) -> None:
        self._transaction.drop("branches", self.get(branch_id).id)

    def list_branches(self, execution_id: ExecutionId) -> tuple[Branch, ...]:
        return _by_age(self._transaction.group("branches", 0, execution_id))

    def list_forks(self, checkpoint_ids: Collection[CheckpointId]) -> tuple[Branch, ...]:
        wanted = set(checkpoint_ids)
        return _by_age(each for each in self._transaction.all("branches") if each.forked_from_id in wanted)

    def list_at(self, checkpoint_ids: Collection[CheckpointId]) -> tuple[Branch, ...]:
        wanted = set(checkpoint_ids)
        return _by_age(each for each in self._transaction.all("branches") if each.head_id in wanted)


def _by_age(branches: Iterable[Branch]) -> tuple[Branch, ...]:
    return tuple(sorted(branches, key=lambda branch: (branch.created_at, branch.id)))


class MemoryNodeRunRepository:
    """Node runs; the boundary of each follows from it, so boundaries need no rows."""

    def __init__(self, transaction: MemoryTransaction, codec: Codec) -> None:
        self._transaction = transaction
        self._codec = codec

    def save(self, run: NodeRun) -> None:
        if run.pending is not None:  # a copy, with types that a database could store, too
            data, _ = self._codec.encode(dict(run.pending), f"returned.{run.node}")
            run = evolve(run, pending=self._codec.decode(data))
        self._transaction.put("node_runs", run.id, run)

    def get(self, execution_id: ExecutionId, node_run_id: NodeRunId) -> NodeRun:
        found: NodeRun | None = self._transaction.find("node_runs", node_run_id)
        if found is None or found.execution_id != execution_id:
            raise NodeRunNotFound(node_run_id, f"run {execution_id}")
        return found

    def list_runs(self, execution_id: ExecutionId) -> tuple[NodeRun, ...]:
        return tuple(sorted(self._transaction.group("node_runs", 0, execution_id), key=lambda run: run.id))

    def list_leading_to(self, execution_id: ExecutionId, checkpoints: Sequence[Checkpoint]) -> tuple[NodeRun, ...]:
        own = {checkpoint.node_run_id for checkpoint in checkpoints}
        ends = {checkpoint.id for checkpoint in checkpoints}
        found = self.list_runs(execution_id)
        return tuple(run for run in found if run.last_id is None or run.id in own or run.last_id in ends)

    def list_unfinished(self, execution_id: ExecutionId) -> tuple[NodeRun, ...]:
        found = self.list_runs(execution_id)
        return tuple(run for run in found if run.status is NodeStatus.STARTED or run.pending is not None)

    def list_boundaries(self, execution_id: ExecutionId) -> tuple[NodeBoundary, ...]:
        return tuple(run.boundary() for run in self.list_runs(execution_id))


class MemoryEventLog:
    """The events of one transaction; the bus gets `appended` after the commit."""

    def __init__(self, transaction: MemoryTransaction, codec: Codec) -> None:
        self._transaction = transaction
        self._codec = codec
        self.appended: list[RecordedEvent] = []

    def append(self, *events: Event) -> tuple[RecordedEvent, ...]:
        texts = [event_text(event) for event in events]  # all texts first: if one event is refused, none is added
        added = tuple([self._append(event, text) for event, text in zip(events, texts, strict=True)])
        self.appended += added
        return added

    def _append(self, event: Event, text: str) -> RecordedEvent:
        end: tuple[int, bytes] = self._transaction.find("stream_ends", event.stream) or (0, b"")
        sequence, before = end[0] + 1, end[1]
        position: int = (self._transaction.find("counters", "position") or 0) + 1
        at_us = to_us(event.at)
        chain = chained(self._codec, before, event.stream, sequence, event.type.value, at_us, text)
        row = EventRow(before, position, event.stream, sequence, event.type.value, at_us, text, chain)
        self._transaction.put("events", position, row)
        self._transaction.put("stream_ends", event.stream, (sequence, chain))
        self._transaction.put("counters", "position", position)
        return recorded(event, position, sequence, chain)

    def keep_learned(self) -> None:
        """Do nothing: the ends of the streams are rows, too."""

    def list_events(
        self,
        *,
        stream: str | None = None,
        types: Collection[EventType] = (),
        severities: Collection[Severity] = (),
        after: int = 0,
        before: int | None = None,
        limit: int = 1000,
        newest: bool = False,
        by: EventNumber = "position",
    ) -> tuple[RecordedEvent, ...]:
        check_numbering(stream, by)
        rows = self._transaction.all("events") if stream is None else self._transaction.group("events", 0, stream)
        between = [row for row in rows if after < getattr(row, by) and (before is None or getattr(row, by) < before)]
        between.sort(key=lambda row: row.position, reverse=newest)
        events = (read_event(self._codec, row) for row in between if not types or row.type in types)
        found = tuple(islice((event for event in events if not severities or event.severity in severities), limit))
        return found[::-1] if newest else found

    def count_types(self, stream: str) -> dict[EventType, int]:
        counts = Counter(row.type for row in self._transaction.group("events", 0, stream))
        return counted_types(stream, counts.items())
