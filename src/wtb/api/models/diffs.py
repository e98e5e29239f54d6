"""What changed between two checkpoints."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from wtb.api.models.base import AnswerModel
from wtb.api.models.checkpoints import CheckpointAnswer, FileAnswer
from wtb.api.models.figures import PlainText
from wtb.application.queries.tagged_json import TaggedJson
from wtb.domain.diff import CallDiff, CheckpointDiff, DiffKind, FileDiff, StateDiff
from wtb.domain.files import path_bytes
from wtb.domain.state import MISSING
from wtb.domain.tools import CallStatus


class StateDiffAnswer(AnswerModel):
    """A value that differs."""

    path: PlainText = Field(examples=["state.messages[3].content"])
    change: DiffKind
    old: Any = Field(default=None, description="As tagged JSON; absent if it was not there.")
    new: Any = Field(default=None, description="As tagged JSON; absent if it is not there.")

    @classmethod
    def of(cls, found: StateDiff, json: TaggedJson) -> Self:
        """Return a difference as an answer; its value is masked if its key names a secret."""
        key = found.path.rpartition(".")[2].partition("[")[0]
        sides = {side: value for side in ("old", "new") if (value := getattr(found, side)) is not MISSING}
        return cls(
            path=found.path,
            change=found.kind,
            **{side: json.write_item(key, value) for side, value in sides.items()},
        )


class FileDiffAnswer(AnswerModel):
    """A file that differs."""

    path: PlainText
    change: DiffKind
    old: FileAnswer | None
    new: FileAnswer | None
    diff: PlainText | None = Field(
        description="The unified diff of two texts; null for other contents and large files."
    )

    @classmethod
    def of(cls, found: FileDiff) -> Self:
        """Return a difference as an answer."""
        return cls(
            path=path_bytes(found.path).decode("utf-8", "replace"),
            change=found.kind,
            old=None if found.old is None else FileAnswer.of(found.old),
            new=None if found.new is None else FileAnswer.of(found.new),
            diff=None if found.text is None else "\n".join(found.text),
        )


class CallDiffAnswer(AnswerModel):
    """A call on the way to only one of the two."""

    change: DiffKind
    run: str
    node: PlainText
    visit: int
    tool: PlainText
    arguments: Any
    status: CallStatus
    result: Any
    error: PlainText | None

    @classmethod
    def of(cls, found: CallDiff, json: TaggedJson) -> Self:
        """Return a difference as an answer."""
        return cls(
            change=found.kind,
            run=found.call.execution_id,
            node=found.node,
            visit=found.visit,
            tool=found.call.tool,
            arguments=json.write(dict(found.call.arguments)),
            status=found.call.status,
            result=json.write(found.call.result),
            error=found.call.error,
        )


class DiffAnswer(AnswerModel):
    """What changed from one checkpoint to another, of the same run or of two."""

    old: CheckpointAnswer
    new: CheckpointAnswer
    counts: dict[str, dict[str, int]]
    state: list[StateDiffAnswer]
    files: list[FileDiffAnswer]
    calls: list[CallDiffAnswer]

    @classmethod
    def of(cls, found: CheckpointDiff, json: TaggedJson) -> Self:
        """Return a comparison as an answer."""
        return cls(
            old=CheckpointAnswer.of(found.old),
            new=CheckpointAnswer.of(found.new),
            counts=found.counts,
            state=[StateDiffAnswer.of(item, json) for item in found.state],
            files=[FileDiffAnswer.of(item) for item in found.files],
            calls=[CallDiffAnswer.of(item, json) for item in found.calls],
        )
