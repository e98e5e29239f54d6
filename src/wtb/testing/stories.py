"""Story: a run told through the ports, as the contract suites need it, one committed unit of work a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from wtb.domain.checkpoint import Checkpoint, CheckpointDraft, NodeRun, Snapshot
from wtb.domain.events import Event, EventType
from wtb.domain.execution import Branch, Execution
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId, WorkflowId
from wtb.domain.ports import Clock, Ids, Storage, UnitOfWork
from wtb.domain.state import StateDelta
from wtb.testing.fakes import FakeClock, SequentialIds

StateChange = StateDelta | Mapping[str, Any]
"""A delta, or the values that a delta sets."""


class Story:
    """One execution with its branch `main`, and short ways to add to it; a story forked from another begins there."""

    def __init__(self, storage: Storage, ids: Ids, clock: Clock, *, forked_from: Checkpoint | None = None) -> None:
        self._storage = storage
        self._ids = ids
        self._clock = clock
        self.id = ExecutionId(ids.new())
        self.main = self.new_branch("main", head=forked_from)
        self.execution = self.new_execution(id=self.id, branch_id=self.main.id)
        with storage.unit_of_work() as uow:
            uow.executions.add(self.execution)
            uow.branches.add(self.main)
            uow.commit()

    def new_execution(self, **facts: Any) -> Execution:
        """Return an execution that is not stored yet."""
        now = self._clock.now()
        given: dict[str, Any] = {
            "id": ExecutionId(self._ids.new()),
            "workflow_id": WorkflowId("0" * 32),
            "workflow_name": "story",
            "branch_id": BranchId(self._ids.new()),
            "created_at": now,
            "updated_at": now,
        }
        return Execution(**given | facts)

    def new_branch(self, name: str, *, head: Checkpoint | None = None, **facts: Any) -> Branch:
        """Return a branch of this story that is not stored yet."""
        head_id = None if head is None else head.id
        given: dict[str, Any] = {
            "id": BranchId(self._ids.new()),
            "execution_id": self.id,
            "head_id": head_id,
            "forked_from_id": head_id,
            "created_at": self._clock.now(),
        }
        return Branch(name=name, **given | facts)

    def new_node_run(self, node: str = "work", visit: int = 1, **facts: Any) -> NodeRun:
        """Return a node run of this story that is not stored yet."""
        given: dict[str, Any] = {
            "id": NodeRunId(self._ids.new()),
            "execution_id": self.id,
            "branch_id": self.main.id,
            "input_id": None,
            "started_at": self._clock.now(),
        }
        return NodeRun(node=node, visit=visit, **given | facts)

    def new_event(self, type: EventType = EventType.NODE_COMPLETED, **facts: Any) -> Event:
        """Return an event of this story's stream that is not recorded yet."""
        given: dict[str, Any] = {"stream": self.id, "at": self._clock.now()}
        return Event(type=type, **given | facts)

    def draft(self, *, parent: Checkpoint | None = None, **facts: Any) -> CheckpointDraft:
        """Return a draft that follows its parent."""
        given: dict[str, Any] = {
            "id": CheckpointId(self._ids.new()),
            "execution_id": self.id,
            "branch_id": self.main.id,
            "parent_id": None if parent is None else parent.id,
            "step": 0 if parent is None else parent.step + 1,
            "created_at": self._clock.now(),
        }
        return CheckpointDraft(**given | facts)

    def save(
        self,
        change: StateChange,
        *,
        parent: Checkpoint | None = None,
        returned: Mapping[str, Mapping[str, Any]] | None = None,
        memory: Mapping[str, Any] | None = None,
        **facts: Any,
    ) -> Checkpoint:
        """Save one checkpoint; no branch knows of it."""
        return self.save_draft(self.draft(parent=parent, **facts), change, returned, memory)

    def save_draft(
        self,
        draft: CheckpointDraft,
        change: StateChange,
        returned: Mapping[str, Mapping[str, Any]] | None = None,
        memory: Mapping[str, Any] | None = None,
    ) -> Checkpoint:
        """Save a draft in a unit of work of its own."""
        with self._storage.unit_of_work() as uow:
            saved = uow.checkpoints.save(draft, delta_of(change), returned, memory)
            uow.commit()
        return saved

    def line(self, *changes: StateChange, parent: Checkpoint | None = None, **facts: Any) -> list[Checkpoint]:
        """Save checkpoints that follow each other, all in one unit of work; no branch knows of them."""
        with self._storage.unit_of_work() as uow:
            saved = save_line(uow, self, changes, parent, **facts)
            uow.commit()
        return saved

    def move_head(self, to: Checkpoint, branch: Branch | None = None) -> None:
        """Point a branch, `main` unless another is given, at a checkpoint."""
        branch_id = (branch or self.main).id
        with self._storage.unit_of_work() as uow:
            uow.branches.move_head(branch_id, to.id, expected=uow.branches.get(branch_id).head_id)
            uow.commit()

    def add_branch(self, name: str, at: Checkpoint) -> Branch:
        """Store another branch whose head is this checkpoint."""
        branch = self.new_branch(name, head=at)
        with self._storage.unit_of_work() as uow:
            uow.branches.add(branch)
            uow.commit()
        return branch

    def fork(self, at: Checkpoint) -> Story:
        """Return another execution that begins at a checkpoint of this one."""
        return Story(self._storage, self._ids, self._clock, forked_from=at)

    def delete(self, *checkpoints: Checkpoint) -> None:
        """Delete checkpoints."""
        with self._storage.unit_of_work() as uow:
            uow.checkpoints.delete([checkpoint.id for checkpoint in checkpoints])
            uow.commit()

    def delete_run(self) -> None:
        """Delete all checkpoints of this story."""
        with self._storage.unit_of_work() as uow:
            uow.checkpoints.delete_run(self.id)
            uow.commit()

    def load(self, checkpoint: Checkpoint) -> Snapshot:
        """Load a checkpoint with its state."""
        with self._storage.unit_of_work(readonly=True) as uow:
            return uow.checkpoints.load(checkpoint.id)

    def state(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """Load the state of a checkpoint."""
        return dict(self.load(checkpoint).state)

    def infos(self) -> tuple[Checkpoint, ...]:
        """List the checkpoints of this story."""
        with self._storage.unit_of_work(readonly=True) as uow:
            return uow.checkpoints.list_infos(self.id)

    def history(self) -> ExecutionHistory:
        """Load the history of this story."""
        with self._storage.unit_of_work(readonly=True) as uow:
            return uow.checkpoints.load_history(self.id)


def delta_of(change: StateChange) -> StateDelta:
    """Return the delta that is meant."""
    return change if isinstance(change, StateDelta) else StateDelta.setting(change)


def save_line(
    uow: UnitOfWork, story: Story, changes: Sequence[StateChange], parent: Checkpoint | None, **facts: Any
) -> list[Checkpoint]:
    """Save checkpoints that follow each other in a unit of work that the caller commits."""
    saved: list[Checkpoint] = []
    for each in changes:
        parent = uow.checkpoints.save(story.draft(parent=parent, **facts), delta_of(each))
        saved.append(parent)
    return saved


class StoryFixtures:
    """What the suites over a storage share: the fixture `story`; a subclass gives `storage`."""

    @pytest.fixture
    def ids(self) -> Ids:
        return SequentialIds(seed=1)

    @pytest.fixture
    def clock(self) -> Clock:
        return FakeClock()

    @pytest.fixture
    def story(self, storage: Storage, ids: Ids, clock: Clock) -> Story:
        return Story(storage, ids, clock)
