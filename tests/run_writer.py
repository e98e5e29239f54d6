"""RunWriter: writes runs step by step without a workflow, for tests of storages and for benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.application.runs.recorder import Recorder
from wtb.application.runs.run_creator import RunCreator
from wtb.application.runs.steps import Position, Step
from wtb.domain.checkpoint import NodeRun
from wtb.domain.events import Event, EventType
from wtb.domain.execution import Branch
from wtb.domain.ids import BranchId, CheckpointId
from wtb.domain.ports import Clock, Ids, Storage
from wtb.domain.state import StateDelta


class RunWriter(Recorder):
    """A recorder that also creates runs, and branches inside a run as old versions made them."""

    def __init__(self, storage: Storage, clock: Clock, ids: Ids) -> None:
        super().__init__(storage, clock, ids)
        self.creator = RunCreator(storage, clock, ids)

    def start(self, workflow: Mapping[str, Any], state: Mapping[str, Any], **facts: Any) -> Position:
        """Record a new run that is running from the beginning, without a lease."""
        return self.begin(self.creator.create(workflow, state, **facts), owner=None)

    def complete(
        self, at: Position, run: NodeRun, delta: StateDelta, *, returned: Mapping[str, Any] | None = None, **facts: Any
    ) -> Position:
        """Record that one node completed; the other facts are those of a Step."""
        update = None if returned is None else {run.node: returned}
        return self.step(at, Step(runs=(run,), delta=delta, returned=update, **facts))

    def fork(self, at: Position, checkpoint_id: CheckpointId, name: str) -> Position:
        """Record a new branch of the run that begins at a checkpoint, and make it the active one."""
        now = self._clock.now()
        branch = Branch(
            id=BranchId(self._ids.new()),
            execution_id=at.execution.id,
            name=name,
            head_id=checkpoint_id,
            forked_from_id=checkpoint_id,
            created_at=now,
        )
        with self._storage.unit_of_work() as uow:
            head = uow.checkpoints.get(checkpoint_id)
            execution = at.execution.on_branch(branch.id, now)
            uow.executions.save(execution)
            uow.branches.add(branch)
            data = {"branch": name, "checkpoint": checkpoint_id}
            uow.events.append(Event(type=EventType.BRANCH_CREATED, stream=at.execution.id, at=now, data=data))
            uow.commit()
        return Position(execution=execution, branch=branch, head=head)
