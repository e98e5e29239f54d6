"""ExecutionController: create, run, pause, resume and stop executions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from wtb.application.heartbeat import Heartbeat
from wtb.application.node_runner import NodeRunner
from wtb.application.recorder import Ending, Position, Recorder
from wtb.application.run_driver import Equipment, RunDriver
from wtb.application.workspaces import Workspaces
from wtb.domain.checkpoint import NodeRun, NodeStatus
from wtb.domain.errors import Conflict, InvalidInput, InvalidTransition
from wtb.domain.execution import Execution, ExecutionStatus, Pause
from wtb.domain.ids import ExecutionId
from wtb.domain.options import RunOptions
from wtb.domain.ports import Clock, Codec, Conditions, Ids, Owners, Storage
from wtb.domain.routing import Router
from wtb.domain.state import State, StateDelta
from wtb.domain.tools import CallKind, CallStatus, Tool, ToolCall
from wtb.domain.values import evolve
from wtb.domain.workflow import WorkflowDefinition

_RESUMABLE = (ExecutionStatus.PENDING, ExecutionStatus.PAUSED, ExecutionStatus.FAILED, ExecutionStatus.RUNNING)


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
        warn_of_changes: bool = False,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._conditions = conditions
        self._owners = owners
        self._recorder = Recorder(storage, clock, ids)
        self._heartbeat = Heartbeat(storage, clock)
        self._runner = NodeRunner(sleep=sleep)
        self._equipment = Equipment(
            storage=storage,
            clock=clock,
            codec=codec,
            recorder=self._recorder,
            runner=self._runner,
            workspaces=workspaces,
            find_tool=find_tool,
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
        metadata: Mapping[str, Any] | None = None,
        created_by: str | None = None,
    ) -> Execution:
        """Check the workflow and the options, and record a pending run with its input."""
        definition.validate(self._conditions)
        options.check(definition)
        at = self._recorder.create(
            definition.to_dict(),
            state,
            execution_id=execution_id,
            next_nodes=(definition.start.name,),
            options=options.to_dict(),
            source=source,
            metadata=metadata,
            created_by=created_by,
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
        options: Mapping[str, Any] | None = None,
    ) -> Execution:
        """Run an execution from where it stands until it ends or pauses.

        `update` overwrites keys of the state first, `answer` answers the question that it waits for, `rerun_node`
        undoes what can be undone of the node that was begun and begins it afresh, `options` replaces options such
        as breakpoints.
        """
        definition.validate(self._conditions)
        found = self._recorder.load(execution_id)
        chosen = RunOptions.from_dict({**found.execution.options, **(options or {})})
        chosen.check(definition)
        _check_nodes(found, definition)
        with self._alone(execution_id), self._heartbeat.keeping(at := self._claimed(found, chosen)):
            try:
                if rerun_node:
                    self._abandon_open_runs(at)
                driver = self._driver(at, definition, chosen, pause=found.execution.pause, update=update, answer=answer)
            except InvalidInput:
                self._recorder.end(at, _as_it_was(found.execution))
                raise
            with self._lock:
                self._drivers[execution_id] = driver
            try:
                return driver.drive(pass_breakpoint=_stopped_before(found) or driver.began_here).execution
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

    def _claimed(self, at: Position, options: RunOptions) -> Position:
        """Take the lease, unless somebody who is alive holds it."""
        execution = at.execution
        if execution.status not in _RESUMABLE:
            raise InvalidTransition(f"run {execution.id!r} is {execution.status}; fork it or roll it back to go on")
        lease, me = execution.lease, self._owners.me()
        gone = None if lease is None else self._owners.is_gone(lease.owner)
        execution.check_free(me, self._clock.now(), gone)
        # The options are kept, so that whoever resumes the run after this goes on in the same way.
        return self._recorder.begin(replace(at, execution=evolve(execution, options=options.to_dict())), me)

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
        open_runs, visits, state = self._where(at)
        if answer is not None:
            self._answer(at, open_runs, pause, answer)
        if update:
            self._check_nothing_called(open_runs)
            delta = StateDelta.setting(update)
            at, state = self._recorder.change_state(at, delta), state.apply(delta)
            open_runs = ()
        router = Router(definition, self._conditions)
        return RunDriver(
            self._equipment, definition, router, options, at, state=state, visits=visits, open_runs=open_runs
        )

    def _where(self, at: Position) -> tuple[tuple[NodeRun, ...], Mapping[str, int], State]:
        """Return what was begun at the head and has not led on, how often nodes were visited, and the state."""
        with self._storage.unit_of_work(readonly=True) as uow:
            state = uow.checkpoints.load(at.head.id).state
            history = uow.checkpoints.load_history(at.execution.id)
        open_runs = tuple(
            run
            for run in history.node_runs
            if run.input_id == at.head.id
            and run.branch_id == at.branch.id
            and run.last_id is None
            and run.status is not NodeStatus.SKIPPED
        )
        visits = {boundary.node: boundary.visit for boundary in history.boundaries() if boundary.last_id is not None}
        return open_runs, visits, state

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
        for run in self._where(at)[0]:
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
        if at.execution.status is not ExecutionStatus.RUNNING:
            raise InvalidTransition(f"run {execution_id!r} is {at.execution.status}; only a running one can {request}")
        with self._storage.unit_of_work() as uow:
            uow.executions.request(execution_id, request)
            uow.commit()

    def close(self) -> None:
        """Stop the threads of this process's runs."""
        self._heartbeat.close()
        self._runner.close()


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


def _stopped_before(at: Position) -> bool:
    return at.execution.pause is not None and at.execution.pause.reason.startswith("break before")


def _answered(call: ToolCall, answer: Any, now: datetime) -> ToolCall:
    """Return the call with what a person said of it: the answer itself, or whether it happened."""
    if call.kind is CallKind.ASK:
        allowed = call.arguments["schema"]
        if allowed is not None and answer not in allowed:
            choices = ", ".join(map(str, allowed))
            raise InvalidInput(f"{answer!r} does not answer {call.arguments['question']!r}; say one of {choices}")
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
    if call.kind is CallKind.ASK:
        return call.arguments.get("question") == question.get("question")
    return call.identity == question.get("identity")
