"""ExecutionController: create, run, pause, resume and stop executions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from wtb.application.answers import check_answer
from wtb.application.code import differences, with_code
from wtb.application.heartbeat import Heartbeat
from wtb.application.node_runner import NodeRunner
from wtb.application.progress import Progress
from wtb.application.recorder import Ending, Position, Recorder
from wtb.application.run_driver import Equipment, RunDriver, Watch
from wtb.application.workspaces import Workspaces
from wtb.domain.checkpoint import NodeRun, NodeStatus, Trigger
from wtb.domain.errors import Conflict, InvalidInput, InvalidTransition
from wtb.domain.execution import Execution, ExecutionStatus, Pause
from wtb.domain.files import FileCommitId
from wtb.domain.ids import CheckpointId, ExecutionId, NodeRunId
from wtb.domain.options import Keep, OnFailure, RunOptions
from wtb.domain.ports import Clock, Codec, Conditions, Ids, Owners, Storage
from wtb.domain.routing import Router
from wtb.domain.secrets import Masker
from wtb.domain.state import State, StateDelta
from wtb.domain.tools import CallKind, CallStatus, Tool, ToolCall
from wtb.domain.values import evolve
from wtb.domain.workflow import WorkflowDefinition

_log = logging.getLogger(__name__)

_RESUMABLE = (ExecutionStatus.PENDING, ExecutionStatus.PAUSED, ExecutionStatus.FAILED, ExecutionStatus.RUNNING)


_THINNED: Mapping[Keep, tuple[ExecutionStatus, ...]] = {
    Keep.EVERY_NODE: (),
    Keep.ON_SUCCESS: (ExecutionStatus.FAILED, ExecutionStatus.CANCELLED),
    Keep.ON_ERROR: (ExecutionStatus.COMPLETED,),
}
"""After which ends only the first and the last checkpoint are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Where:
    """Where a run goes on: what was begun at the head and has not led on, with the files that each began with."""

    open_runs: tuple[NodeRun, ...]
    bases: Mapping[NodeRunId, FileCommitId | None]
    visits: Mapping[str, int]
    steps: int
    state: State


