"""The rows of a run: its workflow, branches, node runs, checkpoints, tool calls and rollbacks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from wtb.domain.anchor import AnchoredCall
from wtb.domain.checkpoint import Checkpoint, CheckpointDraft, NodeBoundary, NodeRun, Snapshot
from wtb.domain.execution import Branch, Execution, ExecutionStatus
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId, WorkflowId
from wtb.domain.integrity import Fault
from wtb.domain.rollback import CallKey, Rollback
from wtb.domain.run_scores import RunScore
from wtb.domain.state import StateDelta
from wtb.domain.tools import ToolCall


class WorkflowRepository(Protocol):
    """Workflow definitions as data, known by their content: saving an equal one again gives the same id."""

    def save(self, definition: Mapping[str, Any]) -> WorkflowId:
        """Keep what `WorkflowDefinition.to_dict` gave."""
        ...

    def get(self, workflow_id: WorkflowId) -> Mapping[str, Any]:
        """Return it, or raise WorkflowNotFound."""
        ...


class ExecutionRepository(Protocol):
    """Executions, with optimistic locking."""

    def add(self, execution: Execution) -> None:
        """Keep a new execution; AlreadyExists when the id is taken."""
        ...

    def get(self, execution_id: ExecutionId) -> Execution:
        """Return it, or raise ExecutionNotFound."""
        ...

    def save(self, execution: Execution, *, token: int | None = None) -> None:
        """Replace the version before this one; what the run is of and who made it when never changes.

        Raises Conflict when the stored version is another, ExecutionNotFound when there is none. With a token
        also LeaseLost when the lease is not held under it: this is the fence that every write of a running
        execution passes, inside its own transaction.
        """
        ...

    def advance(self, execution: Execution, *, token: int | None = None) -> str | None:
        """Save an execution that has only made a step (`stepped`), and return what was requested of it (see `request`).

        Raises as `save` does. The lease stays as it is: the heartbeat may have extended it meanwhile.
        """
        ...

    def check_lease(self, execution_id: ExecutionId, token: int | None) -> None:
        """Raise LeaseLost unless the lease is held under this token; the fence of writes that save no execution.

        Without a token nothing is checked. The lease cannot be taken over before the transaction ends.
        """
        ...

    def renew(self, execution_id: ExecutionId, token: int, expires_at: datetime) -> None:
        """Extend a lease without a new version; LeaseLost when it is not held under this token any more."""
        ...

    def request(self, execution_id: ExecutionId, request: str | None) -> None:
        """Leave a request (`pause`, `stop`) for whoever runs the execution, or take it back; no new version."""
        ...

    def list_executions(
        self,
        *,
        statuses: Collection[ExecutionStatus] = (),
        workflow: str | None = None,
        since: datetime | None = None,
        prefix: str = "",
        batch: str | None = None,
        without_batches: bool = False,
        limit: int = 100,
        offset: int = 0,
    ) -> tuple[Execution, ...]:
        """Return those that fit all filters, newest first; `since` is inclusive, `prefix` is how their ids begin.

        `batch` is the id of a batch: only its runs are returned. `without_batches` leaves out the runs of all batches.
        A fork of such a run was not made by the batch.
        """
        ...

    def delete(self, execution_id: ExecutionId) -> None:
        """Remove the execution with its branches and node runs.

        ExecutionNotFound when there is none, Conflict while it has checkpoints: delete those before.
        """
        ...


class BranchRepository(Protocol):
    """Branches of executions; names are unique within one."""

    def add(self, branch: Branch) -> None:
        """Keep a new branch; AlreadyExists when the id, or the name in this execution, is taken."""
        ...

    def get(self, branch_id: BranchId) -> Branch:
        """Return it, or raise BranchNotFound."""
        ...

    def move_head(self, branch_id: BranchId, head_id: CheckpointId, *, expected: CheckpointId | None) -> None:
        """Point the branch at another checkpoint; Conflict when its head is not the expected one."""
        ...

    def rewind(self, branch_id: BranchId, head_id: CheckpointId, *, expected: CheckpointId | None) -> None:
        """Move the head for a rollback: as `move_head`, and unfinished work after the new head is dropped.

        A storage holds such work for libraries that drive their runs themselves.
        """
        ...

    def fork_from(self, branch_id: BranchId, checkpoint_id: CheckpointId) -> None:
        """Say that the branch left its line at an earlier checkpoint: what lies between is gone."""
        ...

    def delete(self, branch_id: BranchId) -> None:
        """Remove a branch; its checkpoints stay. BranchNotFound when there is none."""
        ...

    def list_branches(self, execution_id: ExecutionId) -> tuple[Branch, ...]:
        """Return the branches of an execution in the order of their making."""
        ...

    def list_forks(self, checkpoint_ids: Collection[CheckpointId]) -> tuple[Branch, ...]:
        """Return the branches of all executions that were forked from these, in the order of their making."""
        ...

    def list_at(self, checkpoint_ids: Collection[CheckpointId]) -> tuple[Branch, ...]:
        """Return the branches, of whichever execution, whose head is one of these checkpoints."""
        ...


class NodeRunRepository(Protocol):
    """Node runs, and the boundaries that follow from them."""

    def save(self, run: NodeRun) -> None:
        """Keep a node run, new or changed."""
        ...

    def get(self, execution_id: ExecutionId, node_run_id: NodeRunId) -> NodeRun:
        """Return it, or raise NodeRunNotFound."""
        ...

    def list_runs(self, execution_id: ExecutionId) -> tuple[NodeRun, ...]:
        """Return the node runs of an execution in the order of their ids, which is that of their starts."""
        ...

    def list_leading_to(self, execution_id: ExecutionId, checkpoints: Sequence[Checkpoint]) -> tuple[NodeRun, ...]:
        """Return, in the same order, the runs that have to do with these checkpoints, and those that have not ended."""
        ...

    def list_unfinished(self, execution_id: ExecutionId) -> tuple[NodeRun, ...]:
        """Return, in the same order, the runs that have not ended, or that wait for their barrier with a result."""
        ...

    def list_boundaries(self, execution_id: ExecutionId) -> tuple[NodeBoundary, ...]:
        """Return the boundary of each run, in the same order."""
        ...


class CheckpointStore(Protocol):
    """Checkpoints and their states, by their changes.

    A checkpoint never changes once saved. Saving costs what the delta holds, whatever the size of the state.
    Everything read is verified against its hashes; what does not match raises DamagedData that names the
    checkpoint. Deleting keeps every other checkpoint whole: it loads, verifies and compares as before.
    """

    def save(
        self,
        draft: CheckpointDraft,
        delta: StateDelta,
        returned: Mapping[str, Mapping[str, Any]] | None = None,
        memory: Mapping[str, Any] | None = None,
    ) -> Checkpoint:
        """Keep the state that the delta makes of the parent's, and what each node returned before reducers.

        `memory` is what an engine keeps beside the state. It is never mixed up with what a node returned.

        CheckpointNotFound when the parent is not there or is deleted, AlreadyExists when the id, or the name in
        this execution, is taken. Nothing is kept of a save that raises.
        """
        ...

    def get(self, checkpoint_id: CheckpointId) -> Checkpoint:
        """Return the checkpoint without its state; CheckpointNotFound also when it is deleted."""
        ...

    def load(self, checkpoint_id: CheckpointId) -> Snapshot:
        """Return the checkpoint with its state; CheckpointNotFound also when it is deleted."""
        ...

    def load_many(self, checkpoint_ids: Sequence[CheckpointId]) -> Iterator[Snapshot]:
        """Yield checkpoints with their states in the order given, those that are not there or deleted left out.

        What several of them share is read once; what this process has read or written lately is not verified again.
        All is read when it is called, and decoded one by one as they are taken, which may be after the transaction.
        """
        ...

    def compare(self, old: CheckpointId, new: CheckpointId) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the values of the keys whose content differs, as they are in each; a key that is absent is left out.

        The same as loading both states and leaving out what is equal (the order of a mapping is no content), but only
        what differs is read. CheckpointNotFound also when one is deleted.
        """
        ...

    def list_infos(self, execution_id: ExecutionId) -> tuple[Checkpoint, ...]:
        """Return the checkpoints of an execution without states, by step and then id, deleted ones left out."""
        ...

    def each_info(self, execution_id: ExecutionId) -> Iterator[Checkpoint]:
        """Yield every checkpoint of an execution without its state, by step and then id, deleted ones included.

        Few are held at a time, however many there are. DamagedData when one is missing that another follows.
        """
        ...

    def load_history(self, execution_id: ExecutionId) -> ExecutionHistory:
        """Return everything the run did; ExecutionNotFound when there is no such run."""
        ...

    def load_tail(self, execution_id: ExecutionId, length: int) -> ExecutionHistory:
        """Return the last checkpoints of the active lineage with what led to them; complete when that is all."""
        ...

    def delete(self, checkpoint_ids: Collection[CheckpointId]) -> None:
        """Delete checkpoints, leaving tombstones; Conflict when one is the head of a branch.

        Their ids stay taken, their names become free. A deletion that raises changes nothing.
        """
        ...

    def delete_run(self, execution_id: ExecutionId) -> None:
        """Delete all checkpoints of an execution, heads included; forks in other executions stay whole.

        Conflict while the branch of another execution has its head here. Nothing happens for an unknown run.
        """
        ...


