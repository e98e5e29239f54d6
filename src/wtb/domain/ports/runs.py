"""The rows of a run: its workflow, branches, node runs, checkpoints, tool calls and rollbacks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, Unpack

from wtb.domain.anchor import AnchoredCall
from wtb.domain.checkpoint import Checkpoint, CheckpointDraft, NodeBoundary, NodeRun, Snapshot
from wtb.domain.execution import Branch, Execution
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId, WorkflowId
from wtb.domain.integrity import Fault
from wtb.domain.rollback import CallKey, Rollback
from wtb.domain.run_filters import RunFilters
from wtb.domain.run_scores import RunScore
from wtb.domain.state import StateDelta
from wtb.domain.tools import ToolCall


class WorkflowRepository(Protocol):
    """Workflow definitions as data, identified by their content: saving an equal one again gives the same id."""

    def save(self, definition: Mapping[str, Any]) -> WorkflowId:
        """Store the data from `WorkflowDefinition.to_dict`."""
        ...

    def get(self, workflow_id: WorkflowId) -> Mapping[str, Any]:
        """Return it, or raise WorkflowNotFound."""
        ...


class HeadMove(NamedTuple):
    """A move of a branch's head from one checkpoint to another."""

    branch_id: BranchId
    head_id: CheckpointId
    expected: CheckpointId | None


class RunPosition(NamedTuple):
    """The place of a run in the list of runs: they are sorted by creation time, then by id."""

    created_at: datetime
    id: ExecutionId