class ExecutionController:
    """Runs executions in this process; every one under a lease that a heartbeat keeps alive."""

    def __init__(
        self,
        *,
        storage: Storage,
        clock: Clock,
        ids: Ids,
        codec: Codec,
        conditions: Conditions,
        owners: Owners,
        workspaces: Workspaces,
        find_tool: Callable[[str], Tool],
        sleep: Callable[[float], None],
        masker: Masker | None = None,
        warn_of_changes: bool = False,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._conditions = conditions
        self._owners = owners
        masker = masker or Masker()
        self._recorder = Recorder(storage, clock, ids, masker)
        self._heartbeat = Heartbeat(storage)
        self._runner = NodeRunner(sleep=sleep)
        self._equipment = Equipment(
            storage=storage,
            clock=clock,
            codec=codec,
            recorder=self._recorder,
            runner=self._runner,
            workspaces=workspaces,
            find_tool=find_tool,
            masker=masker,
            warn_of_changes=warn_of_changes,
        )
        self._drivers: dict[ExecutionId, RunDriver] = {}
        self._running: set[ExecutionId] = set()
        self._lock = threading.Lock()

    def create(
        self,
        definition: WorkflowDefinition,
        state: Mapping[str, Any],
        options: RunOptions,
        *,
        execution_id: str | None = None,
        source: str | None = None,
        workspace: Path | None = None,
        metadata: Mapping[str, Any] | None = None,
        created_by: str | None = None,
    ) -> Execution:
        """Check the workflow and the options, and record a pending run with its input.

        `workspace` is a folder whose files the run begins with; it is copied, never written to.
        """
        definition.validate(self._conditions)
        options.check(definition)
        files = None if workspace is None else self._equipment.workspaces.prepare(_folder(workspace), None)
        at = self._recorder.create(
            with_code(definition),
            state,
            execution_id=execution_id,
            next_nodes=(definition.start.name,),
            options=options.to_dict(),
            source=source,
            metadata=metadata,
            created_by=created_by,
            files=None if files is None else files.save,
        )
        return at.execution

    def run(
        self,
        execution_id: ExecutionId,
        definition: WorkflowDefinition,
        *,
        update: Mapping[str, Any] | None = None,
        answer: Any = None,
        rerun_node: bool = False,
        strict: bool = False,
        options: Mapping[str, Any] | None = None,
        watch: Watch | None = None,
    ) -> Execution:
        """Run an execution from where it stands until it ends or pauses.

        `update` overwrites keys of the state first, `answer` answers the question that it waits for, `rerun_node`
        undoes what can be undone of the node that was begun and begins it afresh, `options` replaces options such
        as breakpoints, `watch` looks on. A workflow that changed since the run began is warned of, or refused when
        `strict`.
        """
        definition.validate(self._conditions)
        found = self._recorder.load(execution_id)
        chosen = RunOptions.from_dict({**found.execution.options, **(options or {})})
        chosen.check(definition)
        _check_nodes(found, definition)
        changed = self._changes(found, definition)
        if changed and strict:
            raise InvalidInput(
                f"run {execution_id!r} began with another workflow: {'; '.join(changed)}. Resume it without strict to "
                "go on with the workflow as it is now"
            )
        with self._alone(execution_id), self._heartbeat.keeping(at := self._claimed(found, chosen, changed)):
            try:
                if rerun_node:
                    self._abandon_open_runs(at)
                driver = self._driver(at, definition, chosen, pause=found.execution.pause, update=update, answer=answer)
            except InvalidInput:
                self._recorder.end(at, _as_it_was(found.execution))
                raise
            driver.watch = watch
            with self._lock:
                self._drivers[execution_id] = driver
            try:
                ended = driver.drive(pass_breakpoint=_stopped_before(found) or driver.began_here)
                if ended.execution.status in _THINNED[chosen.checkpoints]:
                    self._recorder.thin(ended)
                return ended.execution
            finally:
                with self._lock:
                    del self._drivers[execution_id]

    @contextmanager
    def _alone(self, execution_id: ExecutionId) -> Iterator[None]:
        """Refuse a run that another thread is running: the lease cannot tell the threads of a process apart."""
        with self._lock:
            if execution_id in self._running:
                raise Conflict(f"run {execution_id!r} is being run by another thread of this process; pause it first")
            self._running.add(execution_id)
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(execution_id)

    def _changes(self, at: Position, definition: WorkflowDefinition) -> list[str]:
        """Return what is not as it was when the run began, and warn of it."""
        with self._storage.unit_of_work(readonly=True) as uow:
            began_with = uow.workflows.get(at.execution.workflow_id)
        changed = list(differences(began_with, with_code(definition)))
        if changed:
            _log.warning("run %s goes on with a workflow that has changed: %s", at.execution.id, "; ".join(changed))
        return changed

    def _claimed(self, at: Position, options: RunOptions, changed: Sequence[str]) -> Position:
        """Take the lease, unless somebody who is alive holds it."""
        execution = at.execution
        if execution.status not in _RESUMABLE:
            raise InvalidTransition(f"run {execution.id!r} is {execution.status}; fork it or roll it back to go on")
        lease, me = execution.lease, self._owners.me()
        gone = None if lease is None else self._owners.is_gone(lease.owner)
        with self._storage.unit_of_work(readonly=True) as uow:
            execution.check_free(me, uow.now(), gone)
        abandoned = None
        if lease is not None and lease.owner != me:
            abandoned = f"{lease.owner} {'is gone' if gone else f'was last heard of before {lease.expires_at}'}"
        # The options are kept, so that whoever resumes the run after this goes on in the same way.
        at = replace(at, execution=evolve(execution, options=options.to_dict()))
        return self._recorder.begin(at, me, abandoned=abandoned, changed=changed)

    def _driver(
        self,
        at: Position,
        definition: WorkflowDefinition,
        options: RunOptions,
        *,
        pause: Pause | None,
        update: Mapping[str, Any] | None,
        answer: Any,
    ) -> RunDriver:
        found = self._where(at)
        open_runs, state = found.open_runs, found.state
        if answer is not None:
            self._answer(at, open_runs, pause, answer)
        if update:
            self._check_nothing_called(open_runs)
            delta = StateDelta.setting(update)
            at, state = self._recorder.change_state(at, delta), state.apply(delta)
            open_runs = ()
        progress = Progress(
            self._recorder,
            at,
            state=state,
            visits=found.visits,
            steps=found.steps,
            fatal=options.checkpoint_failure is OnFailure.FATAL,
        )
        router = Router(definition, self._conditions)
        return RunDriver(self._equipment, definition, router, options, progress, open_runs=open_runs, bases=found.bases)

    def _where(self, at: Position) -> _Where:
        with self._storage.unit_of_work(readonly=True) as uow:
            state = uow.checkpoints.load(at.head.id).state
            history = uow.checkpoints.load_history(at.execution.id)
        commits = {checkpoint.id: checkpoint.file_commit for checkpoint in history.checkpoints}
        open_runs = tuple(run for run in history.node_runs if _is_open(run, at))
        begun = {run.id for run in open_runs}
        return _Where(
            open_runs=open_runs,
            visits={
                boundary.node: boundary.visit
                for boundary in history.boundaries()
                if boundary.last_id is not None and boundary.node_run_id not in begun
            },
            state=state,
            steps=sum(checkpoint.trigger is Trigger.NODE_END for checkpoint in history.lineage()),
            bases={run.id: _commit(commits, run) for run in open_runs},
        )

    def _check_nothing_called(self, open_runs: tuple[NodeRun, ...]) -> None:
        """Refuse to begin nodes anew with another state when that would repeat what they did to the world."""
        for run in open_runs:
            with self._storage.unit_of_work(readonly=True) as uow:
                calls = uow.tool_calls.list_calls(run.execution_id, run.id)
            if tools := sorted({call.tool for call in calls if call.may_have_happened}):
                raise InvalidInput(
                    f"node {run.node!r} has called {', '.join(tools)} and would do so again with another state; resume "
                    "without update, or with rerun_node=True to undo what can be undone and begin the node afresh"
                )

    def _abandon_open_runs(self, at: Position) -> None:
        """Reverse the external calls of nodes that were begun here, last first, and leave those node runs behind."""
        for run in self._where(at).open_runs:
            with self._storage.unit_of_work(readonly=True) as uow:
                calls = uow.tool_calls.list_calls(run.execution_id, run.id)
            for call in reversed(calls):
                self._reverse(at, call)
            self._recorder.abandon(at, run)

    def _reverse(self, at: Position, call: ToolCall) -> None:
        tool = self._find_tool(call.tool)
        if tool is None or tool.reverse is None or call.status is not CallStatus.SUCCEEDED:
            return
        tool.reverse(call)
        with self._storage.unit_of_work() as uow:
            uow.executions.check_lease(at.execution.id, at.token)
            uow.tool_calls.save(call.reversed(self._clock.now()))
            uow.commit()

    def _find_tool(self, name: str) -> Tool | None:
        with suppress(InvalidInput):
            return self._equipment.find_tool(name)
        return None  # a function that was never declared a tool: nothing is known of it

    def _answer(self, at: Position, open_runs: tuple[NodeRun, ...], pause: Pause | None, answer: Any) -> None:
        if pause is None or pause.question is None:
            raise InvalidInput(f"run {at.execution.id!r} waits for no answer")
        for run in open_runs:
            if run.node == pause.node:
                self._record_answer(at, run, pause.question, answer)

    def _record_answer(self, at: Position, run: NodeRun, question: Mapping[str, Any], answer: Any) -> None:
        with self._storage.unit_of_work() as uow:
            uow.executions.check_lease(at.execution.id, at.token)
            for call in uow.tool_calls.list_calls(run.execution_id, run.id):
                if call.status is CallStatus.INTENDED and _is_about(call, question):
                    uow.tool_calls.save(_answered(call, answer, self._clock.now()))
            uow.commit()

    def request(self, execution_id: ExecutionId, request: str) -> None:
        """Ask whoever runs the execution to pause or stop at the next boundary; one that nobody runs does so now."""
        with self._lock:
            driver = self._drivers.get(execution_id)
        if driver is not None:
            driver.interrupt(request)
            return
        at = self._recorder.load(execution_id)
        if self._nobody_runs(at.execution, request):
            self._recorder.end(at, _requested(request))
            return
        if at.execution.status is not ExecutionStatus.RUNNING:
            raise InvalidTransition(f"run {execution_id!r} is {at.execution.status}; there is nothing to {request}")
        with self._storage.unit_of_work() as uow:
            uow.executions.request(execution_id, request)
            uow.commit()

    def _nobody_runs(self, execution: Execution, request: str) -> bool:
        """Whether there is no process to ask: it is gone, or the run waits and is to go on no more."""
        if execution.status is ExecutionStatus.RUNNING:
            gone = None if execution.lease is None else self._owners.is_gone(execution.lease.owner)
            return execution.neglect(self._clock.now(), gone) is not None
        return request == "stop" and execution.status in _RESUMABLE

    def close(self) -> None:
        """Stop the threads of this process's runs."""
        self._heartbeat.close()
        self._runner.close()


def _is_open(run: NodeRun, at: Position) -> bool:
    """Whether a run was begun at the head, or before it and has only made checkpoints of its own since."""
    if run.branch_id != at.branch.id or run.status is NodeStatus.SKIPPED:
        return False
    if run.id == at.head.node_run_id:
        return at.head.trigger is not Trigger.NODE_END
    return run.input_id == at.head.id and run.last_id is None


def _commit(commits: Mapping[CheckpointId, str | None], run: NodeRun) -> FileCommitId | None:
    commit = None if run.input_id is None else commits[run.input_id]
    return None if commit is None else FileCommitId(commit)


def _folder(workspace: Path) -> Path:
    if not workspace.is_dir():
        raise InvalidInput(f"workspace={str(workspace)!r} is no folder; name one whose files the run begins with")
    return workspace


def _check_nodes(at: Position, definition: WorkflowDefinition) -> None:
    """Refuse to go on with a workflow that lost a node which comes next; nothing must end silently."""
    names = [node.name for node in definition.nodes]
    missing = [name for name in at.head.next_nodes if name not in names]
    if missing:
        raise InvalidInput(
            f"run {at.execution.id!r} goes on with {', '.join(missing)}, which the workflow no longer has "
            f"(it has {', '.join(names)}); resume it with the workflow that it was begun with"
        )


def _as_it_was(execution: Execution) -> Ending:
    """Return how to leave a run that could not go on because of what it was given: as it stood before."""
    if execution.failure is not None:
        return Ending(status=ExecutionStatus.FAILED, failure=execution.failure)
    return Ending(status=ExecutionStatus.PAUSED, pause=execution.pause or Pause(reason="not begun yet"))


def _requested(request: str) -> Ending:
    if request == "stop":
        return Ending(status=ExecutionStatus.CANCELLED)
    return Ending(status=ExecutionStatus.PAUSED, pause=Pause(reason="asked to pause"))


def _stopped_before(at: Position) -> bool:
    return at.execution.pause is not None and at.execution.pause.reason.startswith("break before")


def _answered(call: ToolCall, answer: Any, now: datetime) -> ToolCall:
    """Return the call with what a person said of it: the answer itself, or whether it happened."""
    if call.kind is CallKind.ASK:
        check_answer(call.arguments["question"], call.arguments["schema"], answer)
        return call.succeeded(answer, now)
    match answer:
        case "again":
            return call.failed("never reported back; somebody said to call it again", now)
        case "done":
            return call.succeeded(None, now)
        case {"done": result}:
            return call.succeeded(result, now)
    raise InvalidInput(f'{answer!r} does not answer it; say again, done, or {{"done": RESULT}}')


def _is_about(call: ToolCall, question: Mapping[str, Any]) -> bool:
    return call.identity == question.get("identity")
