"""RunDriver: takes one run from superstep to superstep until it ends, pauses or fails."""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from wtb.application.context import Context
from wtb.application.journal import Asked, CallJournal, InDoubt
from wtb.application.node_files import NodeFiles
from wtb.application.node_runner import NodeRunner, failure_of, may_retry
from wtb.application.recorder import Ending, Position, Recorder, SaveFiles
from wtb.application.state_view import StateView
from wtb.application.workspaces import PreparedCommit, Workspaces
from wtb.domain.checkpoint import NodeRun, NodeStatus
from wtb.domain.errors import Conflict, InvalidInput, LeaseLost, MergeConflict, StorageError, WTBError
from wtb.domain.events import EventType
from wtb.domain.execution import ExecutionStatus, Failure, Pause
from wtb.domain.files import FileCommitId
from wtb.domain.options import RunOptions
from wtb.domain.ports import Clock, Codec, Storage
from wtb.domain.routing import Finished, Route, Router
from wtb.domain.state import Reducer, State, StateDelta
from wtb.domain.tools import Tool
from wtb.domain.workflow import Node, WorkflowDefinition

_MOST_MEMBERS = 32
"""Threads of one parallel superstep."""


class StepLimitReached(WTBError):
    """The run took as many steps as it may."""


class RunTimeout(WTBError, TimeoutError):
    """The run took longer than it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one node: an update, a failure, or a reason to wait."""

    run: NodeRun
    returned: Mapping[str, Any] | None = None
    failure: Failure | None = None
    pause: Pause | None = None
    data: Mapping[str, Any] | None = None
    files: PreparedCommit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """What every driver of a process shares."""

    storage: Storage
    clock: Clock
    codec: Codec
    recorder: Recorder
    runner: NodeRunner
    workspaces: Workspaces
    find_tool: Callable[[str], Tool]
    warn_of_changes: bool = False


