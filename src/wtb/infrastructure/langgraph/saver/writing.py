"""Writing: stores the changes between a LangGraph checkpoint and its parent, in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from wtb.domain.checkpoint import CheckpointDraft, Kind, Trigger
from wtb.domain.errors import AlreadyExists, Conflict
from wtb.domain.event_catalogue import BranchCreated, ExecutionCreated
from wtb.domain.events import Event
from wtb.domain.execution import THREAD, THREAD_PAUSE, Branch, Execution, ExecutionStatus
from wtb.domain.ids import BranchId, ExecutionId
from wtb.domain.ports import Clock, Ids, Storage, UnitOfWork
from wtb.domain.state import Change, DeleteKey, SetValue, StateDelta
from wtb.domain.values import evolve
from wtb.infrastructure.langgraph.pending_writes import PendingWrite, pending_writes_of
from wtb.infrastructure.langgraph.saver.head_cache import HeadCache, KnownCheckpoint, Put
from wtb.infrastructure.langgraph.saver.records import (
    UNSNAPSHOTTED,
    Record,
    branch_name,
    has_record,
    is_routing,
    next_nodes,
    row_ids,
    sent_to,
    split_input,
)
from wtb.infrastructure.langgraph.saver.threads import Thread
from wtb.infrastructure.langgraph.saver.write_buffer import WriteBuffer, settle
from wtb.infrastructure.langgraph.tracked_lists import TrackedList
from wtb.infrastructure.langgraph.values import ChannelValues

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
    """Stores checkpoints, each in one transaction; the number of statements does not grow with the thread."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        ids: Ids,
        *,
        values: ChannelValues,
        heads: HeadCache,
        buffer: WriteBuffer,
        user: str | None = None,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._values = values
        self._heads = heads
        self._buffer = buffer
        self._user = user

    def put(self, put: Put) -> None:
        """Store a checkpoint, with the writes of the tasks before it if they still wait in the buffer.

        If another process has moved the head meanwhile, the checkpoint begins its own branch.
        """
        taken = self._buffer.take(put.parent)
        self._heads.announce(put.place)
        try:
            self._put([write for each in taken for write in each.writes], put)
        except BaseException:
            settle(taken, failed=True)
            raise
        finally:
            self._heads.withdraw(put.place)
        settle(taken)

    def _put(self, writes: Sequence[PendingWrite], put: Put) -> None:
        for tried in range(_TRIES):
            try:
                return self._put_once(put, writes)
            except (Conflict, AlreadyExists):  # another process moved the head, or began the thread at the same moment
                if tried == _TRIES - 1:
                    raise
        raise AssertionError

    def _put_once(self, put: Put, writes: Sequence[PendingWrite]) -> None:
        known = None if put.parent is None else self._heads.take(put.parent)
        with self._storage.unit_of_work() as uow:
            if writes:
                pending_writes_of(uow).add(writes)
            stored = self._stored(uow, put, known or self._read_parent(uow, put))
            uow.commit()
        self._heads.keep(put.place, stored)

    def _read_parent(self, uow: UnitOfWork, put: Put) -> KnownCheckpoint:
        """Return the parent of a checkpoint, as the store holds it; an empty one when there is none."""
        if put.parent is None:
            return self._beginning(uow, put)
        thread = Thread.find(uow, put.thread_id)
        row = None if thread is None else thread.find_row(uow, put.namespace, put.parent.checkpoint_id)
        if row is None or thread is None:
            return KnownCheckpoint()
        snapshot = next(uow.checkpoints.load_many([row.id]), None)
        record = None if snapshot is None else Record.of(snapshot, self._values)
        if snapshot is None or record is None:
            return KnownCheckpoint()
        parent = KnownCheckpoint.of(snapshot, record)
        standing = next((branch for branch in thread.branches if branch.head_id == row.id), None)
        parent.is_head = standing is not None
        parent.branch_id = parent.branch_id if standing is None else standing.id
        return parent

    def _beginning(self, uow: UnitOfWork, put: Put) -> KnownCheckpoint:
        """Return the empty checkpoint that somebody made with the thread, before its graph ran; or an empty value."""
        thread = None if put.namespace else Thread.find(uow, put.thread_id)
        head = None if thread is None else thread.active.head_id
        snapshot = None if head is None else next(uow.checkpoints.load_many([head]), None)
        if snapshot is None or snapshot.checkpoint.parent_id is not None or snapshot.state or has_record(snapshot):
            return KnownCheckpoint()
        row = snapshot.checkpoint
        return KnownCheckpoint(row_id=row.id, branch_id=row.branch_id, step=row.step, state=snapshot.state)

    def _stored(self, uow: UnitOfWork, put: Put, parent: KnownCheckpoint) -> KnownCheckpoint:
        now = self._clock.now()
        changes, lists, keys = self._changes(put, parent)
        record, nodes = self._record(put, parent)
        branch_id, is_new = self._branch(uow, put, parent, now)
        draft = self._draft(put, parent, record, nodes, branch_id=branch_id, now=now)
        draft = self._saved(uow, put, draft, StateDelta(changes), record)
        touched_at = now if is_new and not put.namespace else self._touched(uow, put, parent, now)
        is_finished = not put.namespace and record.is_finished
        if not put.namespace and is_finished != parent.is_finished:
            self._set_status(uow, put, now, is_finished=is_finished)
        uow.branches.move_head(branch_id, draft.id, expected=None if is_new else parent.row_id)
        return KnownCheckpoint(
            row_id=draft.id,
            branch_id=branch_id,
            step=draft.step,
            versions=record.versions,
            seen=record.seen,
            visits=record.visits,
            routing=record.routing,
            keys=keys,
            state=parent.state,
            lists=lists,
            touched_at=touched_at,
            is_finished=is_finished,
        )

    def _set_status(self, uow: UnitOfWork, put: Put, now: datetime, *, is_finished: bool) -> None:
        """Store that the graph of a thread has finished, or that it goes on."""
        moved = uow.executions.get(ExecutionId(put.thread_id)).thread_moved(now, is_finished=is_finished)
        if moved is not None and moved.is_thread:
            uow.executions.save(moved)

    def _touched(self, uow: UnitOfWork, put: Put, parent: KnownCheckpoint, now: datetime) -> datetime:
        """Store when the thread was last active, at most once a second."""
        if parent.touched_at is not None and now - parent.touched_at < _TOUCH:
            return parent.touched_at
        execution = uow.executions.get(ExecutionId(put.thread_id))
        if execution.is_thread and execution.updated_at < now:
            uow.executions.save(execution.stepped(now))
        return now

    def _changes(
        self, put: Put, parent: KnownCheckpoint
    ) -> tuple[dict[str, tuple[Change, ...]], dict[str, TrackedList | None], frozenset[str]]:
        """Return the changes since the parent, the lists to track from now on, and the channels that have a value."""
        values = split_input(put.checkpoint["channel_values"])
        changes: dict[str, tuple[Change, ...]] = {}
        lists = dict(parent.lists)
        for channel in _new_channels(put, parent, values):
            if channel in values and not is_routing(channel):
                change = self._change(channel, values[channel], parent, lists)
                if change is not None:
                    changes[channel] = (change,)
            elif channel in parent.keys:
                changes[channel] = (DeleteKey(),)
                lists[channel] = None
        gone = [channel for channel, change in changes.items() if type(change[0]) is DeleteKey]
        keys = parent.keys if parent.keys.issuperset(changes) else parent.keys.union(changes)
        return changes, lists, keys.difference(gone) if gone else keys

    def _change(
        self, channel: str, value: Any, parent: KnownCheckpoint, lists: dict[str, TrackedList | None]
    ) -> Change | None:
        where = f"channel {channel!r}"
        if type(value) is not list:
            lists[channel] = None
            return SetValue(self._values.store(value, where))
        tracked = lists[channel] = parent.tracked(channel) or TrackedList()
        return tracked.change(value, lambda item: self._values.store_item(item, where))

    def _record(self, put: Put, parent: KnownCheckpoint) -> tuple[Record, list[str]]:
        """Return the record of a checkpoint, and the nodes that ran in this step."""
        checkpoint = put.checkpoint
        values, seen = checkpoint["channel_values"], checkpoint["versions_seen"]
        visits = parent.visits
        nodes: list[str] = []
        if put.metadata.get("source") == "loop":
            started = [node for node in seen if seen[node] != parent.seen.get(node) and not node.startswith("__")]
            nodes = list(dict.fromkeys([*sent_to(parent.routing), *started]))
        record = Record(
            id=checkpoint["id"],
            namespace=put.namespace,
            parent_id=None if put.parent is None else put.parent.checkpoint_id,
            versions=dict(checkpoint["channel_versions"]),
            seen=seen,
            routing={channel: values[channel] for channel in values if is_routing(channel)},
            metadata=put.metadata,
            more={key: checkpoint[key] for key in checkpoint if key not in _KNOWN},  # type: ignore[literal-required]
            visits={**visits, **{node: visits.get(node, 0) + 1 for node in nodes}} if nodes else visits,
        )
        return record, nodes

    def _branch(self, uow: UnitOfWork, put: Put, parent: KnownCheckpoint, now: datetime) -> tuple[BranchId, bool]:
        """Return the branch of the checkpoint, and whether it is new."""
        if parent.row_id is not None and parent.branch_id is not None and parent.is_head:
            self._activate(uow, put, parent.branch_id, now)
            return parent.branch_id, False
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
            forked_from_id=parent.row_id,
            created_at=now,
        )
        if thread is None:
            self._begin(uow, put, branch, now)
        elif not put.namespace:
            uow.executions.save(thread.execution.on_branch(branch.id, now))
        uow.branches.add(branch)
        if parent.row_id is not None:
            body = BranchCreated(branch=branch.name, checkpoint=parent.row_id, by=self._user)
            uow.events.append(Event.of(body, stream=put.thread_id, at=now))
        return branch.id, True

    def _activate(self, uow: UnitOfWork, put: Put, branch_id: BranchId, now: datetime) -> None:
        """Make the branch that the thread continues its active one."""
        if put.namespace or self._heads.is_active(put.thread_id, branch_id):
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
            pause=THREAD_PAUSE,
            branch_id=branch.id,
            created_by=self._user,
            created_at=now,
            updated_at=now,
        )
        uow.executions.add(execution)
        body = ExecutionCreated(workflow=THREAD, checkpoint=put.checkpoint["id"], by=self._user)
        uow.events.append(Event.of(body, stream=execution.id, at=now))

    def _draft(
        self, put: Put, parent: KnownCheckpoint, record: Record, nodes: list[str], *, branch_id: BranchId, now: datetime
    ) -> CheckpointDraft:
        metadata = put.metadata
        run_id = metadata.get("run_id")
        return evolve(
            _DRAFT,
            id=record.id,
            execution_id=put.thread_id,
            branch_id=branch_id,
            parent_id=parent.row_id,
            step=parent.step + 1,
            node=nodes[0] if len(nodes) == 1 else None,
            visit=record.visits[nodes[0]] if len(nodes) == 1 else None,
            trigger=_TRIGGERS.get(str(metadata.get("source")), Trigger.USER_REQUEST),
            # Checkpoints that rebuild a channel which is stored as writes only must survive every retention.
            kind=Kind.MANUAL if metadata.get(UNSNAPSHOTTED) else Kind.AUTO,
            description=_described(put.namespace, nodes),
            next_nodes=next_nodes(record.routing),
            created_by=None if run_id is None else str(run_id),  # `delete_for_runs` finds it by this
            created_at=now,
        )

    def _saved(
        self, uow: UnitOfWork, put: Put, draft: CheckpointDraft, delta: StateDelta, record: Record
    ) -> CheckpointDraft:
        """Save under LangGraph's id, or under another when a thread, a subgraph or an import has taken that one."""
        memory = record.memory(self._values)
        try:
            uow.checkpoints.save(draft, delta, memory=memory)
        except AlreadyExists:
            draft = evolve(draft, id=row_ids(put.thread_id, put.namespace, record.id)[1])
            uow.checkpoints.save(draft, delta, memory=memory)
        return draft


def _new_channels(put: Put, parent: KnownCheckpoint, values: Mapping[str, Any]) -> Collection[str]:
    """Return the channels whose values may differ from the parent's.

    LangGraph names them; its list counts when all versions agree with it.
    """
    versions, known = put.checkpoint["channel_versions"], parent.versions
    fits = versions.keys() >= values.keys() and versions.keys() >= parent.keys
    if fits and {**known, **put.new_versions} == versions:
        return put.new_versions
    return [
        channel
        for channel in {*versions, *put.new_versions, *values, *parent.keys}
        if channel in put.new_versions or channel not in versions or versions[channel] != known.get(channel)
    ]


def _described(namespace: str, nodes: list[str]) -> str:
    where = f"subgraph {namespace}" if namespace else ""
    return ": ".join(filter(None, (where, ", ".join(nodes) if len(nodes) > 1 else "")))
