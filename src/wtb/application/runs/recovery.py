"""Recovery: finds where a run continues, however it was left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from wtb.application.runs.calls_in_flight import is_in_flight
from wtb.application.runs.consistency import check_calls, check_head
from wtb.application.runs.question_schema import check_answer
from wtb.application.runs.recorder import Recorder
from wtb.application.runs.steps import Position
from wtb.domain.checkpoint import Checkpoint, NodeRun, NodeStatus, Snapshot, Trigger
from wtb.domain.engine import Standpoint
from wtb.domain.errors import ExecutionNotFound, InvalidInput
from wtb.domain.event_catalogue import QuestionAnswered
from wtb.domain.events import Event
from wtb.domain.excerpts import excerpt
from wtb.domain.execution import Pause
from wtb.domain.figures import Figures
from wtb.domain.files import FileCommitId
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import NodeRunId
from wtb.domain.ports import Clock, Storage, UnitOfWork
from wtb.domain.secrets import Masker
from wtb.domain.state import State
from wtb.domain.tools import CallKind, CallStatus, ToolCall
from wtb.domain.values import evolve


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a run stands: its unfinished node runs, and the files that each of them began with."""

    open_runs: tuple[NodeRun, ...]
    bases: Mapping[NodeRunId, FileCommitId | None]
    visits: Mapping[str, int]
    steps: int
    state: State
    memory: Mapping[str, Any]
    calls_begun: int = 0
    """How many calls have begun in the unfinished step."""

    @classmethod
    def at_the_beginning(cls, begun: Standpoint) -> Standing:
        """Return the standing of a new run."""
        return cls(open_runs=(), bases={}, visits={}, steps=0, state=begun.state, memory=begun.memory)


