"""Upkeep of threads: copy in O(1), delete, prune. A copy gets its own rows before the original loses them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from wtb.domain.checkpoint import Checkpoint, CheckpointDraft
from wtb.domain.event_catalogue import BranchCreated, CheckpointDeleted, ExecutionDeleted
from wtb.domain.events import Event
from wtb.domain.execution import Branch, Execution
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId
from wtb.domain.ports import Clock, Ids, Storage, UnitOfWork
from wtb.domain.state import State, StateDelta
from wtb.domain.values import evolve
from wtb.infrastructure.langgraph.pending_writes import pending_writes_of
from wtb.infrastructure.langgraph.saver.records import UNSNAPSHOTTED, Record, langgraph_id, namespace_of, row_ids
from wtb.infrastructure.langgraph.saver.threads import Thread, with_shared
from wtb.infrastructure.langgraph.values import ChannelValues

Choose = Callable[[UnitOfWork, Thread, Mapping[CheckpointId, Checkpoint]], Collection[CheckpointId]]
"""Chooses the checkpoints of a thread to delete."""


class ThreadUpkeep:
    """Copies and deletes threads, each in one transaction."""

    def __init__(
        self, storage: Storage, clock: Clock, ids: Ids, forget: Callable[[str], None], *, user: str | None = None
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._forget = forget
        self._user = user

    def copy(self, source_id: str, target_id: str) -> None:
        """Make another thread that begins with everything in this one; it shares the checkpoints and writes none."""
        now = self._clock.now()
        with self._storage.unit_of_work() as uow:
            source = Thread.find(uow, source_id)
            if source is None:
                return
            target = ExecutionId(target_id)
            branches = {
                branch.id: Branch(
                    id=BranchId(self._ids.new()),
                    execution_id=target,
                    name=branch.name,
                    head_id=branch.head_id,
                    forked_from_id=branch.head_id,
                    created_at=now,
                )
                for branch in source.branches
            }
            heads = [branch.head_id for branch in source.branches if branch.head_id is not None]
            shared = {**source.shared, source.id: now}
            uow.executions.add(
                Execution(
                    id=target,
                    workflow_id=source.execution.workflow_id,
                    workflow_name=source.execution.workflow_name,
                    status=source.execution.status,
                    pause=source.execution.pause,
                    branch_id=branches[source.execution.branch_id].id,
                    metadata=with_shared(source.execution.metadata, shared, {**source.shared_heads, source.id: heads}),
                    created_by=self._user,
                    created_at=now,
                    updated_at=now,
                )
            )
            for branch in branches.values():
                uow.branches.add(branch)
            # Only heads get more writes, so the target gets its own there. All others stay shared.
            for id in reversed(shared):  # the nearest first: its writes count
                known = source.shared_heads.get(id, frozenset())
                pending_writes_of(uow).copy([ExecutionId(id)], [head for head in heads if head not in known], target)
            body = BranchCreated(
                branch=source.active.name,
                checkpoint=source.active.head_id,
                run=target,
                from_=source.id,
                by=self._user,
            )
            for stream in (source.id, target):
                uow.events.append(Event.of(body, stream=stream, at=now))
            uow.commit()

    def delete(self, thread_id: str) -> None:
        """Delete a thread, if there is one."""
        with self._storage.unit_of_work() as uow:
            thread = Thread.find(uow, thread_id)
            if thread is not None:
                self._delete(uow, thread)
                uow.commit()
        self._forget(thread_id)

    def drop(self, thread_id: str, chosen: Choose) -> None:
        """Delete some checkpoints of a thread; with the last of them, the thread."""
        with self._storage.unit_of_work() as uow:
            thread = Thread.find(uow, thread_id)
            if thread is None:
                return
            rows = {row.id: row for row, _ in thread.rows(uow)}
            gone = set(chosen(uow, thread, rows))
            if gone and gone == rows.keys():
                self._delete(uow, thread)
            elif gone:
                self._drop(uow, thread, rows, gone)
            uow.commit()
        self._forget(thread_id)

    def _delete(self, uow: UnitOfWork, thread: Thread) -> None:
        self._hand_over(uow, thread)
        now = self._clock.now()
        uow.checkpoints.delete_run(thread.id)
        uow.executions.delete(thread.id)
        body = ExecutionDeleted(workflow=thread.execution.workflow_name, by=self._user)
        uow.events.append(Event.of(body, stream=thread.id, at=now))

    def _drop(
        self,
        uow: UnitOfWork,
        thread: Thread,
        rows: Mapping[CheckpointId, Checkpoint],
        gone: set[CheckpointId],
    ) -> None:
        self._hand_over(uow, thread)
        if any(rows[id].execution_id != thread.id for id in gone):
            taken = {id for id, row in rows.items() if row.execution_id != thread.id and id not in gone}
            thread = self._own(uow, thread, taken, list(thread.shared))
        for branch in thread.branches:
            self._move_branch(uow, branch, rows, gone)
        self._activate_newest(uow, thread)
        own = [id for id in gone if rows[id].execution_id == thread.id]
        if own:
            uow.checkpoints.delete(own)
        pending_writes_of(uow).delete(thread.id, gone)
        body = CheckpointDeleted(count=len(gone), reason="asked for by LangGraph", by=self._user)
        uow.events.append(Event.of(body, stream=thread.id, at=self._clock.now()))

    def _move_branch(
        self,
        uow: UnitOfWork,
        branch: Branch,
        rows: Mapping[CheckpointId, Checkpoint],
        gone: Collection[CheckpointId],
    ) -> None:
        """Move a branch back to its last checkpoint that stays; delete the branch if none does."""
        head = branch.head_id
        while head is not None and head in gone:
            head = rows[head].parent_id if head in rows else None
        if head is None:
            uow.branches.delete(branch.id)
        elif head != branch.head_id:
            uow.branches.move_head(branch.id, head, expected=branch.head_id)

    def _activate_newest(self, uow: UnitOfWork, thread: Thread) -> None:
        """Make the newest remaining branch the active one, if the active branch is gone."""
        branches = uow.branches.list_branches(thread.id)
        execution = uow.executions.get(thread.id)
        if any(branch.id == execution.branch_id for branch in branches):
            return
        left = Thread(execution=execution, branches=branches)
        roots = left.in_namespace("") or branches
        newest = max(roots, key=lambda branch: langgraph_id(branch.head_id or ""))
        uow.executions.save(execution.on_branch(newest.id, self._clock.now()))

    def _hand_over(self, uow: UnitOfWork, owner: Thread) -> None:
        """Give every thread that shares checkpoints of this one its own copies of them."""
        for sharer in self._sharers(uow, owner):
            taken = {row.id for row, _ in sharer.rows(uow) if row.execution_id == owner.id}
            self._own(uow, sharer, taken, [owner.id])
            self._forget(sharer.id)

    def _sharers(self, uow: UnitOfWork, owner: Thread) -> list[Thread]:
        """Return the copies of a thread, and the copies of those."""
        found: dict[str, Thread] = {}
        ahead: list[ExecutionId] = [owner.id]
        while ahead:
            rows = [row.id for row in uow.checkpoints.list_infos(ahead.pop())]
            for other in {branch.execution_id for branch in uow.branches.list_forks(rows)} - found.keys() - {owner.id}:
                sharer = Thread.find(uow, other)
                if sharer is not None and owner.id in sharer.shared:
                    found[other] = sharer
                    ahead.append(other)
        return list(found.values())

    def _own(self, uow: UnitOfWork, thread: Thread, ids: set[CheckpointId], owners: Collection[str]) -> Thread:
        """Copy checkpoints that the thread shares with these owners, under ids of its own."""
        shared = [(row, namespace) for row, namespace in thread.rows(uow) if row.id in ids]
        namespaces = {row.id: namespace for row, namespace in shared}
        order = sorted((row for row, _ in shared), key=lambda row: row.step)
        writes = thread.writes(uow, ids)
        names: dict[CheckpointId, CheckpointId] = {}
        states: dict[CheckpointId, State] = {}
        for snapshot in uow.checkpoints.load_many([row.id for row in order]):
            row = snapshot.checkpoint
            id = row_ids(thread.id, namespaces[row.id], langgraph_id(row.id))[1]
            parent = names.get(row.parent_id) if row.parent_id is not None else None
            base = State() if parent is None or row.parent_id is None else states[row.parent_id]
            draft = _copied(row, id, parent, thread, _branch_for(thread, namespaces[row.id]))
            delta = StateDelta.between(base, snapshot.state)
            uow.checkpoints.save(draft, delta, snapshot.returned, snapshot.memory)
            names[row.id], states[row.id] = id, snapshot.state
            own = (write._replace(execution_id=thread.id, checkpoint_id=id) for write in writes.get(row.id, []))
            pending_writes_of(uow).add(list(own))
        for branch in thread.branches:
            if branch.head_id in names:
                uow.branches.move_head(branch.id, names[branch.head_id], expected=branch.head_id)
        left = {id: at for id, at in thread.shared.items() if id not in owners}
        execution = evolve(
            thread.execution.stepped(self._clock.now()),
            metadata=with_shared(thread.execution.metadata, left, thread.shared_heads),
        )
        uow.executions.save(execution)
        return Thread(execution=execution, branches=uow.branches.list_branches(thread.id))


def _branch_for(thread: Thread, namespace: str) -> BranchId:
    own = thread.in_namespace(namespace)
    return (own[0] if own else thread.active).id


def _copied(
    row: Checkpoint, id: CheckpointId, parent: CheckpointId | None, thread: Thread, branch_id: BranchId
) -> CheckpointDraft:
    return CheckpointDraft(
        id=id,
        execution_id=thread.id,
        branch_id=branch_id,
        parent_id=parent,
        step=row.step,
        node=row.node,
        visit=row.visit,
        trigger=row.trigger,
        kind=row.kind,
        description=row.description,
        next_nodes=row.next_nodes,
        created_by=row.created_by,
        created_at=row.created_at,
    )


def made_by(run_ids: Collection[str]) -> Choose:
    """Choose the checkpoints that these runs of a graph made."""
    wanted = set(run_ids)

    def chosen(uow: UnitOfWork, thread: Thread, rows: Mapping[CheckpointId, Checkpoint]) -> set[CheckpointId]:
        return {id for id, row in rows.items() if row.created_by in wanted}

    return chosen


def all_but_latest(values: ChannelValues) -> Choose:
    """Choose all but the current checkpoint of each namespace and those that rebuild its channels from writes."""

    def chosen(uow: UnitOfWork, thread: Thread, rows: Mapping[CheckpointId, Checkpoint]) -> set[CheckpointId]:
        kept: set[CheckpointId] = set()
        for namespace in {namespace_of(branch) for branch in thread.branches}:
            head = thread.head(namespace)
            if head is not None:
                kept.update(_needed(uow, rows, head, values))
        return rows.keys() - kept

    return chosen


def _needed(
    uow: UnitOfWork, rows: Mapping[CheckpointId, Checkpoint], head: CheckpointId, values: ChannelValues
) -> Iterator[CheckpointId]:
    """Yield a checkpoint, and its ancestors as long as a channel has no value of its own there."""
    lacking: set[str] | None = None
    at: CheckpointId | None = head
    while at is not None and at in rows and lacking != set():
        yield at
        snapshot = uow.checkpoints.load(at)
        record = Record.of(snapshot, values)
        if record is not None:
            lacking = set(record.metadata.get(UNSNAPSHOTTED) or ()) if lacking is None else lacking
            lacking -= set(snapshot.state)
        at = snapshot.checkpoint.parent_id
