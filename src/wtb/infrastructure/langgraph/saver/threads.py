"""Threads: the position of a LangGraph thread, and the rows that belong to it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from wtb.domain.checkpoint import Checkpoint
from wtb.domain.errors import CheckpointNotFound, ExecutionNotFound, InvalidInput
from wtb.domain.execution import THREAD, Branch, Execution
from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.domain.ports import UnitOfWork
from wtb.domain.rollback import standing
from wtb.infrastructure.langgraph.pending_writes import PendingWrite, pending_writes_of
from wtb.infrastructure.langgraph.saver.left_behind import LeftBehind
from wtb.infrastructure.langgraph.saver.records import langgraph_id, namespace_of, row_ids
from wtb.infrastructure.langgraph.values import ChannelValues
from wtb.infrastructure.timestamps import from_us, to_us

_SHARED = "langgraph_shared"
_HEADS = "langgraph_shared_heads"
_PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """An execution as LangGraph sees it, in one transaction.

    A copy of a thread shares the checkpoints that the original had at that moment: they come before its own branches.
    """

    execution: Execution
    branches: tuple[Branch, ...]

    @classmethod
    def find(cls, uow: UnitOfWork, thread_id: str) -> Thread | None:
        """Return a thread; None when there is none, InvalidInput when a run of WTB's has the id."""
        try:
            execution = uow.executions.get(ExecutionId(thread_id))
        except ExecutionNotFound:
            return None
        if not execution.is_thread:
            raise InvalidInput(f"{thread_id!r} is a run of WTB, not a LangGraph thread; choose another thread_id")
        return cls(execution=execution, branches=uow.branches.list_branches(execution.id))

    @property
    def id(self) -> ExecutionId:
        return self.execution.id

    @property
    def active(self) -> Branch:
        """The active branch."""
        return next(branch for branch in self.branches if branch.id == self.execution.branch_id)

    @property
    def shared(self) -> dict[str, datetime]:
        """The threads that it was copied from, and when."""
        found: Mapping[str, int] = self.execution.metadata.get(_SHARED, {})
        return {thread_id: from_us(copied_at) for thread_id, copied_at in found.items()}

    @property
    def shared_heads(self) -> dict[str, frozenset[CheckpointId]]:
        """The heads of each thread that it was copied from, at that moment; older copies do not record them."""
        found: Mapping[str, Sequence[CheckpointId]] = self.execution.metadata.get(_HEADS, {})
        return {thread_id: frozenset(heads) for thread_id, heads in found.items()}

    def _has(self, write: PendingWrite, shared_heads: Mapping[str, frozenset[CheckpointId]]) -> bool:
        """Whether a write belongs to this thread, and was not made in another thread after the copy.

        Tasks write only after heads, and the copy has its own copy of the writes that were there. So all writes that
        another thread has after such a head are that thread's.
        """
        if write.execution_id == self.id:
            return True
        heads = shared_heads.get(write.execution_id)
        if heads is None:
            return write.created_at <= self.shared[write.execution_id]
        return write.checkpoint_id not in heads

    def in_namespace(self, namespace: str) -> tuple[Branch, ...]:
        return tuple(branch for branch in self.branches if namespace_of(branch) == namespace)

    def head(self, namespace: str) -> CheckpointId | None:
        """Return the current checkpoint of a namespace.

        For the root namespace it is the head of the execution, which a rollback moves back. For a subgraph it is the
        newest checkpoint on any of its branches, because an execution has only one active branch.
        """
        if not namespace and not namespace_of(self.active):
            return self.active.head_id
        heads = [branch.head_id for branch in self.in_namespace(namespace) if branch.head_id is not None]
        return max(heads, key=langgraph_id, default=None)

    def standing(self, uow: UnitOfWork, namespace: str, values: ChannelValues) -> CheckpointId | None:
        """Return the current checkpoint of a namespace; a subgraph skips those that a rollback has left behind."""
        undone = standing(uow.rollbacks.list_rollbacks(self.id)) if namespace else ()
        if not undone:
            return self.head(namespace)
        rows = list(self.rows(uow))
        left_behind = LeftBehind(uow, {row.id: row for row, _ in rows}, undone, values)
        own = sorted((row for row, place in rows if place == namespace), key=lambda row: langgraph_id(row.id))
        return next((row.id for row in reversed(own) if row not in left_behind), None)

    def find_row(self, uow: UnitOfWork, namespace: str, checkpoint_id: str) -> Checkpoint | None:
        """Return our checkpoint for one of LangGraph's; None when the thread does not have it in this namespace."""
        ours = {branch.id: branch for branch in self.branches}
        for row_id in row_ids(self.id, namespace, checkpoint_id):
            try:
                row = uow.checkpoints.get(row_id)
            except CheckpointNotFound:
                continue
            branch = ours.get(row.branch_id)
            if row.execution_id == self.id and branch is not None and namespace_of(branch) == namespace:
                return row
            if row.execution_id in self.shared and self._shared_rows(uow).get(row.id) == namespace:
                return row
        return None

    def _shared_rows(self, uow: UnitOfWork) -> dict[CheckpointId, str]:
        return {row.id: namespace for row, namespace in self.rows(uow) if row.execution_id != self.id}

    def rows(self, uow: UnitOfWork) -> Iterator[tuple[Checkpoint, str]]:
        """Yield every checkpoint of the thread with its namespace, including shared ones, in no particular order."""
        namespaces = {branch.id: namespace_of(branch) for branch in self.branches}
        own = uow.checkpoints.list_infos(self.id)
        for row in own:
            yield row, namespaces.get(row.branch_id, "")
        if not self.shared:
            return
        others: dict[CheckpointId, tuple[Checkpoint, str]] = {}
        for thread_id in self.shared:
            names = {b.id: namespace_of(b) for b in uow.branches.list_branches(ExecutionId(thread_id))}
            for row in uow.checkpoints.list_infos(ExecutionId(thread_id)):
                others[row.id] = row, names.get(row.branch_id, "")
        ahead = {branch.head_id for branch in self.branches} | {branch.forked_from_id for branch in self.branches}
        ahead |= {row.parent_id for row in own}
        while ahead:
            found = [others.pop(row_id) for row_id in ahead if row_id is not None and row_id in others]
            yield from found
            ahead = {row.parent_id for row, _ in found}

    def writes(
        self, uow: UnitOfWork, checkpoint_ids: Collection[CheckpointId] | None = None
    ) -> dict[CheckpointId, list[PendingWrite]]:
        """Return the pending writes of the thread by checkpoint, in the order in which LangGraph applies them."""
        shared = self.shared
        threads = [self.id, *map(ExecutionId, shared)]
        found: Sequence[PendingWrite] = pending_writes_of(uow).list_writes(threads, checkpoint_ids)
        if shared:
            heads = self.shared_heads
            found = _nearest([write for write in found if self._has(write, heads)], [self.id, *reversed(shared)])
        writes: dict[CheckpointId, list[PendingWrite]] = {}
        for write in found:
            writes.setdefault(write.checkpoint_id, []).append(write)
        return writes


