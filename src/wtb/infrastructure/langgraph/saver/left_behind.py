"""LeftBehind: the checkpoints of subgraphs that a rollback of their thread has left behind.

A rollback moves only the root graph, because subgraphs have branches of their own. Clocks may be wrong, so nothing here
is decided by time. The heads that the rollback recorded tell which checkpoints existed before it. The checkpoint of the
root graph in whose step a subgraph ran tells whether that was after the target.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from wtb.domain.checkpoint import Checkpoint, Snapshot
from wtb.domain.ids import CheckpointId
from wtb.domain.ports import UnitOfWork
from wtb.domain.rollback import HEADS, Rollback
from wtb.infrastructure.langgraph.saver.records import Record, has_record, langgraph_id
from wtb.infrastructure.langgraph.values import ChannelValues

_ROOT = ""


class LeftBehind:
    """The checkpoints that the rollbacks of one thread left behind; `rows` are all checkpoints of the thread by id."""

    def __init__(
        self,
        uow: UnitOfWork,
        rows: Mapping[CheckpointId, Checkpoint],
        rollbacks: Sequence[Rollback],
        values: ChannelValues,
    ) -> None:
        self._uow = uow
        self._rows = rows
        self._values = values
        self._rollbacks = [(rollback, self._made_before(rollback), self._before(rollback)) for rollback in rollbacks]

    def __contains__(self, row: Checkpoint) -> bool:
        ran_at: str | None = None
        for rollback, made_before, before in self._rollbacks:
            if row.id not in made_before:
                continue
            ran_at = ran_at or self._ran_at(row)
            is_earlier = (
                langgraph_id(row.id) <= langgraph_id(rollback.target_id) if ran_at is None else ran_at in before
            )
            if not is_earlier:
                return True
        return False

    def _made_before(self, rollback: Rollback) -> Collection[CheckpointId]:
        """Return the checkpoints that existed when a rollback began."""
        safety = self._load(rollback.safety_id)
        # Earlier versions kept the heads with what nodes returned.
        heads = None if safety is None else (safety.memory or safety.returned).get(HEADS)
        if heads is None:  # an older rollback, or one whose safety checkpoint is gone: only the time is left
            ended_at = rollback.ended_at
            return {id for id, row in self._rows.items() if ended_at is not None and row.created_at <= ended_at}
        return {id for head in heads.values() for id in self._back_from(head)}

    def _before(self, rollback: Rollback) -> set[str]:
        """Return LangGraph's ids of the root graph's checkpoints before the target of a rollback."""
        target: CheckpointId | None = rollback.target_id
        while target is not None:
            snapshot = self._load(target)
            if snapshot is None or has_record(snapshot):
                break
            target = snapshot.checkpoint.parent_id  # made by a person: LangGraph sees the one before
        line = [langgraph_id(id) for id in self._back_from(target)]
        return set(line[1:])

    def _ran_at(self, row: Checkpoint) -> str | None:
        """Return the root graph's checkpoint in whose step a subgraph made this one."""
        snapshot = self._load(row.id)
        record = None if snapshot is None else Record.of(snapshot, self._values)
        return None if record is None else record.metadata.get("parents", {}).get(_ROOT)

    def _load(self, checkpoint_id: CheckpointId) -> Snapshot | None:
        return next(self._uow.checkpoints.load_many([checkpoint_id]), None)

    def _back_from(self, checkpoint_id: CheckpointId | None) -> Iterator[CheckpointId]:
        while checkpoint_id is not None and checkpoint_id in self._rows:
            yield checkpoint_id
            checkpoint_id = self._rows[checkpoint_id].parent_id