class RunDriver:
    """One run, in this process. State, counters and waiting joins are kept here between supersteps."""

    def __init__(
        self,
        equipment: Equipment,
        definition: WorkflowDefinition,
        router: Router,
        options: RunOptions,
        at: Position,
        *,
        state: State,
        visits: Mapping[str, int],
        open_runs: Sequence[NodeRun] = (),
    ) -> None:
        self._tools = equipment
        self._definition = definition
        self._nodes = {node.name: node for node in definition.nodes}
        self._router = router
        self._options = options
        self._visits = dict(visits)
        self._open_runs = {run.node: run for run in open_runs}
        self._deadline = None if options.timeout_s is None else time.monotonic() + options.timeout_s
        self._interrupt: str | None = None
        self.began_here = bool(open_runs)
        """Whether a node that comes next was begun before: its breakpoint is behind it."""
        self.at = at
        self.state = state

    def interrupt(self, request: str) -> None:
        """Ask for a pause or a stop at the next boundary, from a signal handler or another thread."""
        self._interrupt = request

    def drive(self, *, pass_breakpoint: bool) -> Position:
        """Go on until there is nothing more to do here; the first breakpoint may be one that was stopped at."""
        while self.at.execution.status is ExecutionStatus.RUNNING:
            nodes = self.at.head.next_nodes
            stop = self._reason_to_stop(nodes, pass_breakpoint=pass_breakpoint)
            pass_breakpoint = False
            self.at = self._tools.recorder.end(self.at, stop) if stop else self._superstep(nodes)
        return self.at

    def _reason_to_stop(self, nodes: tuple[str, ...], *, pass_breakpoint: bool) -> Ending | None:
        if self._interrupt is not None:
            return _interrupted(self._interrupt)
        if not nodes:
            return Ending(status=ExecutionStatus.COMPLETED)
        broken = [name for name in nodes if name in self._options.break_before]
        if broken and not pass_breakpoint:
            return _paused(f"break before {', '.join(broken)}")
        if self.at.head.step >= self._options.max_steps:
            limit = self._options.max_steps
            return self._failed(StepLimitReached(f"the run took {limit} steps; raise max_steps if that is intended"))
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return self._failed(RunTimeout(f"the run took longer than its {self._options.timeout_s:g} s"))
        return None

    def _failed(self, error: Exception) -> Ending:
        failure = Failure(type=type(error).__qualname__, message=str(error), input_checkpoint_id=self.at.head.id)
        return Ending(status=ExecutionStatus.FAILED, failure=failure)

    def _superstep(self, nodes: tuple[str, ...]) -> Position:
        outcomes = self._run_all([self._node_run(name) for name in nodes])
        failed = [outcome for outcome in outcomes if outcome.failure is not None]
        paused = [outcome for outcome in outcomes if outcome.pause is not None]
        if failed:
            runs = [_ended(outcome, self._tools.clock) for outcome in failed]
            ending = Ending(status=ExecutionStatus.FAILED, failure=failed[0].failure)
            return self._tools.recorder.end(self.at, ending, runs)
        if paused:
            ending = Ending(status=ExecutionStatus.PAUSED, pause=paused[0].pause)
            return self._tools.recorder.end(self.at, ending, [outcome.run for outcome in paused])
        try:
            return self._advance(outcomes)
        except MergeConflict as error:
            return self._fail(outcomes[0].run, error)
        except (Conflict, StorageError):
            raise  # nothing can be recorded, or must be: the run is somebody else's
        except Exception as error:  # noqa: BLE001  a condition or a reducer of the user's may raise anything
            return self._fail(outcomes[0].run, error)

    def _fail(self, run: NodeRun, error: Exception) -> Position:
        failure = failure_of(error, run.node, run.visit, self.at.head.id)
        ending = Ending(status=ExecutionStatus.FAILED, failure=failure)
        failed = run.ended(NodeStatus.FAILED, self._tools.clock.now(), failure)
        return self._tools.recorder.end(self.at, ending, [failed])

    def _node_run(self, name: str) -> NodeRun:
        """Return the node run to make: one that was begun from here before and not led on, or a new one."""
        known = self._open_runs.pop(name, None)
        if known is not None:
            return known if known.pending is not None else known.tried_again()
        return self._tools.recorder.node_run(self.at, name, self._visits.get(name, 0) + 1)

    def _run_all(self, runs: list[NodeRun]) -> list[Outcome]:
        """Run the members; several at the same time, each keeping its result as soon as it has one."""
        if len(runs) == 1:
            return [self._run(runs[0])]
        with ThreadPoolExecutor(min(len(runs), _MOST_MEMBERS), thread_name_prefix="wtb-member") as pool:
            return list(pool.map(self._run_member, runs))

    def _run_member(self, run: NodeRun) -> Outcome:
        if run.pending is not None:  # finished before a crash
            return Outcome(run=run, returned=run.pending["returned"], data=run.pending.get("data"))
        outcome = self._run(run, member=run.node)
        if outcome.returned is None:
            return outcome
        files = outcome.files
        pending = {
            "returned": outcome.returned,
            "file_commit": None if files is None else str(files.id),
            "data": outcome.data,
        }
        kept = outcome.run.finished(pending, self._tools.clock.now())
        self._tools.recorder.keep_pending(self.at, kept, None if files is None else files.save)
        return Outcome(run=kept, returned=outcome.returned, data=outcome.data)

    def _run(self, run: NodeRun, member: str = "") -> Outcome:
        """Run one node, again while its policy allows."""
        node = self._nodes[run.node]
        journal = CallJournal(self._tools.storage, self._tools.clock, self._tools.codec, run, token=self.at.token)
        if run.attempt > 1:
            journal.load()
        while True:
            first = journal.run.attempt == 1
            folder = member if first else f"{run.node}:{journal.run.attempt}"  # no node's name has a colon
            files = NodeFiles(self._tools.workspaces, self.at, folder)
            try:
                return self._attempt(node, journal, self._context(node, journal, files), files)
            except Asked as asked:
                question = asked.call.arguments
                return Outcome(run=journal.run, pause=Pause(reason="question", node=run.node, question=dict(question)))
            except InDoubt as doubt:
                return Outcome(run=journal.run, pause=_in_doubt(run, doubt))
            except LeaseLost:
                raise  # this process must stop writing; no retry can help
            except Exception as error:  # noqa: BLE001  whatever the node raised is recorded, with its traceback
                journal.revoke()
                if not may_retry(node.retry, journal.run.attempt, error):
                    failure = failure_of(error, run.node, run.visit, run.input_id)
                    return Outcome(run=journal.run, failure=failure)
                journal = self._retried(node, journal, error)

    def _attempt(self, node: Node, journal: CallJournal, context: Context, files: NodeFiles) -> Outcome:
        journal.new_attempt()
        view = StateView(self.state, node.name, node.reads)
        returned = self._tools.runner.call(node, view, context, self._time_for(node))
        diverged = journal.unasked()
        if diverged:
            return Outcome(run=journal.run, pause=_diverged(node, [call.tool for call in diverged]))
        if self._tools.warn_of_changes and (lost := view.changed_in_place()):
            context.log.warning("node %s changed %s in place; only what it returns has an effect", node.name, lost)
        used = context.usage_total.to_dict()
        data = {"usage": used} if any(used.values()) else {}
        return Outcome(run=journal.run, returned=returned, data=data, files=files.prepared())

    def _retried(self, node: Node, journal: CallJournal, error: Exception) -> CallJournal:
        assert node.retry is not None
        run = journal.run
        data = {
            "node": run.node,
            "visit": run.visit,
            "attempt": run.attempt,
            "error": f"{type(error).__name__}: {error}",
        }
        self._tools.recorder.note(self.at, EventType.NODE_RETRIED, data)
        self._tools.runner.wait_before_retry(node.retry, run.attempt, random.Random(self._seed(run)))
        again = CallJournal(
            self._tools.storage, self._tools.clock, self._tools.codec, run.tried_again(), token=self.at.token
        )
        again.load()
        return again

    def _time_for(self, node: Node) -> float | None:
        times = [node.timeout_s, None if self._deadline is None else max(0.001, self._deadline - time.monotonic())]
        return min((limit for limit in times if limit is not None), default=None)

    def _context(self, node: Node, journal: CallJournal, files: NodeFiles) -> Context:
        return Context(
            journal,
            find_tool=self._tools.find_tool,
            workspace=files.folder,
            seed=self._seed(journal.run),
            config=node.config,
            workflow=self._definition.name,
        )

    def _seed(self, run: NodeRun) -> int:
        return zlib.crc32(f"{self._options.seed}/{run.node}/{run.visit}".encode())

    def _advance(self, outcomes: list[Outcome]) -> Position:
        """Apply the results in order of definition, route, and record it all as one step."""
        delta = _combined(self.state, outcomes, self._definition.reducers)
        state = self.state.apply(delta)
        returned = {outcome.run.node: outcome.returned or {} for outcome in outcomes}
        finished = [Finished(node, update) for node, update in returned.items()]
        route = self._router.after(finished, state, self.at.head.joins)
        ending = self._ending(route, [outcome.run.node for outcome in outcomes])
        after = self._record(outcomes, delta, returned, route, ending)
        self.state = state
        for outcome in outcomes:
            self._visits[outcome.run.node] = outcome.run.visit
        return after

    def _record(
        self,
        outcomes: list[Outcome],
        delta: StateDelta,
        returned: Mapping[str, Mapping[str, Any]],
        route: Route,
        ending: Ending | None,
    ) -> Position:
        if len(outcomes) == 1:
            only = outcomes[0]
            return self._tools.recorder.complete(
                self.at,
                only.run,
                delta,
                returned=only.returned,
                next_nodes=route.next_nodes,
                joins=route.joins,
                ending=ending,
                data=only.data,
                files=None if only.files is None else only.files.save,
            )
        return self._tools.recorder.barrier(
            self.at,
            [outcome.run for outcome in outcomes],
            delta,
            returned=returned,
            next_nodes=route.next_nodes,
            joins=route.joins,
            ending=ending,
            data=[outcome.data or {} for outcome in outcomes],
            files=self._merged_files(outcomes),
        )

    def _merged_files(self, outcomes: list[Outcome]) -> SaveFiles | None:
        """Return how to save what the members made of the files together; None when none of them looked."""
        sides = {
            outcome.run.node: FileCommitId(outcome.run.pending["file_commit"])
            for outcome in outcomes
            if outcome.run.pending is not None and outcome.run.pending["file_commit"] is not None
        }
        base = self.at.head.file_commit
        if not sides:
            return None
        return lambda uow: self._tools.workspaces.merge(uow, None if base is None else FileCommitId(base), sides)

    def _ending(self, route: Route, nodes: list[str]) -> Ending | None:
        """Return the end that this step makes, so that it is written with it."""
        if not route.next_nodes:
            return Ending(status=ExecutionStatus.COMPLETED, notes=route.notes)
        broken = [name for name in nodes if name in self._options.break_after]
        if broken:
            return _paused(f"break after {', '.join(broken)}")
        return None if self._interrupt is None else _interrupted(self._interrupt)


