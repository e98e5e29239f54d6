"""Writing: a LangGraph checkpoint becomes one of ours, in one transaction that holds what changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from wtb.domain.checkpoint import CheckpointDraft, Kind, PendingWrite, Trigger
from wtb.domain.errors import AlreadyExists, Conflict
from wtb.domain.event_catalogue import BranchCreated, ExecutionCreated
from wtb.domain.events import Event
from wtb.domain.execution import THREAD, Branch, Execution, ExecutionStatus, Pause
from wtb.domain.ids import BranchId, ExecutionId
from wtb.domain.ports import Clock, Ids, Storage, UnitOfWork
from wtb.domain.state import Change, DeleteKey, SetValue, StateDelta
from wtb.domain.values import evolve
from wtb.infrastructure.langgraph.change_tracking import Watched
from wtb.infrastructure.langgraph.saver.channel_values import ChannelValues
from wtb.infrastructure.langgraph.saver.head_cache import Line, Lines, Put
from wtb.infrastructure.langgraph.saver.records import (
    UNSNAPSHOTTED,
    Record,
    branch_name,
    is_inner,
    next_nodes,
    row_ids,
    sent_to,
    spread,
)
from wtb.infrastructure.langgraph.saver.threads import Thread
from wtb.infrastructure.langgraph.saver.write_buffer import WaitingWrites, settle

_WORKFLOW = {"name": THREAD, "version": "1", "nodes": []}
_TRIES = 5
_TOUCH = timedelta(seconds=1)
_UNKNOWN: Any = None
# A frozen dataclass of twenty fields takes five times as long to make as to copy with other values.
_DRAFT = CheckpointDraft(
    id=_UNKNOWN, execution_id=_UNKNOWN, branch_id=_UNKNOWN, parent_id=None, step=0, created_at=datetime.now(UTC)
)
_KNOWN = frozenset({"id", "channel_values", "channel_versions", "versions_seen"})
_TRIGGERS = {"input": Trigger.START, "loop": Trigger.NODE_END}


class CheckpointWriter:
    """Puts checkpoints; one transaction each, whose statements do not depend on the size of the thread."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        ids: Ids,
        *,
        values: ChannelValues,
        lines: Lines,
        waiting: WaitingWrites,
        user: str | None = None,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._values = values
        self._lines = lines
        self._waiting = waiting
        self._user = user

    def put(self, put: Put) -> None:
        """Keep a checkpoint, and what the tasks before it wrote if that is still on its way.

        When somebody else moved the head meanwhile, it becomes a branch beside theirs.
        """
        taken = self._waiting.take(put.parent)
        self._lines.announce(put.place)
        try:
            self._put([write for handed in taken for write in handed.writes], put)
        except BaseException:
            settle(taken, failed=True)
            raise
        finally:
            self._lines.withdraw(put.place)
        settle(taken)

    def _put(self, writes: Sequence[PendingWrite], put: Put) -> None:
        for tried in range(_TRIES):
            try:
                return self._put_once(put, writes)
            except (Conflict, AlreadyExists):  # somebody moved the head, or began the thread at the same moment
                if tried == _TRIES - 1:
                    raise
        raise AssertionError

    def _put_once(self, put: Put, writes: Sequence[PendingWrite]) -> None:
        known = None if put.parent is None else self._lines.take(put.parent)
        with self._storage.unit_of_work() as uow:
            if writes:
                uow.writes.add(writes)
            line = self._written(uow, put, known or self._read_line(uow, put))
            uow.commit()
        self._lines.keep(put.place, line)

    def _read_line(self, uow: UnitOfWork, put: Put) -> Line:
        """Return the line that a checkpoint goes on from; an empty one when its parent is not here."""
        if put.parent is None:
            return Line()
        thread = Thread.find(uow, put.thread_id)
        row = None if thread is None else thread.find_row(uow, put.namespace, put.parent.checkpoint_id)
        if row is None or thread is None:
            return Line()
        snapshot = next(uow.checkpoints.load_many([row.id]), None)
        record = None if snapshot is None else Record.of(snapshot, self._values)
        if snapshot is None or record is None:
            return Line()
        line = Line.of(snapshot, record)
        standing = next((branch for branch in thread.branches if branch.head_id == row.id), None)
        line.is_head = standing is not None
        line.branch_id = line.branch_id if standing is None else standing.id
        return line

    def _written(self, uow: UnitOfWork, put: Put, line: Line) -> Line:
        now = self._clock.now()
        changes, lists, keys = self._changes(put, line)
        record, nodes = self._record(put, line)
        branch_id, is_new = self._branch(uow, put, line, now)
        draft = self._draft(put, line, record, nodes, branch_id=branch_id, now=now)
        draft = self._saved(uow, put, draft, StateDelta(changes), record)
        touched_at = now if is_new and not put.namespace else self._touched(uow, put, line, now)
        uow.branches.move_head(branch_id, draft.id, expected=None if is_new else line.row_id)
        return Line(
            row_id=draft.id,
            branch_id=branch_id,
            step=draft.step,
            versions=record.versions,
            seen=record.seen,
            visits=record.visits,
            inner=record.inner,
            keys=keys,
            state=line.state,
            lists=lists,
            touched_at=touched_at,
        )

    def _touched(self, uow: UnitOfWork, put: Put, line: Line, now: datetime) -> datetime:
        """Let the thread say when it got on last, once a second; a run of ours says so itself."""
        if line.touched_at is not None and now - line.touched_at < _TOUCH:
            return line.touched_at
        execution = uow.executions.get(ExecutionId(put.thread_id))
        if execution.workflow_name == THREAD and execution.updated_at < now:
            uow.executions.save(execution.stepped(now))
        return now

    def _changes(
        self, put: Put, line: Line
    ) -> tuple[dict[str, tuple[Change, ...]], dict[str, Watched | None], frozenset[str]]:
        """Return what makes the new values of those of the parent, the lists to watch and the channels with values."""
        values = spread(put.checkpoint["channel_values"])
        changes: dict[str, tuple[Change, ...]] = {}
        lists = dict(line.lists)
        for channel in _new_channels(put, line, values):
            if channel in values and not is_inner(channel):
                change = self._change(channel, values[channel], line, lists)
                if change is not None:
                    changes[channel] = (change,)
            elif channel in line.keys:
                changes[channel] = (DeleteKey(),)
                lists[channel] = None
        gone = [channel for channel, change in changes.items() if type(change[0]) is DeleteKey]
        keys = line.keys if line.keys.issuperset(changes) else line.keys.union(changes)
        return changes, lists, keys.difference(gone) if gone else keys

    def _change(self, channel: str, value: Any, line: Line, lists: dict[str, Watched | None]) -> Change | None:
        where = f"channel {channel!r}"
        if type(value) is not list:
            lists[channel] = None
            return SetValue(self._values.store(value, where))
        held = line.watched(channel)
        watched = lists[channel] = held or Watched()
        change = watched.change(value, lambda item: self._values.store_item(item, where))
        return SetValue([]) if change is None and held is None else change

    def _record(self, put: Put, line: Line) -> tuple[Record, list[str]]:
        """Return what is kept beside the values, and the nodes that ran in this step."""
        checkpoint = put.checkpoint
        values, seen = checkpoint["channel_values"], checkpoint["versions_seen"]
        nodes: list[str] = []
        if put.metadata.get("source") == "loop":
            started = [node for node in seen if seen[node] != line.seen.get(node) and not node.startswith("__")]
            nodes = list(dict.fromkeys([*sent_to(line.inner), *started]))
        record = Record(
            id=checkpoint["id"],
            namespace=put.namespace,
            parent_id=None if put.parent is None else put.parent.checkpoint_id,
            versions=dict(checkpoint["channel_versions"]),
            seen=seen,
            inner={channel: values[channel] for channel in values if is_inner(channel)},
            metadata=put.metadata,
            more={key: checkpoint[key] for key in checkpoint if key not in _KNOWN},  # type: ignore[literal-required]
            visits={**line.visits, **{node: line.visits.get(node, 0) + 1 for node in nodes}} if nodes else line.visits,
        )
        return record, nodes

    def _branch(self, uow: UnitOfWork, put: Put, line: Line, now: datetime) -> tuple[BranchId, bool]:
        """Return the branch that the checkpoint lies on, and whether it is a new one."""
        if line.row_id is not None and line.branch_id is not None and line.is_head:
            self._activate(uow, put, line.branch_id, now)
            return line.branch_id, False
        thread = Thread.find(uow, put.thread_id)
        number = 1 if thread is None else len(thread.in_namespace(put.namespace)) + 1
        taken = set() if thread is None else {branch.name for branch in thread.branches}
        while branch_name(put.namespace, number) in taken:
            number += 1
        branch = Branch(
            id=BranchId(self._ids.new()),
            execution_id=ExecutionId(put.thread_id),
            name=branch_name(put.namespace, number),
            head_id=None,
            forked_from_id=line.row_id,
            created_at=now,
        )
        if thread is None:
            self._begin(uow, put, branch, now)
        elif not put.namespace:
            uow.executions.save(thread.execution.on_branch(branch.id, now))
        uow.branches.add(branch)
        if line.row_id is not None:
            body = BranchCreated(branch=branch.name, checkpoint=line.row_id, by=self._user)
            uow.events.append(Event.of(body, stream=put.thread_id, at=now))
        return branch.id, True

    def _activate(self, uow: UnitOfWork, put: Put, branch_id: BranchId, now: datetime) -> None:
        """Let the thread stand on the branch that it goes on with, when that was another one."""
        if put.namespace or self._lines.is_active(put.thread_id, branch_id):
            return
        execution = uow.executions.get(ExecutionId(put.thread_id))
        if execution.branch_id != branch_id:
            uow.executions.save(execution.on_branch(branch_id, now))

    def _begin(self, uow: UnitOfWork, put: Put, branch: Branch, now: datetime) -> None:
        execution = Execution(
            id=branch.execution_id,
            workflow_id=uow.workflows.save(_WORKFLOW),
            workflow_name=THREAD,
            status=ExecutionStatus.PAUSED,
            pause=Pause(reason="a LangGraph thread goes on when its graph is invoked"),
            branch_id=branch.id,
            created_by=self._user,
            created_at=now,
            updated_at=now,
        )
        uow.executions.add(execution)
        body = ExecutionCreated(workflow=THREAD, checkpoint=put.checkpoint["id"], by=self._user)
        uow.events.append(Event.of(body, stream=execution.id, at=now))

    def _draft(
        self, put: Put, line: Line, record: Record, nodes: list[str], *, branch_id: BranchId, now: datetime
    ) -> CheckpointDraft:
        metadata = put.metadata
        run_id = metadata.get("run_id")
        return evolve(
            _DRAFT,
            id=record.id,
            execution_id=put.thread_id,
            branch_id=branch_id,
            parent_id=line.row_id,
            step=line.step + 1,
            node=nodes[0] if len(nodes) == 1 else None,
            visit=record.visits[nodes[0]] if len(nodes) == 1 else None,
            trigger=_TRIGGERS.get(str(metadata.get("source")), Trigger.USER_REQUEST),
            # What rebuilds a channel that is stored as its writes only must outlive every retention.
            kind=Kind.MANUAL if metadata.get(UNSNAPSHOTTED) else Kind.AUTO,
            description=_described(put.namespace, nodes),
            next_nodes=next_nodes(record.inner),
            created_by=None if run_id is None else str(run_id),  # `delete_for_runs` finds it by this
            created_at=now,
        )

    def _saved(
        self, uow: UnitOfWork, put: Put, draft: CheckpointDraft, delta: StateDelta, record: Record
    ) -> CheckpointDraft:
        """Save under LangGraph's id; another thread, a subgraph or an import may have it already."""
        returned = record.returned(self._values)
        try:
            uow.checkpoints.save(draft, delta, returned)
        except AlreadyExists:
            draft = evolve(draft, id=row_ids(put.thread_id, put.namespace, record.id)[1])
            uow.checkpoints.save(draft, delta, returned)
        return draft


def _new_channels(put: Put, line: Line, values: Mapping[str, Any]) -> Collection[str]:
    """Return the channels that may hold another value than in the parent: as LangGraph says, where all of it fits."""
    versions, known = put.checkpoint["channel_versions"], line.versions
    fits = versions.keys() >= values.keys() and versions.keys() >= line.keys
    if fits and {**known, **put.new_versions} == versions:
        return put.new_versions
    return [
        channel
        for channel in {*versions, *put.new_versions, *values, *line.keys}
        if channel in put.new_versions or channel not in versions or versions[channel] != known.get(channel)
    ]


def _described(namespace: str, nodes: list[str]) -> str:
    where = f"subgraph {namespace}" if namespace else ""
    return ": ".join(filter(None, (where, ", ".join(nodes) if len(nodes) > 1 else "")))