def _nearest(seen: Sequence[PendingWrite], order: Sequence[str]) -> Sequence[PendingWrite]:
    """Drop a write if a nearer thread has one in the same place."""
    nearest: dict[tuple[str, str, int], PendingWrite] = {}
    for write in sorted(seen, key=lambda each: order.index(each.execution_id)):
        nearest.setdefault(_place(write), write)
    return [write for write in seen if nearest[_place(write)] is write]


def _place(write: PendingWrite) -> tuple[str, str, int]:
    return write.checkpoint_id, write.task_id, write.number


def with_shared(
    metadata: Mapping[str, Any],
    shared: Mapping[str, datetime],
    heads: Mapping[str, Collection[CheckpointId]],
) -> dict[str, Any]:
    """Return the metadata of a copy that shares the checkpoints of these threads, whose heads were `heads`."""
    rest = {key: value for key, value in metadata.items() if key not in (_SHARED, _HEADS)}
    if not shared:
        return rest
    known = {id: sorted(heads[id]) for id in shared if id in heads}
    return {**rest, _SHARED: {id: to_us(at) for id, at in shared.items()}, _HEADS: known}


def all_threads(uow: UnitOfWork) -> Iterator[Thread]:
    """Yield every thread."""
    offset = 0
    while page := uow.executions.list_executions(workflow=THREAD, limit=_PAGE, offset=offset):
        yield from (Thread(execution=each, branches=uow.branches.list_branches(each.id)) for each in page)
        offset += len(page)