def _combined(state: State, outcomes: Sequence[Outcome], reducers: Mapping[str, Reducer]) -> StateDelta:
    """Return what all results change together; two that write one key without a reducer are refused."""
    writers: dict[str, str] = {}
    delta, current = StateDelta(), state
    for outcome in outcomes:
        update = outcome.returned or {}
        for key in update:
            if key in writers and key not in reducers:
                raise InvalidInput(
                    f"nodes {writers[key]!r} and {outcome.run.node!r} of one superstep both write {key!r}; "
                    f"say how they combine with flow.reducer({key!r}, …), or let them write different keys"
                )
            writers[key] = outcome.run.node
        change = StateDelta.of_update(current, update, reducers)
        delta = delta.compose(change) if delta else change
        current = current.apply(change) if len(outcomes) > 1 else current
    return delta


def _ended(outcome: Outcome, clock: Clock) -> NodeRun:
    return outcome.run.ended(NodeStatus.FAILED, clock.now(), outcome.failure)


def _interrupted(request: str) -> Ending:
    return Ending(status=ExecutionStatus.CANCELLED) if request == "stop" else _paused("interrupted")


def _paused(reason: str) -> Ending:
    return Ending(status=ExecutionStatus.PAUSED, pause=Pause(reason=reason))


def _in_doubt(run: NodeRun, doubt: InDoubt) -> Pause:
    call = doubt.call
    return Pause(
        reason="in doubt",
        node=run.node,
        question={
            "question": f"{call.tool}({call.arguments}) was begun at {call.started_at:%H:%M:%S} UTC and never reported "
            "back. Did it happen? Answer `again` to call it again, or `done` (with its result) to go on.",
            "identity": call.identity,
        },
    )


def _diverged(node: Node, tools: list[str]) -> Pause:
    return Pause(
        reason=f"node {node.name!r} was tried again and did not ask for {', '.join(tools)}, which an earlier attempt "
        "called; resume with rerun_node=True to undo what can be undone and begin the node afresh",
        node=node.name,
    )
