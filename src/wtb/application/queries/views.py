"""Views: what people and programs are shown, as it was at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from wtb.domain.batch import Batch, Job
from wtb.domain.checkpoint import Checkpoint
from wtb.domain.events import RecordedEvent
from wtb.domain.execution import Branch, Execution, Neglect
from wtb.domain.figures import Usage
from wtb.domain.files import EntryKind, FileTree
from wtb.domain.ids import ExecutionId
from wtb.domain.ports import CheckpointCounts
from wtb.domain.rollback import Rollback
from wtb.domain.tools import ToolCall


class FileTotals(NamedTuple):
    """How many files and links a tree holds, and their bytes."""

    files: int = 0
    size_bytes: int = 0

    @classmethod
    def of(cls, tree: FileTree) -> FileTotals:
        """Count the files of a tree."""
        files = [entry for entry in tree.values() if entry.kind is not EntryKind.FOLDER]
        return cls(len(files), sum(entry.size for entry in files))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run in a list of runs."""

    execution: Execution
    neglect: Neglect | None
    """Why a run that says it is running does not get on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRollback:
    """A rollback or redo that waits half-way: where it leads, and which calls are dealt with and which are left."""

    journal: Rollback
    target: Checkpoint
    done: tuple[ToolCall, ...]
    left: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """When a run was first started, when it paused or ended if it has, and how long that is; pauses count."""

    started_at: datetime | None
    paused_at: datetime | None
    ended_at: datetime | None
    duration: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """Everything about a run that `wtb show` tells."""

    execution: Execution
    neglect: Neglect | None
    """Why a run that says it is running does not get on."""
    branches: tuple[Branch, ...]
    head: Checkpoint | None
    """The last checkpoint of the active branch."""
    state: Mapping[str, Any]
    """The state at the head."""
    counts: CheckpointCounts
    files: FileTotals
    usage: Usage
    """Tokens and money along the line that led to the head."""
    spent: Usage
    """Tokens and money in all: on all lines, and in attempts that failed."""
    rollback: OpenRollback | None
    notes: tuple[str, ...]
    """Remarks about the end of a completed run, such as that no edge held."""
    times: RunTimes
    current_nodes: tuple[str, ...]
    """The nodes that run now, or that come next; none once the run has ended."""

    @property
    def id(self) -> ExecutionId:
        """The id of the run."""
        return self.execution.id

    @property
    def branch(self) -> Branch:
        """The active branch."""
        return next(branch for branch in self.branches if branch.id == self.execution.branch_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionView:
    """A run that somebody is about to delete: how many checkpoints go with it, and which forks stay."""

    execution: Execution
    checkpoints: int
    forks: tuple[ExecutionId, ...]


class Mark(StrEnum):
    """Where a checkpoint of a list stands."""

    ON_LINE = ""
    HEAD = "head"
    LEFT = "left"
    """On a line that a rollback left behind, or on another branch."""
    SAFETY = "safety"
    """A copy that a rollback made before it changed anything."""
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRow:
    """A checkpoint in the history of a run."""

    checkpoint: Checkpoint
    mark: Mark
    files: FileTotals | None
    """None when they cannot be read: `wtb doctor` tells why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPage:
    """Some checkpoints of a run, oldest first, and whether there are others before or after them."""

    run_id: ExecutionId
    rows: tuple[CheckpointRow, ...]
    counts: CheckpointCounts
    has_earlier: bool
    has_later: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointView:
    """A checkpoint with its state and its files."""

    checkpoint: Checkpoint
    state: Mapping[str, Any]
    files: FileTree


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Some events, oldest first, and whether others that fit the filters lie before or after them."""

    stream: str | None
    """The run or the batch that they are of; None when they are of all."""
    events: tuple[RecordedEvent, ...]
    has_earlier: bool
    has_later: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseView:
    """The jobs of one case of a batch: all combinations and repeats."""

    case_id: str
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchView:
    """A batch with its jobs."""

    batch: Batch
    jobs: tuple[Job, ...]

    @property
    def cases(self) -> tuple[CaseView, ...]:
        """The jobs by case, in the order in which the cases come first."""
        jobs: dict[str, list[Job]] = {}
        for job in self.jobs:
            jobs.setdefault(job.case_id, []).append(job)
        return tuple(CaseView(case_id=case_id, jobs=tuple(own)) for case_id, own in jobs.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowView:
    """A workflow that has runs: its versions, oldest use first, how many runs there are and since when."""

    name: str
    versions: tuple[str, ...]
    definitions: int
    """How many different sets of nodes, edges and settings its runs were made with."""
    runs: int
    first_run_at: datetime
    last_run_at: datetime
