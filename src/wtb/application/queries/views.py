"""Views: the frozen values that queries return, each as of one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from wtb.domain.batch import Baseline, Batch, Job
from wtb.domain.checkpoint import Checkpoint
from wtb.domain.diff import StateDiff
from wtb.domain.events import RecordedEvent
from wtb.domain.execution import Branch, Execution, ExecutionStatus, Failure, Neglect
from wtb.domain.figures import Usage
from wtb.domain.files import EntryKind, FileTree
from wtb.domain.ids import ExecutionId
from wtb.domain.job_origin import JobOrigin
from wtb.domain.ports import CheckpointCounts
from wtb.domain.rollback import Rollback
from wtb.domain.run_scores import RunScores
from wtb.domain.tools import ToolCall


class FileTotals(NamedTuple):
    """How many files and links a tree holds, and their total bytes."""

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
    """Why a run that claims to be running makes no progress; None if it does, or does not claim to."""

    @property
    def created_by(self) -> str | None:
        """Who created the run."""
        return self.execution.created_by


class Health(StrEnum):
    """What is special about a run that has not ended."""

    GONE = "gone"
    """It is recorded as running, but its process has ended."""
    ABANDONED = "abandoned"
    """It is recorded as running, and nothing was heard of it for an hour."""
    WAITING = "waiting"
    """It is paused, and a person has to decide: it asks a question, or a call is in doubt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """A page of runs, newest first, and the cursor of the next page; None if this is the last one."""

    rows: tuple[RunRow, ...]
    next: str | None
    counts: Mapping[ExecutionStatus, int] | None
    """How many runs fit the filters, by status, if that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPage:
    """A page of batches, newest first, and the cursor of the next page; None if this is the last one."""

    batches: tuple[Batch, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRollback:
    """An unfinished rollback or redo: its target, the calls it has handled and those it has not."""

    journal: Rollback
    target: Checkpoint
    done: tuple[ToolCall, ...]
    left: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """When a run first started, when it paused or ended, and how long that took, including pauses."""

    started_at: datetime | None
    paused_at: datetime | None
    ended_at: datetime | None
    duration: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """Everything about a run, as `wtb show` shows it."""

    execution: Execution
    neglect: Neglect | None
    """Why a run that claims to be running makes no progress; None if it does, or does not claim to."""
    branches: tuple[Branch, ...]
    head: Checkpoint | None
    """The last checkpoint of the active branch."""
    state: Mapping[str, Any]
    """The state at the head."""
    counts: CheckpointCounts
    files: FileTotals
    usage: Usage
    """Tokens and cost on the way to the head."""
    spent: Usage
    """All tokens and cost, including other lines and failed attempts."""
    scores: RunScores
    rollback: OpenRollback | None
    notes: tuple[str, ...]
    """Notes about the end of a completed run, for example that no edge applied."""
    times: RunTimes
    current_nodes: tuple[str, ...]
    """The nodes that are running or come next; none once the run has ended."""
    origin: JobOrigin | None
    """The job of a batch that made the run."""
    batch_name: str | None
    """The name of that batch; None if it was deleted."""

    @property
    def id(self) -> ExecutionId:
        """The id of the run."""
        return self.execution.id

    @property
    def created_by(self) -> str | None:
        """Who created the run."""
        return self.execution.created_by

    @property
    def branch(self) -> Branch:
        """The active branch."""
        return next(branch for branch in self.branches if branch.id == self.execution.branch_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInput:
    """What a node got: the checkpoint that it started from, and the part of its state that the node may read."""

    checkpoint: Checkpoint
    reads: tuple[str, ...] | None
    """The keys that the node declares; None if it sees all."""
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantChange:
    """A node that runs another variant than before; None is the node as it was written first."""

    node: str
    before: str | None
    now: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastGoodRun:
    """An earlier run of the same workflow that completed, and what a failed run has that is different."""

    execution: Execution
    code: tuple[str, ...] | None
    """What changed in the workflow and its code, in words; None if that is not known."""
    variants: tuple[VariantChange, ...]
    input: tuple[StateDiff, ...] | None
    """How the inputs of the runs differ; None if one is gone."""
    state: tuple[StateDiff, ...] | None
    """How the states differ from which the node started; None if the other run did not get there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureView:
    """Why a run failed, what its node got, and what changed since the last run that went well."""

    execution: Execution
    failure: Failure
    input: NodeInput | None
    last_good: LastGoodRun | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionView:
    """A run that somebody is about to delete: how many checkpoints go with it, and which forks stay."""

    execution: Execution
    checkpoints: int
    forks: tuple[ExecutionId, ...]


class Mark(StrEnum):
    """The place of a checkpoint in a list."""

    ON_LINE = ""
    HEAD = "head"
    LEFT = "left"
    """On a line that a rollback left behind, or on another branch."""
    SAFETY = "safety"
    """A copy that a rollback made before it changed anything."""
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """A checkpoint in the history of a run."""

    checkpoint: Checkpoint
    mark: Mark
    files: FileTotals | None
    """None if they cannot be read; `wtb doctor` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPage:
    """A page of a run's checkpoints, oldest first, and whether there are others before or after."""

    run_id: ExecutionId
    rows: tuple[HistoryRow, ...]
    counts: CheckpointCounts
    has_earlier: bool
    has_later: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointView:
    """A checkpoint with its state and its files."""

    checkpoint: Checkpoint
    mark: Mark
    state: Mapping[str, Any]
    files: FileTree

    @property
    def created_by(self) -> str | None:
        """Who made the checkpoint; in a LangGraph thread its `run_id`."""
        return self.checkpoint.created_by


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """A page of events, oldest first, and whether other matching events come before or after."""

    stream: str | None
    """The run or the batch of the events; None if they are from all."""
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
        """The jobs by case, in the order in which the cases first appear."""
        jobs: dict[str, list[Job]] = {}
        for job in self.jobs:
            jobs.setdefault(job.case_id, []).append(job)
        return tuple(CaseView(case_id=case_id, jobs=tuple(own)) for case_id, own in jobs.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineView:
    """A baseline with its saved results, in the shape of a batch."""

    baseline: Baseline
    results: BatchView


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowView:
    """A workflow that has runs: its versions (first used first), and the number and times of its runs."""

    name: str
    versions: tuple[str, ...]
    definitions: int
    """How many different definitions (nodes, edges, settings) its runs used."""
    runs: int
    first_run_at: datetime
    last_run_at: datetime
