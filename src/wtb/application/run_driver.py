"""RunDriver: takes one run from superstep to superstep until it ends, pauses or fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from wtb.application.context import Context
from wtb.application.node_host import Equipment, NodeHost, Outcome, Work, file_commit
from wtb.application.node_runner import failure_of
from wtb.application.progress import Progress
from wtb.application.recorder import Ending, Position, SaveFiles, Step
from wtb.application.state_view import StateView
from wtb.domain.checkpoint import NodeRun, NodeStatus
from wtb.domain.errors import (
    Conflict,
    MergeConflict,
    StateNotSerialisable,
    StorageError,
    StorageUnavailable,
    WTBError,
)
from wtb.domain.execution import ExecutionStatus, Failure, Pause
from wtb.domain.files import FileCommitId
from wtb.domain.ids import NodeRunId
from wtb.domain.options import RunOptions
from wtb.domain.ports import Clock
from wtb.domain.routing import Finished, Route, Router
from wtb.domain.state import DELETE, StateDelta
from wtb.domain.workflow import WorkflowDefinition

_log = logging.getLogger(__name__)

_POLL_S = 0.02

_MOST_MEMBERS = 32
"""Threads of one parallel superstep."""


class StepLimitReached(WTBError):
    """The run took as many steps as it may."""


class RunTimeout(WTBError, TimeoutError):
    """The run took longer than it may."""


class RunDriver:
    """One run, in this process."""

    def __init__(
        self,
        equipment: Equipment,
        definition: WorkflowDefinition,
        options: RunOptions,
        progress: Progress,
        *,
        router: Router,
        host: NodeHost,
        open_runs: Sequence[NodeRun] = (),
        bases: Mapping[NodeRunId, FileCommitId | None],
    ) -> None:
        self._tools = equipment
        self._definition = definition
        self._nodes = {node.name: node for node in definition.nodes}
        self._router = router
        self._options = options
        self._progress = progress
        self._open_runs = {(run.node, run.visit): run for run in open_runs}
        self._host = host
        self._bases = bases
        self._interrupt: str | None = None
        self.began_here = bool(open_runs)
        """Whether a node that comes next was begun before: its breakpoint is behind it."""

    @property
    def at(self) -> Position:
        """The last position that is stored."""
        return self._progress.at

    @property
    def waits_for(self) -> bytes | None:
        """The result that somebody else is making and that this run needs next; driving on then takes it."""
        return self._host.waits_for

    def interrupt(self, request: str) -> None:
        """Ask for a pause or a stop at the next boundary, from a signal handler or another thread."""
        self._interrupt = request

    def drive(self, *, pass_breakpoint: bool) -> Position:
        """Go on until there is nothing more to do here; the first breakpoint may be one that was stopped at."""
        self._host.waits_for = None
        while self.at.execution.status is ExecutionStatus.RUNNING and self.waits_for is None:
            nodes = self._progress.next_nodes
            stop = self._reason_to_stop(nodes, pass_breakpoint=pass_breakpoint)
            pass_breakpoint = False
            if stop is not None:
                self._progress.end(stop)
            else:
                self._superstep(nodes)
        return self.at

    def _reason_to_stop(self, nodes: tuple[str, ...], *, pass_breakpoint: bool) -> Ending | None:
        if self._interrupt is not None:
            return _interrupted(self._interrupt)
        if not nodes:
            return Ending(status=ExecutionStatus.COMPLETED)
        broken = [name for name in nodes if name in self._options.break_before]
        if broken and not pass_breakpoint:
            return _paused(f"break before {', '.join(broken)}")
        if self._progress.steps >= self._options.max_steps:
            limit = self._options.max_steps
            return self._failed(StepLimitReached(f"the run took {limit} steps; raise max_steps if that is intended"))
        if self._host.deadline is not None and time.monotonic() >= self._host.deadline:
            return self._failed(RunTimeout(f"the run took longer than its {self._options.timeout_s:g} s"))
        return None

    def _failed(self, error: Exception) -> Ending:
        failure = Failure(type=type(error).__qualname__, message=str(error), input_checkpoint_id=self.at.head.id)
        return Ending(status=ExecutionStatus.FAILED, failure=failure)

    def _superstep(self, nodes: tuple[str, ...]) -> None:
        outcomes = self._run_all([self._node_run(name) for name in nodes])
        if self.waits_for is not None:
            return
        failed = [outcome for outcome in outcomes if outcome.failure is not None]
        paused = [outcome for outcome in outcomes if outcome.pause is not None]
        if failed:
            runs = tuple(_ended(outcome, self._tools.clock) for outcome in failed)
            self._progress.end(Ending(status=ExecutionStatus.FAILED, failure=failed[0].failure), runs)
            return
        if paused:
            runs = tuple(outcome.run for outcome in paused)
            self._progress.end(Ending(status=ExecutionStatus.PAUSED, pause=paused[0].pause), runs)
            return
        try:
            self._advance(outcomes)
            self._host.share(outcomes)
        except MergeConflict as error:
            self._fail(outcomes[0].run, error)
        except (Conflict, StorageError):
            raise  # nothing can be recorded, or must be: the run is somebody else's
        except Exception as error:  # noqa: BLE001  a condition or a reducer of the user's may raise anything
            self._fail(outcomes[0].run, error)

    def _fail(self, run: NodeRun, error: Exception) -> None:
        failure = failure_of(error, run.node, run.visit, self.at.head.id)
        failed = run.ended(NodeStatus.FAILED, self._tools.clock.now(), failure)
        self._progress.end(Ending(status=ExecutionStatus.FAILED, failure=failure), (failed,))

    def _node_run(self, name: str) -> NodeRun:
        """Return the node run to make: one that was begun from here before and not led on, or a new one."""
        visit = self._progress.visits.get(name, 0) + 1
        known = self._open_runs.pop((name, visit), None) if self._open_runs else None
        if known is not None:
            return known if known.pending is not None else known.tried_again(since=self._tools.clock.now())
        return self._tools.recorder.node_run(self.at, name, visit)

    def _run_all(self, runs: list[NodeRun]) -> list[Outcome]:
        """Run the members; several at the same time, each keeping its result as soon as it has one."""
        if len(runs) == 1:
            return [self._run(runs[0])]
        with ThreadPoolExecutor(min(len(runs), _MOST_MEMBERS), thread_name_prefix="wtb-member") as pool:
            return list(pool.map(self._run_member, runs))

    def _run_member(self, run: NodeRun) -> Outcome:
        if run.pending is not None:  # finished before a crash
            deleted = dict.fromkeys(run.pending.get("deleted", ()), DELETE)
            return Outcome(run=run, returned={**run.pending["returned"], **deleted}, data=run.pending.get("data", {}))
        outcome = self._run(run, member=run.node)
        if outcome.returned is None:
            return outcome
        files = outcome.files
        pending = {
            "returned": {key: value for key, value in outcome.returned.items() if value is not DELETE},
            "deleted": [key for key, value in outcome.returned.items() if value is DELETE],
            "file_commit": _side(outcome),
            "data": dict(outcome.data),
        }
        kept = outcome.run.finished(pending, self._tools.clock.now())
        try:
            self._tools.recorder.keep_pending(self.at, kept, None if files is None else files.save)
        except StateNotSerialisable as error:
            return Outcome(run=outcome.run, failure=failure_of(error, run.node, run.visit, run.input_id))
        except StorageUnavailable:
            if self._options.checkpoint_failure == "fatal" or files is not None:
                raise
            _log.warning("the result of node %r is in memory only until its siblings have finished", run.node)
        made = Outcome(run=kept, returned=outcome.returned, data=outcome.data)
        self._host.share([made])  # now: a sibling may wait for a run that waits for this one
        return made

    def _run(self, run: NodeRun, member: str = "") -> Outcome:
        node = self._nodes[run.node]

        def call(context: Context | None, timeout_s: float | None) -> Mapping[str, Any]:
            view = StateView(self._progress.state, node.name, node.reads)
            returned = self._tools.runner.call(node, view, context, timeout_s)
            if self._tools.warn_of_changes and (lost := view.changed_in_place()):
                _log.warning("node %s changed %s in place; only what it returns has an effect", node.name, lost)
            return returned

        return self._host.run(Work(node=node, run=run, state=self._progress.state, call=call, member=member))

    def _advance(self, outcomes: list[Outcome]) -> None:
        """Apply the results in order of definition, route, and record it all as one step."""
        returned = {outcome.run.node: outcome.returned or {} for outcome in outcomes}
        delta = StateDelta.of_updates(self._progress.state, returned, self._definition.reducers)
        state = self._progress.state.apply(delta)
        finished = [Finished(node, update) for node, update in returned.items()]
        route = self._router.after(finished, state, self._progress.joins)
        step = Step(
            runs=tuple([outcome.run for outcome in outcomes]),
            delta=delta,
            returned=returned,
            next_nodes=route.next_nodes,
            joins=route.joins,
            data=tuple([outcome.data for outcome in outcomes]),
            ending=self._ending(route, returned),
            files=self._files(outcomes),
        )
        self._progress.advance(step, state)

    def _files(self, outcomes: list[Outcome]) -> SaveFiles | None:
        """Return how to save what became of the files; None when nothing did."""
        if len(outcomes) == 1:
            taken = outcomes[0].taken
            return self._files_of(outcomes[0]) if taken is None else (lambda uow: taken)
        sides = {
            outcome.run.node: FileCommitId(outcome.run.pending["file_commit"])
            for outcome in outcomes
            if outcome.run.pending is not None and outcome.run.pending["file_commit"] is not None
        }
        base = file_commit(self.at.head.file_commit)
        return (lambda uow: self._tools.workspaces.merge(uow, base, sides)) if sides else None

    def _files_of(self, outcome: Outcome) -> SaveFiles | None:
        """Compare with the head, which may be a checkpoint in the middle of the node that holds other files."""
        head, files = file_commit(self.at.head.file_commit), outcome.files
        left = self._bases.get(outcome.run.id, head) if files is None else files.id
        if left == head:
            return None
        return (lambda uow: left) if files is None else files.save

    def _ending(self, route: Route, nodes: Collection[str]) -> Ending | None:
        """Return the end that this step makes, so that it is written with it."""
        if not route.next_nodes:
            return Ending(status=ExecutionStatus.COMPLETED, notes=route.notes)
        broken = [name for name in nodes if name in self._options.break_after]
        if broken:
            return _paused(f"break after {', '.join(broken)}")
        return None if self._interrupt is None else _interrupted(self._interrupt)


def _side(outcome: Outcome) -> str | None:
    """Return the files that a member of a superstep brings to the barrier."""
    return outcome.taken if outcome.files is None else str(outcome.files.id)


def _ended(outcome: Outcome, clock: Clock) -> NodeRun:
    return outcome.run.ended(NodeStatus.FAILED, clock.now(), outcome.failure)


def _interrupted(request: str) -> Ending:
    return Ending(status=ExecutionStatus.CANCELLED) if request == "stop" else _paused("interrupted")


def _paused(reason: str) -> Ending:
    return Ending(status=ExecutionStatus.PAUSED, pause=Pause(reason=reason))
