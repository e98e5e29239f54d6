"""ExecutionController: creates, runs, pauses, resumes and stops runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wtb.application.dependencies.workflow_code import differences, with_code
from wtb.application.node_cache import Sharing
from wtb.application.runs.callers_loop import off_blocked_loop
from wtb.application.runs.engine_context import RUNS_HERE
from wtb.application.runs.function_caller import FunctionCaller
from wtb.application.runs.head_editor import HeadEditor
from wtb.application.runs.heartbeat import Heartbeat
from wtb.application.runs.leases import (
    Leases,
    alone,
    check_not_rolling_back,
    check_not_set_back,
    is_holder_gone,
    time_for,
)
from wtb.application.runs.node_runner import Equipment, NodeRunner, Watch
from wtb.application.runs.progress import RunProgress
from wtb.application.runs.recorder import Recorder
from wtb.application.runs.recovery import Recovery, Standing
from wtb.application.runs.reversals import Reversals
from wtb.application.runs.run_creator import RunCreator
from wtb.application.runs.run_driver import RunDriver
from wtb.application.runs.run_limits import RunLimits
from wtb.application.runs.run_request import RunRequest, write_request
from wtb.application.runs.steps import INTERRUPTED, Ending, Position
from wtb.application.runs.unfinished import unfinished
from wtb.application.runs.unfinished_calls import UnfinishedCalls
from wtb.application.workspaces import Workspaces
from wtb.domain.anchor import AnchoredCall
from wtb.domain.engine import Engine, ShowsFinished
from wtb.domain.errors import Conflict, ExecutionNotFound, InvalidInput, InvalidTransition
from wtb.domain.execution import Execution, ExecutionStatus, Pause, PauseKind
from wtb.domain.figures import Price
from wtb.domain.ids import ExecutionId
from wtb.domain.options import Keep, OnFailure, RunOptions
from wtb.domain.ports import NO_TELEMETRY, CallAnchor, Clock, Codec, Conditions, Owners, Storage, Telemetry
from wtb.domain.secrets import Masker, masked_logger
from wtb.domain.state import StateDelta
from wtb.domain.tools import Tool
from wtb.domain.values import evolve
from wtb.domain.workflow import BASELINE, WorkflowDefinition

_log = masked_logger(__name__)

_RESUMABLE = (ExecutionStatus.PENDING, ExecutionStatus.PAUSED, ExecutionStatus.FAILED, ExecutionStatus.RUNNING)


_THINNED: Mapping[Keep, tuple[ExecutionStatus, ...]] = {
    Keep.EVERY_NODE: (),
    Keep.ON_SUCCESS: (ExecutionStatus.FAILED, ExecutionStatus.CANCELLED),
    Keep.ON_ERROR: (ExecutionStatus.COMPLETED,),
}
"""The ends after which only the first and the last checkpoint are kept."""


class WaitsForResult(Exception):
    """The run needs a result that another run is making. Run it again once that result exists."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key.hex())
        self.key = key


@dataclass(frozen=True, slots=True, kw_only=True)
class _NewRun:
    """A run that was just recorded, with everything that driving it needs."""

    at: Position
    definition: WorkflowDefinition
    """The workflow with its variants in place."""
    engine: Engine
    standing: Standing


