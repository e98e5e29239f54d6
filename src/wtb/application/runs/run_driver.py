"""RunDriver: takes one run from step to step until it ends, pauses or fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from wtb.application.runs.callers_loop import LoopGone
from wtb.application.runs.function_caller import failure_of, takes_context
from wtb.application.runs.node_attempt import Outcome, Work
from wtb.application.runs.node_pauses import cut_off
from wtb.application.runs.node_runner import Equipment, NodeRunner, file_commit
from wtb.application.runs.progress import RunProgress
from wtb.application.runs.run_request import RunRequest
from wtb.application.runs.steps import INTERRUPTED, Ending, NodeReport, Position, SaveFiles, Step
from wtb.domain.anchor import AnchoredCall, begun_again, first_id
from wtb.domain.checkpoint import NodeRun, NodeStatus
from wtb.domain.engine import Advance, Call, Engine, Standpoint
from wtb.domain.errors import (
    Conflict,
    MergeConflict,
    StateNotSerialisable,
    StorageError,
    StorageUnavailable,
    WTBError,
)
from wtb.domain.execution import ExecutionStatus, Failure, Pause, PauseKind
from wtb.domain.files import FileCommitId
from wtb.domain.ids import NodeRunId
from wtb.domain.options import RunOptions
from wtb.domain.ports import Clock, Measure, measured
from wtb.domain.secrets import masked_logger, text_of
from wtb.domain.updates import restored, shortened
from wtb.domain.values import evolve
from wtb.domain.workflow import WorkflowDefinition

_log = masked_logger(__name__)


class StepLimitReached(WTBError):
    """The run has reached its limit of steps."""


class RunDriver:
    """Drives one run in this process, superstep by superstep."""

    def __init__(
        self,
        equipment: Equipment,
        definition: WorkflowDefinition,
        options: RunOptions,
        progress: RunProgress,
        *,
        engine: Engine,
        node_runner: NodeRunner,
        open_runs: Sequence[NodeRun] = (),
        bases: Mapping[NodeRunId, FileCommitId | None],
        lost: Sequence[AnchoredCall] = (),
        request: RunRequest | None = None,
    ) -> None:
        self._equipment = equipment
        self._workflow = definition.name
        self._nodes = {node.name: node for node in definition.nodes}
        self._engine = engine
        self._options = options
        self._progress = progress
        self._open_runs = {(run.node, run.visit): run for run in open_runs}
        self._lost_runs = {call.place: call.node_run_id for call in lost}
        self._node_runner = node_runner
        self._bases = bases
        self._request = request or RunRequest()
        self.began_here = bool(open_runs)
        """Whether a node that comes next has already begun; then the run does not stop at its breakpoint again."""

    @property
    def at(self) -> Position:
        """The last stored position."""
        return self._progress.at

    @property
    def waits_for(self) -> bytes | None:
        """The key of a result that this run needs next and another run is making. Drive again once it exists."""
        return self._node_runner.waits_for

    def interrupt(self, request: str, by: str | None = None) -> None:
        """Ask for a pause or a stop at the next boundary, from a signal handler or another thread."""
        self._request.wanted, self._request.by = request, by

    def drive(self, *, pass_breakpoint: bool) -> Position:
        """Drive until the run ends, pauses or waits. `pass_breakpoint` ignores the breakpoint at which it stopped."""
        self._node_runner.waits_for = None
        superstep = measured(self._equipment.telemetry, Measure.STEP, self._workflow, self._superstep)
        while self.at.execution.status is ExecutionStatus.RUNNING and self.waits_for is None:
            nodes = self._progress.next_nodes
            stop = self._reason_to_stop(nodes, pass_breakpoint=pass_breakpoint)
            pass_breakpoint = False
            if stop is not None:
                self._progress.end(stop)
            else:
                superstep(nodes)
        return self.at

    def _reason_to_stop(self, nodes: tuple[str, ...], *, pass_breakpoint: bool) -> Ending | None:
        if self._request.wanted is not None:
            return _interrupted(self._request)
        if not nodes:
            return Ending(status=ExecutionStatus.COMPLETED, nodes=sum(self._progress.visits.values()))
        broken = [name for name in nodes if name in self._options.break_before]
        if broken and not pass_breakpoint:
            return _paused(PauseKind.BREAK_BEFORE, "break before", broken)
        if self._progress.steps >= self._options.max_steps:
            limit = self._options.max_steps
            return self._failed(
                StepLimitReached(f"the run took {limit} steps, as many as it may; raise max_steps if it needs more")
            )
        if (late := self._node_runner.run_timeout()) is not None:
            return self._failed(late)
        return None

    def _failed(self, error: Exception) -> Ending:
        failure = Failure(type=type(error).__qualname__, message=text_of(error), input_checkpoint_id=self.at.head.id)
        return Ending(status=ExecutionStatus.FAILED, failure=failure)

    def _superstep(self, nodes: tuple[str, ...]) -> None:
        runs = self._node_runs(nodes)
        outcomes: dict[int, Outcome] = {}

        def make(position: int, state: Mapping[str, Any], call: Call) -> Mapping[str, Any] | None:
            run = runs[position]
            outcome = self._run(run, state, call) if len(runs) == 1 else self._run_member(run, state, call)
            outcomes[position] = outcome
            return outcome.returned

        try:
            advance = self._engine.step(self._standpoint(), make)
            if advance is None:
                self._halt([outcome for _, outcome in sorted(outcomes.items())])
                return
            made = [outcomes[position] for position in range(len(runs))]
            self._advance(advance, made)
        except LoopGone as gone:  # a function that chooses the next node may be async, too
            self._progress.end(Ending(status=ExecutionStatus.PAUSED, pause=cut_off(gone)))
        except MergeConflict as error:
            self._fail(runs[0], error)
        except (Conflict, StorageError):
            raise  # nothing can be recorded, or nothing may be: another process has the run
        except Exception as error:  # noqa: BLE001  a user's condition or reducer may raise anything
            self._fail(runs[0], error)

    def _standpoint(self) -> Standpoint:
        return Standpoint(
            state=self._progress.state,
            next_nodes=self._progress.next_nodes,
            joins=self._progress.joins,
            memory=self._progress.memory,
            run_id=self.at.execution.id,
            steps_left=self._options.max_steps - self._progress.steps,
        )

    def _halt(self, outcomes: list[Outcome]) -> None:
        """Record why a superstep failed or paused. If it only waits for a result, record nothing."""
        if self.waits_for is not None:
            return
        failed = [outcome for outcome in outcomes if outcome.failure is not None]
        paused = [outcome for outcome in outcomes if outcome.pause is not None]
        if failed:
            runs = tuple(_ended(outcome, self._equipment.clock) for outcome in failed)
            self._progress.end(Ending(status=ExecutionStatus.FAILED, failure=failed[0].failure), runs)
        else:
            runs = tuple(outcome.run for outcome in paused)
            self._progress.end(Ending(status=ExecutionStatus.PAUSED, pause=paused[0].pause), runs)

    def _fail(self, run: NodeRun, error: Exception) -> None:
        failure = failure_of(error, run.node, run.visit, self.at.head.id)
        failed = run.ended(NodeStatus.FAILED, self._equipment.clock.now(), failure)
        self._progress.end(Ending(status=ExecutionStatus.FAILED, failure=failure), (failed,))

    def _node_runs(self, nodes: tuple[str, ...]) -> list[NodeRun]:
        """Return the node runs to make, one for each time that a node is due."""
        visits = Counter(self._progress.visits) if len(nodes) > 1 else self._progress.visits
        runs = []
        for name in nodes:
            visit = visits.get(name, 0) + 1
            runs.append(self._node_run(name, visit))
            if len(nodes) > 1:
                visits[name] = visit
        return runs

    def _node_run(self, name: str, visit: int) -> NodeRun:
        """Return the unfinished node run that began here, or a new one."""
        known = self._open_runs.pop((name, visit), None) if self._open_runs else None
        lost_id = self._lost_runs.pop((name, visit), None) if self._lost_runs else None
        if lost_id is not None and (known is None or first_id(known.id) != first_id(lost_id)):
            return self._begun_again(name, visit, lost_id, known)
        if known is not None:
            return known if known.pending is not None else known.tried_again(since=self._equipment.clock.now())
        return self._equipment.recorder.node_run(self.at, name, visit)

    def _begun_again(self, name: str, visit: int, lost_id: NodeRunId, known: NodeRun | None) -> NodeRun:
        """Return a node run that replaces one that the store has lost; abandon an older one in its place."""
        if known is not None:
            self._equipment.recorder.abandon(self.at, known)
        run = self._equipment.recorder.node_run(self.at, name, visit)
        return evolve(run, id=begun_again(run.id, lost_id)).tried_again()

    def _run_member(self, run: NodeRun, state: Mapping[str, Any], call: Call) -> Outcome:
        """Run one of several nodes that run at the same time, and store its result at once."""
        if run.pending is not None:  # it finished before a crash
            report = NodeReport.from_data(run.pending.get("data", {}))
            self._node_runner.count_again(report)
            return Outcome(run=run, returned=restored(run.pending, state), report=report)
        outcome = self._run(run, state, call, member=self._member(run))
        if outcome.returned is None:
            return outcome
        files = outcome.files
        pending = shortened(outcome.returned) | {"file_commit": _side(outcome), "data": outcome.report.to_data()}
        kept = outcome.run.finished(pending, self._equipment.clock.now())
        shared = self._node_runner.share(outcome, has_files=True)
        try:
            self._equipment.recorder.keep_pending(self.at, kept, None if files is None else files.save, shared)
        except StateNotSerialisable as error:
            return Outcome(run=outcome.run, failure=failure_of(error, run.node, run.visit, run.input_id))
        except StorageUnavailable:
            if self._options.checkpoint_failure == "fatal" or files is not None:
                raise
            _log.warning("the result of node %r is only in memory until the nodes beside it have finished", run.node)
        else:
            self._node_runner.shared(shared)  # at once: a sibling may wait for a run that waits for this result
        return Outcome(run=kept, returned=outcome.returned, report=outcome.report)

    def _run(self, run: NodeRun, state: Mapping[str, Any], call: Call, member: str = "") -> Outcome:
        node = self._nodes[run.node]
        with_context = not self._engine.hosts_functions or (node.function is not None and takes_context(node.function))
        return self._node_runner.run(
            Work(node=node, run=run, state=state, call=call, with_context=with_context, member=member)
        )

    def _member(self, run: NodeRun) -> str:
        """Return the name that tells a node run from the others that run at the same time."""
        is_first = run.visit == self._progress.visits.get(run.node, 0) + 1
        return run.node if is_first else f"{run.node}#{run.visit}"

    def _advance(self, advance: Advance, outcomes: list[Outcome]) -> None:
        """Record the superstep as one step."""
        runs = tuple([outcome.run for outcome in outcomes])
        files = self._files(outcomes)
        shared = self._node_runner.share(outcomes[0], has_files=files is not None) if len(outcomes) == 1 else None
        step = Step(
            runs=runs,
            delta=advance.delta,
            returned=_by_node(runs, advance.returned),
            next_nodes=advance.next_nodes,
            joins=advance.joins,
            memory=advance.memory or None,
            reports=tuple([outcome.report for outcome in outcomes]),
            ending=self._ending(advance, runs),
            files=files,
            also=() if shared is None else (shared,),
        )
        self._progress.advance(step, advance.state)
        self._progress.memory = advance.memory
        if self._progress.is_stored:
            self._node_runner.shared(shared)

    def _files(self, outcomes: list[Outcome]) -> SaveFiles | None:
        """Return a function that saves the files of the step; None if they have not changed."""
        if len(outcomes) == 1:
            taken = outcomes[0].taken
            return self._files_of(outcomes[0]) if taken is None else (lambda uow: taken)
        sides = {
            self._member(outcome.run): FileCommitId(outcome.run.pending["file_commit"])
            for outcome in outcomes
            if outcome.run.pending is not None and outcome.run.pending["file_commit"] is not None
        }
        base = file_commit(self.at.head.file_commit)
        return (lambda uow: self._equipment.workspaces.merge(uow, base, sides)) if sides else None

    def _files_of(self, outcome: Outcome) -> SaveFiles | None:
        """Do the same for a single node. The head to compare with may be inside the node, with other files."""
        head, files = file_commit(self.at.head.file_commit), outcome.files
        left = self._bases.get(outcome.run.id, head) if files is None else files.id
        if left == head:
            return None
        return (lambda uow: left) if files is None else files.save

    def _ending(self, advance: Advance, runs: Sequence[NodeRun]) -> Ending | None:
        """Return the ending to write with this step, if the run ends or pauses here."""
        if not advance.next_nodes:
            visits = sum(self._progress.visits.values()) + len(runs)
            return Ending(status=ExecutionStatus.COMPLETED, notes=advance.notes, nodes=visits)
        broken = [run.node for run in runs if run.node in self._options.break_after]
        if broken:
            return _paused(PauseKind.BREAK_AFTER, "break after", broken)
        return None if self._request.wanted is None else _interrupted(self._request)


def _by_node(runs: Sequence[NodeRun], returned: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the results by node. Further visits of a node in the same superstep are named like `node#3`."""
    found: dict[str, Mapping[str, Any]] = {}
    for run, update in zip(runs, returned, strict=True):
        found[run.node if run.node not in found else f"{run.node}#{run.visit}"] = update
    return found


def _side(outcome: Outcome) -> str | None:
    """Return the commit of the files that a member of a superstep made."""
    return outcome.taken if outcome.files is None else str(outcome.files.id)


def _ended(outcome: Outcome, clock: Clock) -> NodeRun:
    return outcome.run.ended(NodeStatus.FAILED, clock.now(), outcome.failure)


def _interrupted(request: RunRequest) -> Ending:
    if request.wanted == "stop":
        return Ending(status=ExecutionStatus.CANCELLED, by=request.by)
    return Ending(status=ExecutionStatus.PAUSED, pause=INTERRUPTED, by=request.by)


def _paused(kind: PauseKind, why: str, nodes: Sequence[str]) -> Ending:
    reason = f"{why} {', '.join(dict.fromkeys(nodes))}"
    return Ending(status=ExecutionStatus.PAUSED, pause=Pause(reason=reason, kind=kind))
