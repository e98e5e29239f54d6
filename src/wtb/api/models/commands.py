"""Commands: what was asked for, how far it is, and how it ended."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from wtb.api.models.base import AnswerModel
from wtb.api.models.figures import PlainText, plain
from wtb.api.models.problems import Problem
from wtb.domain.commands import Command, CommandKind, CommandStatus


class CommandAnswer(AnswerModel):
    """An accepted command. Ask again for one that is `pending` or `running`; nothing of it is lost by a restart."""

    id: str
    kind: CommandKind = Field(examples=["run.start"])
    subject: PlainText | None = Field(description="The run or the batch that it concerns.")
    status: CommandStatus = Field(examples=["running"])
    created_by: PlainText = Field(description="Who asked for it.", examples=["ci"])
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    attempts: int = Field(description="How many workers have taken it. A worker that is killed is followed by another.")
    result: dict[str, Any] | None = Field(default=None, description="What it gave, once it has completed.")
    problem: Problem | None = Field(default=None, description="Why it failed.")

    @classmethod
    def of(cls, command: Command, problem: Problem | None) -> CommandAnswer:
        """Return a command as callers see it."""
        return cls(
            id=command.id,
            kind=command.kind,
            subject=command.subject,
            status=command.status,
            created_by=command.created_by,
            created_at=command.created_at,
            started_at=command.started_at,
            ended_at=command.ended_at,
            attempts=command.attempts,
            result=None if command.result is None or not command.has_ended else plain(command.result),
            problem=problem,
        )
