"""RunMark: where a run was when a command about it was accepted, to tell later whether the command was carried out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from wtb.domain.execution import Execution, PauseKind
from wtb.domain.ids import ExecutionId
from wtb.domain.ports import Storage, UnitOfWork
from wtb.domain.tools import CallKind, CallStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMark:
    """A moment of a run. A killed worker leaves the run changed, and these say how far it came."""

    version: int
    head: str | None
    """An update of the state moves the head first."""
    answers: int = 0
    """How many questions were answered, if the run waits for an answer."""
    rollbacks: int = 0
    """How many rollbacks and redos have begun."""
    is_before_node: bool = False
    """Whether the run waits before a node with a breakpoint, which the next resume passes."""

    def to_data(self) -> dict[str, Any]:
        """Return the mark as plain JSON."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> RunMark:
        """Read what `to_data` wrote."""
        return cls(**data)


def read_mark(storage: Storage, run_id: str) -> tuple[Execution, RunMark]:
    """Return a run and its mark, as of one moment; raise ExecutionNotFound."""
    with storage.unit_of_work(readonly=True) as uow:
        execution = uow.executions.get(ExecutionId(run_id))
        return execution, RunMark(
            version=execution.version,
            head=uow.branches.get(execution.branch_id).head_id,
            answers=count_answers(uow, execution.id) if _asks(execution) else 0,
            rollbacks=len(uow.rollbacks.list_rollbacks(execution.id)),
            is_before_node=execution.pause is not None and execution.pause.kind is PauseKind.BREAK_BEFORE,
        )


def count_answers(uow: UnitOfWork, run_id: ExecutionId) -> int:
    """Return how many questions of a run have been answered."""
    calls = uow.tool_calls.list_calls(run_id)
    return sum(call.kind is CallKind.ASK and call.status is CallStatus.SUCCEEDED for call in calls)


def _asks(execution: Execution) -> bool:
    return execution.pause is not None and execution.pause.kind in (PauseKind.QUESTION, PauseKind.IN_DOUBT)