class ExecutionController:
    """Runs executions in this process, each under a lease that a heartbeat keeps alive."""

    def __init__(
        self,
        *,
        storage: Storage,
        anchor: CallAnchor,
        clock: Clock,
        codec: Codec,
        conditions: Conditions,
        engine_of: Callable[[WorkflowDefinition], Engine],
        caller: FunctionCaller,
        owners: Owners,
        workspaces: Workspaces,
        creator: RunCreator,
        recorder: Recorder,
        head_editor: HeadEditor,
        reversals: Reversals,
        heartbeat: Heartbeat,
        find_tool: Callable[[str], Tool],
        masker: Masker,
        limits: RunLimits,
        price: Price = lambda model, input_tokens, output_tokens: None,
        telemetry: Telemetry = NO_TELEMETRY,
        user: str | None = None,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._conditions = conditions
        self._engine_of = engine_of
        self._owners = owners
        self._creator = creator
        self._recorder = recorder
        self._head_editor = head_editor
        self._recovery = Recovery(storage, clock, recorder, masker, user=user)
        self._user = user
        self._unfinished_calls = UnfinishedCalls(storage, anchor, recorder, self._recovery, reversals)
        self._leases = Leases(storage, clock, owners, user=user)
        self._heartbeat = heartbeat
        self._caller = caller
        self._equipment = Equipment(
            storage=storage,
            anchor=anchor,
            clock=clock,
            codec=codec,
            recorder=self._recorder,
            caller=self._caller,
            workspaces=workspaces,
            find_tool=find_tool,
            masker=masker,
            price=price,
            limits=limits,
            telemetry=telemetry,
        )
        self._drivers: dict[ExecutionId, RunDriver] = {}
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
        facts: dict[str, Any] = {"source": source, "metadata": metadata, "created_by": created_by}
        new = self._created(definition, state, options, execution_id=execution_id, workspace=workspace, **facts)
        return new.at.execution

    def start(
        self,
        definition: WorkflowDefinition,
        state: Mapping[str, Any],
        options: RunOptions,
        *,
        watch: Watch | None = None,
        sharing: Sharing | None = None,
        limits: RunLimits | None = None,
        request: RunRequest | None = None,
        **facts: Any,
    ) -> Execution:
        """Create a run and run it until it ends or pauses; `facts` are the other arguments of `create`.

        `request` may ask for a pause at any time, even before the run begins. `limits` are those of its batch.
        It does the same as `create` and `run`, but in one transaction, and does not read back the position that it has
        just written.
        """
        with ExitStack() as held:
            # Before others can see the run: another thread may resume any run that has no lease or one of this process.
            mine: dict[str, Any] = {
                "owner": self._leases.me(),
                "before_commit": lambda at: held.enter_context(alone(at)),
            }
            new = self._created(definition, state, options, **mine, **facts)
            held.enter_context(self._heartbeat.keeping(new.at))
            lost = self._unfinished_calls.list_lost(new.at.execution.id)
            driver = self._driver(
                new.definition,
                options,
                new.at,
                new.standing,
                lost,
                engine=new.engine,
                watch=watch,
                sharing=sharing,
                limits=limits,
                request=request,
            )
            return self._driven(driver, options, pass_breakpoint=False)

    def _created(
        self,
        definition: WorkflowDefinition,
        state: Mapping[str, Any],
        options: RunOptions,
        *,
        workspace: Path | None = None,
        **facts: Any,
    ) -> _NewRun:
        """Check the workflow, start its engine and record the run, for both `create` and `start`."""
        definition.validate(self._conditions)
        options.check(definition)
        files = None if workspace is None else self._equipment.workspaces.prepare(_folder(workspace), None)
        with_variants = definition.with_variants(options.variants)
        engine = self._engine_of(with_variants)
        begun = engine.begin(state)
        at = self._creator.create(
            with_code(definition),
            begun.state,
            next_nodes=begun.next_nodes,
            joins=begun.joins,
            memory=begun.memory or None,
            options=options.to_dict(),
            files=None if files is None else files.save,
            **facts,
        )
        standing = Standing.at_the_beginning(begun)
        return _NewRun(at=at, definition=with_variants, engine=engine, standing=standing)

    def run(
        self,
        execution_id: ExecutionId,
        definition: WorkflowDefinition,
        *,
        update: Mapping[str, Any] | None = None,
        answer: Any = None,
        rerun_node: bool = False,
        strict: bool = False,
        take_over: bool = False,
        version: int | None = None,
        options: Mapping[str, Any] | None = None,
        watch: Watch | None = None,
        sharing: Sharing | None = None,
        limits: RunLimits | None = None,
        request: RunRequest | None = None,
    ) -> Execution:
        """Run an execution from its current position until it ends or pauses.

        `update` overwrites keys of the state first. `answer` answers the question that the run asks. `rerun_node`
        undoes what can be undone of the unfinished node and starts it over. `options` replaces options such as
        breakpoints. `watch` sees every attempt of a node. `request` may ask for a pause at any time. If the workflow
        has changed since the run began, a warning says so, or the run is refused with `strict`. `take_over` takes a
        lease that a wrong clock has put far into the future. With `version`, the run is refused if it has another one.
        """
        definition.validate(self._conditions)
        found = self._recorder.load(execution_id)
        found.execution.check_version(version)
        chosen = RunOptions.from_dict({**found.execution.options, **(options or {})})
        chosen.check(definition)
        _check_nodes(found, definition)
        changed = self._changes(found, definition)
        definition = definition.with_variants(chosen.variants)
        if changed and strict:
            raise InvalidInput(
                f"the workflow of run {execution_id!r} has changed since the run began: {'; '.join(changed)}. Resume "
                "it without strict to continue with the workflow as it is now"
            )
        if changed:
            _log.warning(
                "run %s continues with a workflow that has changed since it began: %s", execution_id, "; ".join(changed)
            )
        self._check_claimable(found.execution, take_over=take_over)
        engine = self._engine_of(definition)
        change = engine.accepted(update or {})
        self._check_arguments(found, change, answer, rerun_node=rerun_node)
        with alone(found), self._heartbeat.keeping(at := self._claimed(found, chosen, changed, take_over)):
            try:
                lost = self._unfinished_calls.list_lost(execution_id)
                if rerun_node:
                    lost = self._unfinished_calls.undo(at, lost)
                at, standing = self._changed(at, change, found.execution.pause, answer, has_memory=engine.has_memory)
                driver = self._driver(
                    definition,
                    chosen,
                    at,
                    standing,
                    lost,
                    engine=engine,
                    watch=watch,
                    sharing=sharing,
                    limits=limits,
                    request=request,
                )
            except Exception:
                self._recorder.end(at, _as_it_was(found.execution))
                raise
            return self._driven(driver, chosen, pass_breakpoint=_stopped_before(found) or driver.began_here)

    def state_with_finished(self, execution_id: ExecutionId, definition: WorkflowDefinition) -> dict[str, Any] | None:
        """Return the state with the writes of finished nodes whose siblings still wait; None if there are none."""
        engine = self._engine_of(definition)
        if not isinstance(engine, ShowsFinished):
            return None
        at = self._recorder.load(execution_id)
        with self._storage.unit_of_work(readonly=True) as uow:
            found = unfinished(uow, at, has_memory=engine.has_memory)
        try:
            return None if found is None else engine.with_finished(*found)
        except Exception:  # noqa: BLE001  if a user's reducer raises, the run reports it when it continues
            return None

    def _driven(self, driver: RunDriver, options: RunOptions, *, pass_breakpoint: bool) -> Execution:
        """Drive a run until it ends, pauses or waits for another one. Meanwhile `request` can interrupt it."""
        execution_id = driver.at.execution.id
        with self._lock:
            self._drivers[execution_id] = driver
        RUNS_HERE.add(driver)
        try:
            with off_blocked_loop():
                ended = driver.drive(pass_breakpoint=pass_breakpoint)
            if driver.waits_for is not None:
                raise WaitsForResult(driver.waits_for)
            if ended.execution.status in _THINNED[options.checkpoints]:
                self._head_editor.thin(ended)
            return ended.execution
        except (Conflict, ExecutionNotFound):
            check_not_set_back(self._storage, driver.at)
            raise
        finally:
            RUNS_HERE.discard(driver)
            with self._lock:
                del self._drivers[execution_id]

    def _changes(self, at: Position, definition: WorkflowDefinition) -> list[str]:
        """Return the differences between the current workflow and the one that the run began with."""
        if at.execution.is_thread:
            raise InvalidInput(
                f"{at.execution.id!r} is a thread that LangGraph runs itself; go on with graph.invoke and its "
                "thread_id, or begin a run with bench.run(graph, …)"
            )
        with self._storage.unit_of_work(readonly=True) as uow:
            began_with = uow.workflows.get(at.execution.workflow_id)
        return list(differences(began_with, with_code(definition)))

    def _claimed(self, at: Position, options: RunOptions, changed: Sequence[str], take_over: bool) -> Position:
        """Take the lease, unless a living process holds it."""
        execution = at.execution
        abandoned = self._check_claimable(execution, take_over=take_over)
        # Store the options, so that the next process to resume the run uses the same ones.
        replaced = _replaced(execution.options.get("variants", {}), options.variants)
        at = replace(at, execution=evolve(execution, options=options.to_dict()))
        return self._recorder.begin(at, self._leases.me(), abandoned=abandoned, changed=changed, replaced=replaced)

    def _check_claimable(self, execution: Execution, *, take_over: bool) -> str | None:
        """Refuse a run that has ended or that another process runs; return who left it, as `check_free` does."""
        check_not_rolling_back(execution)
        if execution.status not in _RESUMABLE:
            raise InvalidTransition(f"run {execution.id!r} is {execution.status}; fork it or roll it back to continue")
        return self._leases.check_free(execution, take_over=take_over)

    def _check_arguments(self, at: Position, update: Mapping[str, Any], answer: Any, *, rerun_node: bool) -> None:
        """Refuse arguments that do not fit the run before it is claimed, so that a refusal leaves no trace."""
        if answer is None:
            return
        if update or rerun_node:
            raise InvalidInput(
                f"{'an update of the state' if update else 'rerun_node'} starts the node over, and the node then asks "
                f"again: resume with the {'update' if update else 'rerun'} first, and then with the answer"
            )
        self._recovery.check_answer(at, at.execution.pause, answer)

    def _changed(
        self,
        at: Position,
        update: Mapping[str, Any],
        pause: Pause | None,
        answer: Any,
        *,
        has_memory: bool,
    ) -> tuple[Position, Standing]:
        """Record an answer or a change of the state, and return the position and the standing after it."""
        standing = self._recovery.standing(at, has_memory=has_memory)
        if answer is not None:
            self._recovery.answer(at, standing.open_runs, pause, answer)
        if update:
            self._recovery.check_nothing_called(at, standing.open_runs)
            delta = StateDelta.setting(update)
            at = self._head_editor.change_state(at, delta)
            standing = replace(standing, state=standing.state.apply(delta), open_runs=())
        return at, standing

    def _driver(
        self,
        definition: WorkflowDefinition,
        options: RunOptions,
        at: Position,
        standing: Standing,
        lost: Sequence[AnchoredCall],
        *,
        engine: Engine,
        watch: Watch | None = None,
        sharing: Sharing | None = None,
        limits: RunLimits | None = None,
        request: RunRequest | None = None,
    ) -> RunDriver:
        progress = RunProgress(
            self._recorder,
            at,
            state=standing.state,
            memory=standing.memory,
            visits=standing.visits,
            steps=standing.steps,
            fatal=options.checkpoint_failure is OnFailure.FATAL,
            telemetry=self._equipment.telemetry,
        )
        bases = standing.bases
        node_runner = NodeRunner(
            self._equipment,
            definition,
            options,
            progress,
            bases=bases,
            watch=watch,
            sharing=sharing,
            limits=limits,
            calls_begun=standing.calls_begun,
            lost=lost,
        )
        return RunDriver(
            self._equipment,
            definition,
            options,
            progress,
            engine=engine,
            node_runner=node_runner,
            open_runs=standing.open_runs,
            bases=bases,
            lost=lost,
            request=request,
        )

    def request(self, execution_id: ExecutionId, request: str, *, by: str | None = None) -> None:
        """Ask the process that runs the execution to pause or stop after its step; if there is none, do it now.

        `by` is who asks, if not the user of this process.
        """
        by = by or self._user
        with self._lock:
            driver = self._drivers.get(execution_id)
        if driver is not None:
            driver.interrupt(request, by)
            return
        at = self._recorder.load(execution_id)
        if self._nobody_runs(at.execution, request):
            self._recorder.end(at, Ending.requested(request, by))
            return
        if at.execution.status is not ExecutionStatus.RUNNING:
            raise InvalidTransition(f"run {execution_id!r} is {at.execution.status}; there is nothing to {request}")
        with self._storage.unit_of_work() as uow:
            uow.executions.request(execution_id, write_request(request, by))
            uow.commit()

    def _nobody_runs(self, execution: Execution, request: str) -> bool:
        """Whether no process can be asked: it is gone, or the run waits and must stop for good."""
        if execution.status is ExecutionStatus.RUNNING:
            gone = is_holder_gone(execution, self._owners)
            return execution.neglect(time_for(execution, self._storage, self._clock), gone) is not None
        return request == "stop" and execution.status in _RESUMABLE

    def release(self, execution_id: ExecutionId) -> None:
        """Release a waiting run, so that another process can continue it."""
        with suppress(ExecutionNotFound):
            execution = self._recorder.load(execution_id).execution
            if execution.lease is not None and execution.lease.owner == self._owners.me():
                self._leases.released(execution)

    def is_free(self, execution_id: ExecutionId) -> bool:
        """Whether no living process runs the execution."""
        try:
            self._leases.check_free(self._recorder.load(execution_id).execution)
        except Conflict:
            return False
        return True

    def close(self) -> None:
        """Stop the threads of this process's runs."""
        self._caller.close()


def _replaced(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the nodes whose variant changes, each with its old and its new variant."""
    pairs = {node: (before.get(node, BASELINE), now.get(node, BASELINE)) for node in {**before, **now}}
    return {node: (old, new) for node, (old, new) in pairs.items() if old != new}


def _folder(workspace: Path) -> Path:
    if not workspace.is_dir():
        raise InvalidInput(
            f"workspace={str(workspace)!r} is not a folder; pass one with the files that the run should begin with"
        )
    return workspace


def _check_nodes(at: Position, definition: WorkflowDefinition) -> None:
    """Refuse a workflow without a node that comes next: the run would otherwise end silently."""
    names = [node.name for node in definition.nodes]
    missing = [name for name in at.head.next_nodes if name not in names]
    if missing:
        raise InvalidInput(
            f"run {at.execution.id!r} continues with {', '.join(missing)}, which the workflow no longer has "
            f"(it has {', '.join(names)}); resume the run with the workflow that it began with"
        )


def _as_it_was(execution: Execution) -> Ending:
    """Return the ending that restores a run after somebody tried to resume it with a wrong argument."""
    if execution.failure is not None:
        return Ending(status=ExecutionStatus.FAILED, failure=execution.failure)
    return Ending(status=ExecutionStatus.PAUSED, pause=execution.pause or INTERRUPTED)


def _stopped_before(at: Position) -> bool:
    return at.execution.pause is not None and at.execution.pause.kind is PauseKind.BREAK_BEFORE
