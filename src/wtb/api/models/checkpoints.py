"""Checkpoints and their files."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from pydantic import Field

from wtb.api.models.base import AnswerModel, ListAnswer, example
from wtb.api.models.figures import PlainText
from wtb.api.models.states import StateAnswer
from wtb.application.queries.state_parts import StatePart
from wtb.application.queries.views import CheckpointView, FileTotals, HistoryRow, Mark
from wtb.domain.checkpoint import Checkpoint, Kind, Trigger
from wtb.domain.files import EntryKind, FileEntry, path_bytes


class CheckpointAnswer(AnswerModel):
    """A checkpoint without its state."""

    id: str
    run: str = Field(description="The run that made it; for a fork, an earlier one may have.")
    step: int
    node: PlainText | None = Field(description="The node that ended with it; null for several at once.")
    visit: int | None
    trigger: Trigger
    kind: Kind
    name: PlainText | None
    description: PlainText
    parent: str | None
    next_nodes: list[PlainText]
    restore_point: bool = Field(description="Whether a rollback or fork can start here.")
    size_bytes: int = Field(description="What storing it cost.")
    state_hash: str = Field(description="Equal states have equal hashes.")
    created_at: datetime
    created_by: PlainText | None

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Self:
        """Return a checkpoint as an answer."""
        return cls(**facts_of(checkpoint))


def facts_of(checkpoint: Checkpoint) -> dict[str, object]:
    """Return what is shown of every checkpoint."""
    return {
        "id": checkpoint.id,
        "run": checkpoint.execution_id,
        "step": checkpoint.step,
        "node": checkpoint.node,
        "visit": checkpoint.visit,
        "trigger": checkpoint.trigger,
        "kind": checkpoint.kind,
        "name": checkpoint.name,
        "description": checkpoint.description,
        "parent": checkpoint.parent_id,
        "next_nodes": list(checkpoint.next_nodes),
        "restore_point": checkpoint.restore_point,
        "size_bytes": checkpoint.size_bytes,
        "state_hash": checkpoint.state_hash.hex(),
        "created_at": checkpoint.created_at,
        "created_by": checkpoint.created_by,
    }


class CheckpointRowAnswer(CheckpointAnswer):
    """A checkpoint in the history of a run."""

    mark: Mark = Field(description="Where it lies: on the line, its head, left behind, a safety copy, or deleted.")
    files: int | None = Field(description="Null if they cannot be read.")
    file_bytes: int | None

    @classmethod
    def of_row(cls, row: HistoryRow) -> Self:
        """Return a row of the history as an answer."""
        files, size = (None, None) if row.files is None else row.files
        return cls(**facts_of(row.checkpoint), mark=row.mark, files=files, file_bytes=size)


class CheckpointCountsAnswer(AnswerModel):
    """How many checkpoints a run has on all its lines."""

    checkpoints: int
    restore_points: int

    model_config = example(checkpoints=14, restore_points=6)

    @classmethod
    def of(cls, counts: tuple[int, int]) -> Self:
        """Return counts as an answer."""
        return cls(checkpoints=counts[0], restore_points=counts[1])


class FileAnswer(AnswerModel):
    """A file, folder or link of a workspace."""

    path: PlainText
    kind: EntryKind
    mode: str = Field(examples=["0644"])
    size_bytes: int
    sha256: str | None
    target: PlainText | None = Field(description="Where a link leads.")

    @classmethod
    def of(cls, entry: FileEntry) -> Self:
        """Return an entry as an answer."""
        return cls(
            path=_readable(entry.path),
            kind=entry.kind,
            mode=f"{entry.mode:04o}",
            size_bytes=entry.size,
            sha256=entry.digest.hex() or None,
            target=_readable(entry.target) or None,
        )


def _readable(path: str) -> str:
    return path_bytes(path).decode("utf-8", "replace")


class CheckpointDetailAnswer(CheckpointAnswer):
    """A checkpoint with its state and its files."""

    mark: Mark = Field(description="Where it lies: on the line, its head, left behind, a safety copy, or deleted.")
    state: StateAnswer
    files: ListAnswer[FileAnswer] = Field(description="The first files; `…/files` has all.")
    file_count: int
    file_bytes: int

    @classmethod
    def of_view(cls, view: CheckpointView, state: StatePart, files: ListAnswer[FileAnswer]) -> Self:
        """Return a checkpoint with its contents as an answer."""
        totals = FileTotals.of(view.files)
        return cls(
            **facts_of(view.checkpoint),
            mark=view.mark,
            state=StateAnswer.of(state),
            files=files,
            file_count=totals.files,
            file_bytes=totals.size_bytes,
        )
