"""ThreadDirectory: begins threads before a graph has run, finds them, and changes what is noted about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from wtb.application.server.thread_runs import check_idle, find_thread, is_busy
from wtb.domain.checkpoint import CheckpointDraft, Kind, Trigger
from wtb.domain.commands import THREAD_KINDS
from wtb.domain.errors import Conflict
from wtb.domain.event_catalogue import ExecutionCreated
from wtb.domain.events import Event
from wtb.domain.execution import THREAD, THREAD_PAUSE, Branch, Execution, ExecutionStatus
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, check_id
from wtb.domain.ports import Clock, Ids, Storage, UnitOfWork
from wtb.domain.state import StateDelta
from wtb.domain.values import evolve
from wtb.infrastructure.langgraph.clients.thread_states import ThreadStates
from wtb.infrastructure.langgraph.clients.views import CheckpointPlace, ThreadView
from wtb.infrastructure.langgraph.saver.records import MAIN
from wtb.infrastructure.langgraph.saver.upkeep import ThreadUpkeep

_OWN = "langgraph_shared"
_TRIES = 5
_PAGE = 500
_MOST = 10_000
"""How many threads a search looks at, newest first."""
_MOST_OPEN = 1_000


class ThreadDirectory:
    """The threads of a store. Every one is a run: `wtb ls` lists them, and rollbacks and forks work on them."""

    def __init__(self, storage: Storage, clock: Clock, ids: Ids, states: ThreadStates) -> None:
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._states = states

    def create(self, thread_id: str | None, metadata: Mapping[str, Any], *, by: str) -> str:
        """Begin a thread with an empty checkpoint, which its first run builds on; raise AlreadyExists."""
        id = ExecutionId(self._ids.new() if thread_id is None else check_id(thread_id, "thread_id"))
        now = self._clock.now()
        branch_id, checkpoint_id = BranchId(self._ids.new()), CheckpointId(self._ids.new())
        draft = CheckpointDraft(
            id=checkpoint_id,
            execution_id=id,
            branch_id=branch_id,
            parent_id=None,
            step=0,
            trigger=Trigger.START,
            kind=Kind.AUTO,
            created_at=now,
        )
        with self._storage.unit_of_work() as uow:
            execution = Execution(
                id=id,
                workflow_id=uow.workflows.save({"name": THREAD, "version": "1", "nodes": []}),
                workflow_name=THREAD,
                status=ExecutionStatus.PAUSED,
                pause=THREAD_PAUSE,
                branch_id=branch_id,
                metadata=dict(metadata),
                created_by=by,
                created_at=now,
                updated_at=now,
            )
            uow.executions.add(execution)
            uow.branches.add(Branch(id=branch_id, execution_id=id, name=MAIN, head_id=None, created_at=now))
            uow.checkpoints.save(draft, StateDelta({}))
            uow.branches.move_head(branch_id, checkpoint_id, expected=None)
            uow.events.append(
                Event.of(ExecutionCreated(workflow=THREAD, checkpoint=checkpoint_id, by=by), stream=id, at=now)
            )
            uow.commit()
        return id

    def get(self, thread_id: str) -> ThreadView:
        """Return a thread; raise ExecutionNotFound, or InvalidInput for a run that is no thread."""
        with self._storage.unit_of_work(readonly=True) as uow:
            execution = find_thread(uow, thread_id)
            busy = is_busy(uow, thread_id)
        return self._view(execution, is_busy=busy)

    def metadata(self, thread_id: str) -> Mapping[str, Any]:
        """Return what is noted about a thread; raise as `get` does."""
        with self._storage.unit_of_work(readonly=True) as uow:
            return find_thread(uow, thread_id).metadata

    def note(self, thread_id: str, metadata: Mapping[str, Any]) -> None:
        """Add to what is noted about a thread."""

        def noted(uow: UnitOfWork) -> None:
            execution = find_thread(uow, thread_id)
            merged = {**execution.metadata, **metadata}
            uow.executions.save(evolve(execution.stepped(self._clock.now()), metadata=merged))

        self._repeated(noted)

    def delete(self, thread_id: str, *, by: str) -> None:
        """Delete a thread that nothing runs; its copies keep what they have."""
        with self._storage.unit_of_work(readonly=True) as uow:
            find_thread(uow, thread_id)
            check_idle(uow, thread_id)
        upkeep = ThreadUpkeep(self._storage, self._clock, self._ids, lambda _: None, user=by)
        upkeep.delete(thread_id)

    def each(self, metadata: Mapping[str, Any], ids: Sequence[str] = ()) -> Iterator[ThreadView]:
        """Yield the threads that have this metadata, newest first; their states are read as they are taken."""
        for page in self._pages():
            with self._storage.unit_of_work(readonly=True) as uow:
                busy = {each.subject for each in uow.commands.list_open(_MOST_OPEN) if each.kind in THREAD_KINDS}
            for execution in page:
                is_wanted = not ids or execution.id in ids
                if is_wanted and all(execution.metadata.get(key) == value for key, value in metadata.items()):
                    yield self._view(execution, is_busy=execution.id in busy)

    def _pages(self) -> Iterator[tuple[Execution, ...]]:
        for offset in range(0, _MOST, _PAGE):
            with self._storage.unit_of_work(readonly=True) as uow:
                page = uow.executions.list_executions(workflow=THREAD, limit=_PAGE, offset=offset)
            yield page
            if len(page) < _PAGE:
                return

    def _view(self, execution: Execution, *, is_busy: bool) -> ThreadView:
        return ThreadView(
            id=execution.id,
            metadata={key: value for key, value in execution.metadata.items() if not key.startswith(_OWN)},
            created_at=execution.created_at,
            updated_at=execution.updated_at,
            is_busy=is_busy,
            state=self._states.get(CheckpointPlace(thread_id=execution.id)),
        )

    def _repeated(self, change: Callable[[UnitOfWork], None]) -> None:
        """Change a thread; again, if somebody else was first."""
        for left in reversed(range(_TRIES)):
            try:
                with self._storage.unit_of_work() as uow:
                    change(uow)
                    uow.commit()
                return
            except Conflict:
                if not left:
                    raise
