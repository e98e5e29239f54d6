"""HeadEditor: makes the checkpoints that a person asks for while the run makes no step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.application.runs.heads import HeadDrafts, edit_of, move_head
from wtb.application.runs.steps import Position, SaveFiles
from wtb.domain.checkpoint import Checkpoint, Kind, NodeRun, Trigger
from wtb.domain.event_catalogue import CheckpointCreated, CheckpointDeleted, StateUpdated
from wtb.domain.events import Event
from wtb.domain.ports import Clock, Ids, Storage, UnitOfWork
from wtb.domain.state import StateDelta
from wtb.domain.values import evolve


class HeadEditor:
    """Changes the state at the head, names the head, saves it before a rollback, and thins out earlier checkpoints."""

    def __init__(self, storage: Storage, clock: Clock, ids: Ids, *, user: str | None = None) -> None:
        self._storage = storage
        self._clock = clock
        self._user = user
        self._drafts = HeadDrafts(clock, ids, user)

    def change_state(self, at: Position, delta: StateDelta) -> Position:
        """Record a person's change to the state of a paused run as a checkpoint of its own."""
        draft = self._drafts.after(at, trigger=Trigger.PAUSE, description=edit_of(delta))
        with self._storage.unit_of_work() as uow:
            after = move_head(uow, at, uow.checkpoints.save(draft, delta))
            body = StateUpdated(checkpoint=draft.id, keys=tuple(sorted(delta.changes)), by=self._user)
            uow.events.append(Event.of(body, stream=at.execution.id, at=draft.created_at))
            uow.commit()
        return after

    def safety_checkpoint(
        self,
        uow: UnitOfWork,
        at: Position,
        description: str,
        files: SaveFiles | None,
        memory: Mapping[str, Any] | None = None,
        *,
        created_by: str | None = None,
    ) -> Checkpoint:
        """Save the current run beside its line, before it is changed; the head does not move."""
        facts: dict[str, Any] = {"trigger": Trigger.USER_REQUEST, "kind": Kind.SYSTEM, "description": description}
        draft = self._drafts.beside(at, created_by=created_by, **facts)
        if files is not None:
            draft = evolve(draft, file_commit=files(uow))
        return uow.checkpoints.save(draft, StateDelta(), memory=memory)

    def name_head(
        self, at: Position, begun: NodeRun | None, *, created_by: str | None = None, **facts: Any
    ) -> Checkpoint:
        """Make a named checkpoint at the current position; if a node has begun there, it belongs to that node."""
        facts |= {"trigger": Trigger.USER_REQUEST, "kind": Kind.MANUAL, "created_by": created_by}
        draft = self._drafts.beside(at, **facts)
        if begun is not None:
            draft = evolve(draft, node=begun.node, visit=begun.visit, node_run_id=begun.id)
        with self._storage.unit_of_work() as uow:
            head = uow.checkpoints.save(draft, StateDelta())
            if begun is not None:
                uow.node_runs.save(begun.reached(head.id))
            body = CheckpointCreated(checkpoint=head.id, name=head.name, step=head.step, by=head.created_by)
            uow.events.append(Event.of(body, stream=head.execution_id, at=head.created_at))
            move_head(uow, at, head)
            uow.commit()
        return head

    def thin(self, at: Position) -> None:
        """Delete the checkpoints between the run's first and last that have no name and start no branch."""
        with self._storage.unit_of_work() as uow:
            history = uow.checkpoints.load_history(at.execution.id)
            kept = {id for branch in history.branches for id in (branch.forked_from_id, branch.head_id)}
            gone = [
                checkpoint.id
                for checkpoint in history.lineage()[1:]
                if checkpoint.execution_id == at.execution.id
                and checkpoint.kind is Kind.AUTO
                and not checkpoint.deleted
                and checkpoint.id not in kept
            ]
            if gone:
                uow.checkpoints.delete(gone)
                reason = f"checkpoints={at.execution.options.get('checkpoints')}"
                body = CheckpointDeleted(count=len(gone), reason=reason, by=self._user)
                uow.events.append(Event.of(body, stream=at.execution.id, at=self._clock.now()))
                uow.commit()
