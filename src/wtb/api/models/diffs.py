"""What changed between two checkpoints."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from wtb.api.models.base import AnswerModel
from wtb.api.models.checkpoints import CheckpointAnswer, FileAnswer
from wtb.api.models.figures import PlainText
from wtb.application.queries.diff_parts import DiffChild, DiffPart
from wtb.application.queries.state_parts import StateChild
from wtb.application.queries.tagged_json import TaggedJson
from wtb.domain.diff import CallDiff, CheckpointDiff, DiffKind, FileDiff, StateDiff
from wtb.domain.files import path_bytes
from wtb.domain.state import MISSING
from wtb.domain.tools import CallStatus

_MOST = 1_000
"""How many files and calls one answer has."""


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


class SideAnswer(AnswerModel):
    """A value on one side of a comparison."""

    kind: str = Field(examples=["list"])
    count: int | None = Field(description="How many parts or characters it has.")
    value: Any = Field(description="The value as tagged JSON, if it is small.")
    preview: PlainText | None = Field(description="The beginning of a value that is too large to be here whole.")

    @classmethod
    def of(cls, side: StateChild) -> Self:
        """Return a side as an answer."""
        return cls(kind=side.kind, count=side.count, value=side.value, preview=side.preview)


class PartDiffAnswer(AnswerModel):
    """A part that differs."""

    key: Any = Field(
        description="Append it to the path to look inside: a key; or, in a list, the old and the new position. One of "
        "these is null if the item is on one side only.",
        examples=[[3, 4]],
    )
    change: DiffKind
    old: SideAnswer | None
    new: SideAnswer | None

    @classmethod
    def of(cls, child: DiffChild) -> Self:
        """Return a part as an answer."""
        return cls(key=child.key, change=child.change, old=_side(child.old), new=_side(child.new))


class StatePartDiffAnswer(AnswerModel):
    """What differs at one place of two states, one level deep."""

    path: list[Any] = Field(examples=[["messages", [3, 4]]])
    change: DiffKind | None = Field(description="Null if both sides are the same.")
    old: SideAnswer | None
    new: SideAnswer | None
    counts: dict[str, int] = Field(description="How many parts differ, by kind of change; not the parts inside them.")
    by_position: bool = Field(
        description="Whether the items of a very long list were compared place by place, without looking for moves."
    )
    text: PlainText | None = Field(description="The unified diff of two texts of several lines, cut if it is long.")
    children: list[PartDiffAnswer]
    next: str | None = Field(description="The `cursor` of the next page of children.")

    @classmethod
    def of(cls, part: DiffPart) -> Self:
        """Return a place as an answer."""
        return cls(
            path=list(part.path),
            change=part.change,
            old=_side(part.old),
            new=_side(part.new),
            counts={kind.value: count for kind, count in part.counts.items()},
            by_position=part.is_by_position,
            text=part.text,
            children=[PartDiffAnswer.of(child) for child in part.children],
            next=part.next,
        )


def _side(side: StateChild | None) -> SideAnswer | None:
    return None if side is None else SideAnswer.of(side)


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
    files_left: int = Field(default=0, description="How many further files differ; `counts` has them all.")
    calls_left: int = Field(default=0, description="How many further calls differ; `…/calls` lists those of a run.")

    @classmethod
    def of(cls, found: CheckpointDiff, json: TaggedJson) -> Self:
        """Return a comparison as an answer."""
        return cls(
            old=CheckpointAnswer.of(found.old),
            new=CheckpointAnswer.of(found.new),
            counts=found.counts,
            state=[StateDiffAnswer.of(item, json) for item in found.state],
            files=[FileDiffAnswer.of(item) for item in found.files[:_MOST]],
            calls=[CallDiffAnswer.of(item, json) for item in found.calls[:_MOST]],
            files_left=max(0, len(found.files) - _MOST),
            calls_left=max(0, len(found.calls) - _MOST),
        )
