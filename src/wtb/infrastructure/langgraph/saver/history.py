"""History: the history of a thread as an ExecutionHistory, whatever checkpointer the graph has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from wtb.domain.checkpoint import Checkpoint, NodeRun, NodeStatus, Trigger
from wtb.domain.errors import ExecutionNotFound, InvalidInput
from wtb.domain.execution import Branch, Failure
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId, NodeRunId
from wtb.domain.values import evolve

_TRIGGERS = {"input": Trigger.START, "loop": Trigger.NODE_END}


def history_of(graph: Any, thread_id: str) -> ExecutionHistory:
    """Return the history of a thread: its checkpoints, its branches, and the nodes that ran between them.

    A node counts as completed if the checkpoint it ran from lists it so among its tasks. LangGraph does not record how
    long a node took, so a visit lasts from one checkpoint to the next.
    """
    if not getattr(graph, "checkpointer", None):
        raise InvalidInput("this graph has no checkpointer, so it has no history; compile it with one")
    snapshots = list(graph.get_state_history({"configurable": {"thread_id": thread_id}}))[::-1]
    if not snapshots:
        raise ExecutionNotFound(thread_id)
    return _History(ExecutionId(thread_id), snapshots).build()


class _History:
    """Builds a history from the snapshots, first to last."""

    def __init__(self, thread_id: ExecutionId, snapshots: Sequence[Any]) -> None:
        self._thread_id = thread_id
        self._snapshots = snapshots
        self._by_id = {_id(snapshot.config): snapshot for snapshot in snapshots}
        self._checkpoints: dict[CheckpointId, Checkpoint] = {}
        self._branches: list[Branch] = []
        self._visits: dict[CheckpointId, Mapping[str, int]] = {}
        self._runs: list[NodeRun] = []

    def build(self) -> ExecutionHistory:
        for snapshot in self._snapshots:
            self._add(snapshot)
        for branch in self._branches:
            if branch.head_id is not None:
                self._add_unfinished(branch.head_id, branch.id)
        newest = self._checkpoints[_id(self._snapshots[-1].config)]
        return ExecutionHistory(
            execution_id=self._thread_id,
            active_branch_id=newest.branch_id,
            branches=tuple(self._branches),
            checkpoints=tuple(self._checkpoints.values()),
            node_runs=tuple(self._runs),
        )

    def _add(self, snapshot: Any) -> None:
        id = _id(snapshot.config)
        parent_id = None if snapshot.parent_config is None else _id(snapshot.parent_config)
        parent = self._checkpoints.get(parent_id) if parent_id is not None else None
        branch = self._branch(id, parent)
        at = _moment(snapshot.created_at)
        metadata = snapshot.metadata or {}
        tasks = self._by_id[parent.id].tasks if parent is not None and metadata.get("source") == "loop" else ()
        done = [task for task in tasks if task.error is None and not task.interrupts and not task.name.startswith("__")]
        visits = self._visited(id, parent, [task.name for task in done])
        runs = [
            self._run(
                task, number, visit, NodeStatus.COMPLETED, input_id=parent_id, ended_at=at, last_id=id, branch=branch
            )
            for number, (task, visit) in enumerate(zip(done, visits, strict=True))
        ]
        alone = runs[0] if len(runs) == 1 else None
        self._runs += runs
        self._checkpoints[id] = Checkpoint(
            id=id,
            execution_id=self._thread_id,
            branch_id=branch,
            parent_id=None if parent is None else parent.id,
            step=0 if parent is None else parent.step + 1,
            node=None if alone is None else alone.node,
            visit=None if alone is None else alone.visit,
            node_run_id=None if alone is None else alone.id,
            trigger=_TRIGGERS.get(str(metadata.get("source")), Trigger.USER_REQUEST),
            next_nodes=tuple(snapshot.next),
            created_at=at,
            state_hash=b"",
            parent_hash=b"",
            hash=b"",
            size_bytes=0,
        )

    def _visited(self, id: CheckpointId, parent: Checkpoint | None, nodes: Sequence[str]) -> list[int]:
        """Return the visit numbers of these nodes, counted along the line."""
        counted = Counter(self._visits[parent.id] if parent is not None else {})
        visits: list[int] = []
        for node in nodes:
            counted[node] += 1
            visits.append(counted[node])
        self._visits[id] = counted
        return visits

    def _branch(self, id: CheckpointId, parent: Checkpoint | None) -> BranchId:
        """Return the branch of a checkpoint: its parent's if that branch ends at the parent, else a new one."""
        for position, branch in enumerate(self._branches):
            if parent is not None and branch.head_id == parent.id:
                self._branches[position] = branch.moved(id)
                return branch.id
        number = len(self._branches) + 1
        branch = Branch(
            id=BranchId(f"{self._thread_id}:{number}"),
            execution_id=self._thread_id,
            name="main" if number == 1 else f"main ~{number}",
            head_id=id,
            forked_from_id=None if parent is None else parent.id,
            created_at=_moment(self._by_id[id].created_at),
        )
        self._branches.append(branch)
        return branch.id

    def _add_unfinished(self, head_id: CheckpointId, branch: BranchId) -> None:
        """Add the nodes that began at the head and have failed or wait for an answer."""
        tasks = [task for task in self._by_id[head_id].tasks if task.error is not None or task.interrupts]
        for number, task in enumerate(tasks):
            status = NodeStatus.STARTED if task.error is None else NodeStatus.FAILED
            visit = self._visits[head_id].get(task.name, 0) + 1
            self._runs.append(self._run(task, number, visit, status, input_id=head_id, branch=branch))

    def _run(
        self,
        task: Any,
        number: int,
        visit: int,
        status: NodeStatus,
        *,
        input_id: CheckpointId | None,
        branch: BranchId,
        last_id: CheckpointId | None = None,
        ended_at: datetime | None = None,
    ) -> NodeRun:
        began = None if input_id is None else self._by_id[input_id].created_at
        run = NodeRun(
            id=NodeRunId(f"{input_id or ''}:{number}:{task.id}"),
            execution_id=self._thread_id,
            branch_id=branch,
            node=task.name,
            visit=visit,
            status=status,
            input_id=input_id,
            first_id=last_id,
            last_id=last_id,
            checkpoint_count=0 if last_id is None else 1,
            started_at=_moment(began),
            ended_at=ended_at,
        )
        if task.error is None:
            return run
        failure = Failure(type=type(task.error).__name__, message=str(task.error), node=task.name, visit=visit)
        return evolve(run, failure=failure)


def _id(config: Any) -> CheckpointId:
    return CheckpointId(config["configurable"]["checkpoint_id"])


def _moment(text: str | None) -> datetime:
    found = datetime.fromisoformat(text) if text else datetime.fromtimestamp(0, UTC)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