class Recovery:
    """Finds out from the store how a run continues."""

    def __init__(
        self, storage: Storage, clock: Clock, recorder: Recorder, masker: Masker, *, user: str | None = None
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._recorder = recorder
        self._masker = masker
        self._user = user

    def standing(self, at: Position, *, has_memory: bool = False) -> Standing:
        """Return where the run stands. If the head is inside a node run that continued elsewhere, record a new one.

        `has_memory` says whether the engine keeps something beside the state; then that is read, too.
        """
        with self._storage.unit_of_work(readonly=True) as uow:
            head = uow.checkpoints.load(at.head.id)
            history = uow.checkpoints.load_history(at.execution.id)
            check_head(uow, at, history)
            for execution_id in {at.execution.id, at.head.execution_id}:  # a fork uses calls of its origin
                check_calls(uow, execution_id)
            memory = engine_memory(uow, head) if has_memory else {}
        open_runs = tuple(run for run in history.node_runs if is_open(run, at))
        if at.head.is_inside and not open_runs:
            open_runs = (self._inherited(at, history),)
        begun = {run.id for run in open_runs}
        numbers = self._numbers(open_runs) if open_runs else ()
        current = at.head.node_run_id if at.head.is_inside else None
        visits: dict[str, int] = {}
        for boundary in history.boundaries():
            if boundary.last_id is not None and boundary.node_run_id not in begun | {current}:
                visits[boundary.node] = max(boundary.visit, visits.get(boundary.node, 0))
        return Standing(
            open_runs=open_runs,
            bases={run.id: _commit(_start(history, at.head)) for run in open_runs},
            visits=visits,
            steps=sum(checkpoint.trigger is Trigger.NODE_END for checkpoint in history.lineage()),
            state=head.state,
            memory=memory,
            calls_begun=max(numbers, default=0),
        )

    def _numbers(self, open_runs: Sequence[NodeRun]) -> list[int]:
        """Return the numbers of the calls that have begun in the unfinished step; new calls count on from there."""
        with self._storage.unit_of_work(readonly=True) as uow:
            calls = [call for run in open_runs for call in uow.tool_calls.list_calls(run.execution_id, run.id)]
        return [call.started_number for call in calls if call.started_number is not None]

    def _inherited(self, at: Position, history: ExecutionHistory) -> NodeRun:
        """Record a node run that begins inside another: it reuses the calls up to there that are in effect."""
        known = next((run for run in history.node_runs if run.id == at.head.node_run_id), None)
        assert at.head.node is not None
        assert at.head.visit is not None
        run = self._recorder.node_run(at, at.head.node, at.head.visit)
        with self._storage.unit_of_work() as uow:
            uow.executions.check_lease(at.execution.id, at.token)
            made = _original(uow, history, at.head)
            found = [] if known is None else _settled_calls(uow, history, known)  # its node run may be deleted
            calls = [call for call in found if call.had_ended_at(made.step, made.created_at)]
            tool_errors = sum(call.figures.failures for call in calls)
            run = evolve(
                run,
                tool_count=sum(call.kind is not CallKind.CHECKPOINT for call in calls),
                figures=Figures(tool_errors=tool_errors) if tool_errors else None,
            )
            uow.node_runs.save(run)
            for call in calls:
                uow.tool_calls.save(evolve(call, execution_id=run.execution_id, node_run_id=run.id))
            uow.commit()
        return run

    def check_nothing_called(self, at: Position, open_runs: Sequence[NodeRun]) -> None:
        """Refuse to start nodes over with another state if that would repeat their external calls."""
        if at.head.is_inside:
            raise InvalidInput(
                f"run {at.execution.id!r} is in the middle of node {at.head.node!r}, which has begun with the state as "
                "it is; resume without update, or roll back to before the node"
            )
        for run in open_runs:
            with self._storage.unit_of_work(readonly=True) as uow:
                calls = uow.tool_calls.list_calls(run.execution_id, run.id)
            if tools := sorted({call.tool for call in calls if call.may_have_happened}):
                raise InvalidInput(
                    f"node {run.node!r} has called {', '.join(tools)} and would do so again with another state; resume "
                    "without update, or with rerun_node=True to undo what can be undone and begin the node afresh"
                )

    def check_answer(self, at: Position, pause: Pause | None, answer: Any) -> None:
        """Refuse an answer that the run does not wait for, or that does not fit its question. Write nothing."""
        with self._storage.unit_of_work(readonly=True) as uow:
            history = uow.checkpoints.load_history(at.execution.id)
            open_runs = [run for run in history.node_runs if is_open(run, at)]
            _, call = _asked(uow, at, open_runs, pause)
        _answered(call, answer, self._clock.now())

    def answer(self, at: Position, open_runs: Sequence[NodeRun], pause: Pause | None, answer: Any) -> None:
        """Record a person's answer to the question that the run asks."""
        with self._storage.unit_of_work() as uow:
            uow.executions.check_lease(at.execution.id, at.token)
            run, call = _asked(uow, at, open_runs, pause)
            now = self._clock.now()
            answered = _answered(call, answer, now)
            uow.tool_calls.save(evolve(answered, ended_step=at.head.step + 1))
            body = QuestionAnswered(
                node=run.node,
                visit=run.visit,
                tool=call.tool,
                call=call.identity,
                answer=excerpt(answer, self._masker),
                by=self._user,
            )
            uow.events.append(Event.of(body, stream=at.execution.id, at=now))
            uow.commit()


def engine_memory(uow: UnitOfWork, snapshot: Snapshot) -> Mapping[str, Any]:
    """Return the memory that the engine keeps beside the state: it is stored with the engine's last step."""
    while snapshot.memory is None and snapshot.checkpoint.parent_id is not None:
        snapshot = uow.checkpoints.load(snapshot.checkpoint.parent_id)
    return snapshot.memory or {}


def is_open(run: NodeRun, at: Position) -> bool:
    """Whether a node run is unfinished: it began at the head, or the head is its own last checkpoint inside."""
    if run.branch_id != at.branch.id or run.status is NodeStatus.SKIPPED:
        return False
    if at.head.is_inside and run.id == at.head.node_run_id:
        return run.last_id == at.head.id
    return run.input_id == at.head.id and run.last_id is None


def _original(uow: UnitOfWork, history: ExecutionHistory, head: Checkpoint) -> Checkpoint:
    """Return the original of a head inside a node; if another run made it, look in the history of that run."""
    found = history.original(head)
    if found.execution_id != history.execution_id:
        with suppress(ExecutionNotFound):
            return uow.checkpoints.load_history(found.execution_id).original(found)
    return found


def _settled_calls(uow: UnitOfWork, history: ExecutionHistory, run: NodeRun) -> list[ToolCall]:
    """Return the successful calls of a node run; an inherited one counts only while it counts in its origin."""
    origin = _origin(history, run)
    valid = None if origin is None else {call.identity for call in _settled_calls(uow, history, origin)}
    return [
        call
        for call in uow.tool_calls.list_calls(run.execution_id, run.id)
        if call.status is CallStatus.SUCCEEDED
        and (valid is None or call.identity in valid or not history.is_inherited(call))
    ]


def _origin(history: ExecutionHistory, run: NodeRun) -> NodeRun | None:
    """Return the node run inside which this one began; None if there is none, or it is gone."""
    began = next((checkpoint for checkpoint in history.checkpoints if checkpoint.id == run.input_id), None)
    if began is None or not began.is_inside:
        return None
    return next((known for known in history.node_runs if known.id == began.node_run_id), None)


def _start(history: ExecutionHistory, head: Checkpoint) -> Checkpoint:
    """Return the checkpoint at which the node around this checkpoint began; itself if it is not inside a node."""
    by_id = {checkpoint.id: checkpoint for checkpoint in history.checkpoints}
    while head.is_inside and head.parent_id is not None:
        head = by_id[head.parent_id]
    return head


def _commit(checkpoint: Checkpoint) -> FileCommitId | None:
    return None if checkpoint.file_commit is None else FileCommitId(checkpoint.file_commit)


def _asked(
    uow: UnitOfWork, at: Position, open_runs: Sequence[NodeRun], pause: Pause | None
) -> tuple[NodeRun, ToolCall]:
    """Return the call that a person is asked about, with its node run.

    If a process was killed while it took an answer, the question is gone, but the call that asked is there.
    """
    wanted = None if pause is None or pause.question is None else pause.question.get("identity")
    asked = [
        (run, call)
        for run in open_runs
        for call in uow.tool_calls.list_calls(run.execution_id, run.id)
        if _waits(call) and wanted in (None, call.identity) and (pause is None or run.node == pause.node)
    ]
    if not asked or (pause is not None and pause.question is None):
        raise InvalidInput(
            f"run {at.execution.id!r} does not wait for an answer; resume it without one, and it asks if it has to"
        )
    return min(asked, key=lambda pair: pair[1].start_order)


def _waits(call: ToolCall) -> bool:
    return call.status is CallStatus.INTENDED and (call.kind is CallKind.ASK or call.may_have_happened)


def _answered(call: ToolCall, answer: Any, now: datetime) -> ToolCall:
    """Return the call with a person's answer: to its question, or about whether it happened."""
    if call.kind is CallKind.ASK:
        check_answer(call.arguments["question"], call.arguments["schema"], answer)
        return call.succeeded(answer, now)
    if answer == "again" and is_in_flight(call):
        raise InvalidInput(
            f"{call.tool} is still being called by an earlier attempt in this process, and is not called "
            "again meanwhile; repeat your answer once that call has ended, or answer done"
        )
    match answer:
        case "again":
            return call.failed("never reported back; somebody said to call it again", now)
        case "done":
            return call.succeeded(None, now)
        case {"done": result}:
            return call.succeeded(result, now)
    raise InvalidInput(f'{answer!r} does not answer the question; answer again, done, or {{"done": RESULT}}')