class ExecutionRepository(Protocol):
    """Executions, with optimistic locking."""

    def add(self, execution: Execution) -> None:
        """Store a new execution; raise AlreadyExists if the id is taken."""
        ...

    def get(self, execution_id: ExecutionId) -> Execution:
        """Return it, or raise ExecutionNotFound."""
        ...

    def save(self, execution: Execution, *, token: int | None = None) -> None:
        """Replace the previous version of an execution; its workflow, its creator and its creation time never change.

        Raise Conflict if the stored version is not the previous one, ExecutionNotFound if there is none. With a token,
        raise LeaseLost if the lease is not held under it: every write of a running execution passes this fence inside
        its own transaction.
        """
        ...

    def advance(self, execution: Execution, *, token: int | None = None, move: HeadMove | None = None) -> str | None:
        """Save an execution that has only made a step (`stepped`), and return the open request, if any (see `request`).

        Raise the same errors as `save`. The lease is left alone: the heartbeat may have extended it meanwhile. `move`
        also moves the head of its branch, as `BranchRepository.move_head` does and with its errors; together they take
        one answer of the database instead of two. If such a step is refused, do not commit the unit of work.
        """
        ...

    def check_lease(self, execution_id: ExecutionId, token: int | None) -> None:
        """Raise LeaseLost unless the lease is held under this token; the fence for writes that save no execution.

        Without a token nothing is checked. No other owner can take the lease before the transaction ends.
        """
        ...

    def renew(self, execution_id: ExecutionId, token: int, expires_at: datetime) -> None:
        """Extend a lease without a new version; raise LeaseLost if it is no longer held under this token."""
        ...

    def request(self, execution_id: ExecutionId, request: str | None) -> None:
        """Leave a request (`pause`, `stop`) for the process that runs the execution, or withdraw it; no new version."""
        ...

    def list_executions(
        self,
        *,
        before: RunPosition | None = None,
        limit: int = 100,
        offset: int = 0,
        **filters: Unpack[RunFilters],
    ) -> tuple[Execution, ...]:
        """Return the executions that fit all filters, newest first; with `before`, only those after it in this order.

        A page that begins at a position costs the same wherever it begins. Skipping by `offset` reads what it skips.
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
        """Store a new branch; raise AlreadyExists if the id, or the name in this execution, is taken."""
        ...

    def get(self, branch_id: BranchId) -> Branch:
        """Return it, or raise BranchNotFound."""
        ...

    def move_head(self, branch_id: BranchId, head_id: CheckpointId, *, expected: CheckpointId | None) -> None:
        """Point the branch at another checkpoint; raise Conflict if its head is not the expected one."""
        ...

    def rewind(self, branch_id: BranchId, head_id: CheckpointId, *, expected: CheckpointId | None) -> None:
        """Move the head for a rollback: like `move_head`, but also drop unfinished work after the new head.

        A storage holds such work for libraries that drive their own runs.
        """
        ...

    def fork_from(self, branch_id: BranchId, checkpoint_id: CheckpointId) -> None:
        """Record that the branch left its line at an earlier checkpoint, because those in between are gone."""
        ...

    def delete(self, branch_id: BranchId) -> None:
        """Remove a branch; its checkpoints stay. BranchNotFound when there is none."""
        ...

    def list_branches(self, execution_id: ExecutionId) -> tuple[Branch, ...]:
        """Return the branches of an execution in the order of their creation."""
        ...

    def list_forks(self, checkpoint_ids: Collection[CheckpointId]) -> tuple[Branch, ...]:
        """Return the branches of all executions that were forked from these checkpoints, in order of creation."""
        ...

    def list_at(self, checkpoint_ids: Collection[CheckpointId]) -> tuple[Branch, ...]:
        """Return the branches, of any execution, whose head is one of these checkpoints."""
        ...


class NodeRunRepository(Protocol):
    """Node runs, and the boundaries that follow from them."""

    def save(self, run: NodeRun) -> None:
        """Store a new or changed node run."""
        ...

    def get(self, execution_id: ExecutionId, node_run_id: NodeRunId) -> NodeRun:
        """Return it, or raise NodeRunNotFound."""
        ...

    def list_runs(self, execution_id: ExecutionId) -> tuple[NodeRun, ...]:
        """Return the node runs of an execution in the order of their ids, which is the order of their starts."""
        ...

    def list_leading_to(self, execution_id: ExecutionId, checkpoints: Sequence[Checkpoint]) -> tuple[NodeRun, ...]:
        """Return, in the same order, the runs related to these checkpoints, and the runs that have not ended."""
        ...

    def list_unfinished(self, execution_id: ExecutionId) -> tuple[NodeRun, ...]:
        """Return, in the same order, the runs that have not ended, or that wait for their barrier with a result."""
        ...

    def list_boundaries(self, execution_id: ExecutionId) -> tuple[NodeBoundary, ...]:
        """Return the boundary of each run, in the same order."""
        ...


class CheckpointStore(Protocol):
    """Checkpoints and their states, stored as changes.

    A checkpoint never changes once saved. The cost of a save depends on the delta, not on the size of the state.
    Everything read is verified against its hashes; a mismatch raises DamagedData, which names the checkpoint. A
    deletion keeps every other checkpoint whole: it loads, verifies and compares as before.
    """

    def save(
        self,
        draft: CheckpointDraft,
        delta: StateDelta,
        returned: Mapping[str, Mapping[str, Any]] | None = None,
        memory: Mapping[str, Any] | None = None,
    ) -> Checkpoint:
        """Store the parent's state with the delta applied, and the updates that nodes returned, before reducers.

        `memory` is the data that an engine keeps besides the state. It is stored apart from the nodes' updates.

        Raise CheckpointNotFound if the parent does not exist or is deleted, AlreadyExists if the id, or the name in
        this execution, is taken. A save that raises stores nothing.
        """
        ...

    def get(self, checkpoint_id: CheckpointId) -> Checkpoint:
        """Return the checkpoint without its state; raise CheckpointNotFound also if it is deleted."""
        ...

    def load(self, checkpoint_id: CheckpointId) -> Snapshot:
        """Return the checkpoint with its state; raise CheckpointNotFound also if it is deleted."""
        ...

    def load_many(self, checkpoint_ids: Sequence[CheckpointId]) -> Iterator[Snapshot]:
        """Yield checkpoints with their states in the given order; missing and deleted ones are left out.

        Shared data is read once; data that this process has read or written lately is not verified again. The call
        reads everything; checkpoints are decoded one by one as you take them, which may be after the transaction.
        """
        ...

    def compare(self, old: CheckpointId, new: CheckpointId) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the keys whose content differs, with the values of each side; a side leaves out keys that it lacks.

        The result is the same as loading both states and leaving out equal values (the order of a mapping does not
        count), but only differing values are read. Raise CheckpointNotFound also if one of the two is deleted.
        """
        ...

    def list_infos(self, execution_id: ExecutionId) -> tuple[Checkpoint, ...]:
        """Return the checkpoints of an execution without states, by step and then id; deleted ones are left out."""
        ...

    def each_info(self, execution_id: ExecutionId) -> Iterator[Checkpoint]:
        """Yield every checkpoint of an execution without its state, by step and then id, deleted ones included.

        Only a few are in memory at a time. Raise DamagedData if the parent of one is missing.
        """
        ...

    def load_history(self, execution_id: ExecutionId) -> ExecutionHistory:
        """Return everything that the run did, or raise ExecutionNotFound."""
        ...

    def load_tail(self, execution_id: ExecutionId, length: int) -> ExecutionHistory:
        """Return the last checkpoints of the active lineage and the node runs behind them; complete if that is all."""
        ...

    def delete(self, checkpoint_ids: Collection[CheckpointId]) -> None:
        """Delete checkpoints, leaving tombstones; raise Conflict if one is the head of a branch.

        Their ids stay taken, their names become free. A deletion that raises changes nothing.
        """
        ...

    def delete_run(self, execution_id: ExecutionId) -> None:
        """Delete all checkpoints of an execution, heads included; forks in other executions stay whole.

        Raise Conflict while a branch of another execution has its head here. For an unknown run, do nothing.
        """
        ...