class ToolCallRepository(Protocol):
    """Recorded calls of node runs; arguments and results come back with their types."""

    def save(self, call: ToolCall) -> None:
        """Keep a call, new or changed."""
        ...

    def list_calls(self, execution_id: ExecutionId, node_run_id: NodeRunId | None = None) -> tuple[ToolCall, ...]:
        """Return the calls of an execution, or of one node run, in the order in which they began."""
        ...

    def list_lost(self, execution_id: ExecutionId) -> tuple[CallKey, ...]:
        """Return the calls whose node run is not there, by node run and identity; only damage leaves such calls."""
        ...


class CallAnchor(Protocol):
    """A second note of every external call, beside the store, made after the intent is stored and before the call.

    Calls that are taken back, or made again by a redo, are noted in the same way.

    A store that lost its end (a write-ahead log that was cut, an older copy that was put back) does not know what was
    called after that, and the calls would be made again as new ones. Those that are noted here are in doubt instead. A
    store that notices such a loss itself needs no anchor, nor does one that does not outlive its process.
    """

    def note(self, call: AnchoredCall) -> None:
        """Keep a note; when that fails (StorageUnavailable) the call must not be made."""
        ...

    def list_lost(self, execution_id: ExecutionId) -> tuple[AnchoredCall, ...]:
        """Return what was noted of a run and what the store does not know.

        Of several runs of one visit of a node only the calls of the last count, and of several tries of a call the
        last. What belongs to a run that was deleted, or to a node run that was left behind, is not lost.
        """
        ...

    def inspect(self) -> tuple[Fault, ...]:
        """Return what is wrong: calls that the store has lost, notes that are damaged."""
        ...

    def repair(self, faults: Sequence[Fault]) -> None:
        """Remove the notes of those faults that have a remedy."""
        ...

    def close(self) -> None:
        """Give back files; the anchor must not be used afterwards."""
        ...


class RollbackRepository(Protocol):
    """Journals of rollbacks, each written before its first effect and after its last."""

    def save(self, rollback: Rollback) -> None:
        """Keep a journal, new or changed."""
        ...

    def list_rollbacks(self, execution_id: ExecutionId) -> tuple[Rollback, ...]:
        """Return the journals of an execution in the order of their making."""
        ...


class EvaluationRepository(Protocol):
    """Scores of single runs, one for each time that an evaluator looked at a run. They are deleted with the run."""

    def add(self, scores: Sequence[RunScore]) -> None:
        """Keep new scores, or raise ExecutionNotFound if a run does not exist.

        Nobody else can delete these runs until the end of the transaction.
        """
        ...

    def list_scores(self, execution_id: ExecutionId) -> tuple[RunScore, ...]:
        """Return all scores of a run, oldest first; those of one moment by their ids."""
        ...
