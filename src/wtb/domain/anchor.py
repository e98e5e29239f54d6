"""Anchor: a note about each external call, kept outside the store, that shows if the store lost its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from wtb.domain.checkpoint import NodeRun
from wtb.domain.execution import Execution
from wtb.domain.ids import ExecutionId, NodeRunId
from wtb.domain.tools import ToolCall

_AGAIN = "~"


class Act(StrEnum):
    """An act with an effect outside: a call is made, undone, or repeated by a redo."""

    CALL = "call"
    REVERSAL = "reversal"
    REPEAT = "repeat"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchoredCall:
    """One external call that was about to be made or undone, and its place among the calls of its run.

    Arguments and results are left out, because they may be large or secret. `run_created_at` distinguishes runs that
    had the same id one after the other. `rollback_id` names the rollback or redo that the act belongs to, if any.
    """

    execution_id: ExecutionId
    run_created_at: datetime
    node: str
    visit: int
    node_run_id: NodeRunId
    identity: str
    tool: str
    started_at: datetime
    started_step: int
    started_number: int
    act: Act = Act.CALL
    rollback_id: str = ""

    @classmethod
    def of(
        cls, execution: Execution, run: NodeRun, call: ToolCall, act: Act = Act.CALL, rollback_id: str = ""
    ) -> AnchoredCall:
        """Return the note about an act whose intent is recorded."""
        return cls(
            execution_id=execution.id,
            run_created_at=execution.created_at,
            node=run.node,
            visit=run.visit,
            node_run_id=run.id,
            identity=call.identity,
            tool=call.tool,
            started_at=call.started_at,
            started_step=call.started_step or 0,
            started_number=call.started_number or 0,
            act=act,
            rollback_id=rollback_id,
        )

    @property
    def place(self) -> tuple[str, int]:
        """The node and the visit that made it."""
        return self.node, self.visit

    def to_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "run": self.execution_id,
            "created": self.run_created_at.isoformat(),
            "node": self.node,
            "visit": self.visit,
            "node_run": self.node_run_id,
            "call": self.identity,
            "tool": self.tool,
            "at": self.started_at.isoformat(),
            "step": self.started_step,
            "number": self.started_number,
            **({} if self.act is Act.CALL else {"act": self.act.value, "rollback": self.rollback_id}),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> AnchoredCall:
        """Return what `to_data` gave."""
        return cls(
            execution_id=ExecutionId(data["run"]),
            run_created_at=datetime.fromisoformat(data["created"]),
            node=data["node"],
            visit=data["visit"],
            node_run_id=NodeRunId(data["node_run"]),
            identity=data["call"],
            tool=data["tool"],
            started_at=datetime.fromisoformat(data["at"]),
            started_step=data["step"],
            started_number=data["number"],
            act=Act(data.get("act", Act.CALL)),
            rollback_id=data.get("rollback", ""),
        )


def begun_again(new: NodeRunId, lost: NodeRunId) -> NodeRunId:
    """Return the id of a node run that replaces one that the store has lost.

    It sorts like the new id, and ends with the id of the first run: idempotency keys use that one, and a receiver must
    see the same key again.
    """
    return NodeRunId(f"{new}{_AGAIN}{first_id(lost)}")


def first_id(id: NodeRunId) -> NodeRunId:
    """Return the id under which a node run first began, before the store lost it."""
    return NodeRunId(id.rpartition(_AGAIN)[2])