class ToolCallRepository(Protocol):
    """Recorded calls of node runs; arguments and results come back with their types."""

    def save(self, call: ToolCall) -> None:
        """Store a new or changed call."""
        ...

    def list_calls(self, execution_id: ExecutionId, node_run_id: NodeRunId | None = None) -> tuple[ToolCall, ...]:
        """Return the calls of an execution, or of one node run, in the order in which they began."""
        ...

    def list_lost(self, execution_id: ExecutionId) -> tuple[CallKey, ...]:
        """Return the calls whose node run is missing, by node run and identity; only damage causes this."""
        ...


class CallAnchor(Protocol):
    """A second note about every external call, outside the store, made after the intent is stored and before the call.

    Undoing a call, and repeating one in a redo, are noted in the same way.

    A store can lose its end: a write-ahead log was cut, or an older copy was put back. It then does not know the later
    calls and would make them again as new ones. With a note here, such a call is in doubt instead. A store that notices
    such a loss itself needs no anchor, nor does a store that ends with its process.
    """

    def note(self, call: AnchoredCall) -> None:
        """Store a note; if that fails (StorageUnavailable), the call must not be made."""
        ...

    def list_lost(self, execution_id: ExecutionId) -> tuple[AnchoredCall, ...]:
        """Return the calls of a run that were noted but that the store does not know.

        If a visit of a node ran several times, only the calls of the last run count; if a call was tried several times,
        only the last try. Calls of a deleted run, or of an abandoned node run, are not lost.
        """
        ...

    def inspect(self) -> tuple[Fault, ...]:
        """Return the faults: calls that the store has lost, and damaged notes."""
        ...

    def repair(self, faults: Sequence[Fault]) -> None:
        """Remove the notes of the faults that have a remedy."""
        ...

    def close(self) -> None:
        """Close the files; the anchor must not be used afterwards."""
        ...


class RollbackRepository(Protocol):
    """Journals of rollbacks; a journal is written before the first effect and after the last."""

    def save(self, rollback: Rollback) -> None:
        """Store a new or changed journal."""
        ...

    def list_rollbacks(self, execution_id: ExecutionId) -> tuple[Rollback, ...]:
        """Return the journals of an execution in the order of their creation."""
        ...

    def count_rollbacks(self, execution_id: ExecutionId) -> int:
        """Return the number of journals of an execution."""
        ...


class EvaluationRepository(Protocol):
    """Scores of single runs, one for each time that an evaluator looked at a run. They are deleted with the run."""

    def add(self, scores: Sequence[RunScore]) -> None:
        """Store new scores, or raise ExecutionNotFound if a run does not exist.

        No other transaction can delete these runs until this one ends.
        """
        ...

    def list_scores(self, execution_id: ExecutionId) -> tuple[RunScore, ...]:
        """Return all scores of a run, oldest first; scores of the same moment are in the order of their ids."""
        ...
