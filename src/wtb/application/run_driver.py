"""RunDriver: takes one run from superstep to superstep until it ends, pauses or fails."""

from __future__ import annotations

import logging
import random
import time
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from wtb.application.context import Context, Price
from wtb.application.journal import Asked, CallJournal, InDoubt
from wtb.application.node_cache import Busy, SharedFailure, SharedResult, Sharing
from wtb.application.node_files import NodeFiles
from wtb.application.node_runner import NodeRunner, failure_of, may_retry, takes_context
from wtb.application.progress import Progress
from wtb.application.recorder import Also, Ending, Position, Recorder, SaveFiles, Step
from wtb.application.state_view import StateView
from wtb.application.workspaces import PreparedCommit, Workspaces
from wtb.domain.checkpoint import NodeRun, NodeStatus
from wtb.domain.errors import (
    Conflict,
    LeaseLost,
    MergeConflict,
    StateNotSerialisable,
    StorageError,
    StorageUnavailable,
    WTBError,
)
from wtb.domain.events import EventType
from wtb.domain.execution import ExecutionStatus, Failure, Pause
from wtb.domain.files import FileCommitId
from wtb.domain.ids import NodeRunId
from wtb.domain.options import RunOptions
from wtb.domain.ports import Clock, Codec, Storage, UnitOfWork
from wtb.domain.routing import Finished, Route, Router
from wtb.domain.secrets import Masker
from wtb.domain.state import DELETE, StateDelta
from wtb.domain.tools import Tool, ToolCall
from wtb.domain.workflow import Node, WorkflowDefinition

_log = logging.getLogger(__name__)

_POLL_S = 0.02

_MOST_MEMBERS = 32
"""Threads of one parallel superstep."""

Watch = Callable[[NodeRun], AbstractContextManager[object]]
"""Is entered while an attempt of a node runs, on the thread that runs it, for somebody who looks on."""


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
    data: Mapping[str, Any] = field(default_factory=dict)
    files: PreparedCommit | None = None
    taken: FileCommitId | None = None
    """The files that come with a shared result."""
    unshareable: str | None = None
    """Why others must not take this result, if so."""
    tool_errors: int = 0
    """Calls that failed while it was made."""


class Attempt:
    """One attempt of a node, with what it may call, if it asks for that."""

    __slots__ = ("_files", "_journal", "_run", "context")

    def __init__(
        self,
        run: NodeRun,
        journal: CallJournal | None = None,
        files: NodeFiles | None = None,
        context: Context | None = None,
    ) -> None:
        self._run = run
        self._journal = journal
        self._files = files
        self.context = context

    @property
    def run(self) -> NodeRun:
        """The node run as it is now: calls are counted in it."""
        return self._run if self._journal is None else self._journal.run

    def unasked(self) -> tuple[ToolCall, ...]:
        """Return external calls that an earlier attempt made and this one never asked for."""
        return () if self._journal is None else self._journal.unasked()

    def data(self) -> Mapping[str, Any]:
        """Return what is to be said of it in the event."""
        used = None if self.context is None else self.context.usage_total
        return {} if used is None else {"usage": used.to_dict()}

    def files(self) -> PreparedCommit | None:
        """Return what it left in the workspace; None when it never looked."""
        return None if self._files is None else self._files.left()

    def unshareable(self) -> str | None:
        """Return why its result must not be taken by others: it asked a person, or changed the world."""
        return None if self._journal is None else self._journal.unshareable()

    def tool_errors(self) -> int:
        """Return how many of its calls failed."""
        return 0 if self._journal is None else self._journal.errors

    def revoke(self) -> None:
        """Refuse whatever it still asks for."""
        if self._journal is not None:
            self._journal.revoke()


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
    masker: Masker
    price: Price
    warn_of_changes: bool = False


class RunDriver:
    """One run, in this process."""

    def __init__(
        self,
        equipment: Equipment,
        definition: WorkflowDefinition,
        router: Router,
        options: RunOptions,
        progress: Progress,
        *,
        open_runs: Sequence[NodeRun] = (),
        bases: Mapping[NodeRunId, FileCommitId | None] | None = None,
    ) -> None:
        self._tools = equipment
        self._definition = definition
        self._nodes = {node.name: node for node in definition.nodes}
        self._router = router
        self._options = options
        self._progress = progress
        self._open_runs = {(run.node, run.visit): run for run in open_runs}
        self._bases = bases or {}
        self._deadline = None if options.timeout_s is None else time.monotonic() + options.timeout_s
        self._interrupt: str | None = None
        self.watch: Watch | None = None
        self.sharing: Sharing | None = None
        """What this run shares with others of its batch."""
        self._unshared_keys: dict[str, tuple[bytes, float]] = {}
        self.waits_for: bytes | None = None
        """The result that somebody else is making and that this run needs next; driving on then takes it."""
        self.began_here = bool(open_runs)
        """Whether a node that comes next was begun before: its breakpoint is behind it."""

    @property
    def at(self) -> Position:
        """The last position that is stored."""
        return self._progress.at

    def interrupt(self, request: str) -> None:
        """Ask for a pause or a stop at the next boundary, from a signal handler or another thread."""
        self._interrupt = request

    def drive(self, *, pass_breakpoint: bool) -> Position:
        """Go on until there is nothing more to do here; the first breakpoint may be one that was stopped at."""
        self.waits_for = None
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
        if self._deadline is not None and time.monotonic() >= self._deadline:
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
            return [self._run(runs[0]) if self.sharing is None else self._run_or_take(runs[0])]
        with ThreadPoolExecutor(min(len(runs), _MOST_MEMBERS), thread_name_prefix="wtb-member") as pool:
            return list(pool.map(self._run_member, runs))

    def _run_member(self, run: NodeRun) -> Outcome:
        if run.pending is not None:  # finished before a crash
            deleted = dict.fromkeys(run.pending.get("deleted", ()), DELETE)
            data = run.pending.get("data", {})
            if self.sharing is not None:
                self.sharing.count_again(data)
            return Outcome(run=run, returned={**run.pending["returned"], **deleted}, data=data)
        outcome = self._run(run, member=run.node) if self.sharing is None else self._run_or_take(run, member=run.node)
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
        key, share = self._share(outcome, has_files=True)
        try:
            self._tools.recorder.keep_pending(self.at, kept, None if files is None else files.save, share)
        except StateNotSerialisable as error:
            return Outcome(run=outcome.run, failure=failure_of(error, run.node, run.visit, run.input_id))
        except StorageUnavailable:
            if self._options.checkpoint_failure == "fatal" or files is not None:
                raise
            _log.warning("the result of node %r is in memory only until its siblings have finished", run.node)
        else:
            if key is not None and self.sharing is not None:
                self.sharing.settled(key)  # now: a sibling may wait for a run that waits for this one
        return Outcome(run=kept, returned=outcome.returned, data=outcome.data)

    def _run(self, run: NodeRun, member: str = "") -> Outcome:
        """Run one node, again while its policy allows."""
        node = self._nodes[run.node]
        tool_errors = 0
        while True:
            attempt = self._attempt(node, run, member)
            try:
                made = self._made(node, attempt)
                return replace(made, tool_errors=made.tool_errors + tool_errors) if tool_errors else made
            except Asked as asked:
                question = {**asked.call.arguments, "identity": asked.call.identity}
                return Outcome(run=attempt.run, pause=Pause(reason="question", node=run.node, question=question))
            except InDoubt as doubt:
                return Outcome(run=attempt.run, pause=_in_doubt(run, doubt))
            except LeaseLost:
                raise  # this process must stop writing; no retry can help
            except Exception as error:  # noqa: BLE001  whatever the node raised is recorded, with its traceback
                attempt.revoke()
                run = attempt.run
                tool_errors += attempt.tool_errors()
                if not may_retry(node.retry, run.attempt, error):
                    failure = failure_of(error, run.node, run.visit, run.input_id)
                    return Outcome(run=run, failure=failure, unshareable=attempt.unshareable())
                run = self._retried(node, run, error)
            finally:
                if self.sharing is not None:
                    self.sharing.charge(attempt.data().get("usage", {}))

    def _run_or_take(self, run: NodeRun, member: str = "") -> Outcome:
        """Run a node of a batch, or take the result of somebody who ran it with the same input.

        A run that needs what another is making gives up its worker until then; a member of a parallel superstep
        waits, since its siblings are at work.
        """
        assert self.sharing is not None
        sharing, node = self.sharing, self._nodes[run.node]
        key = sharing.key(node, run, self._progress.state, self.at.head.file_commit)
        found = None if key is None else sharing.claim(key)
        while isinstance(found, Busy) and member:
            time.sleep(_POLL_S)
            found = sharing.claim(found.key)
        if isinstance(found, Busy):
            self.waits_for = found.key
            return Outcome(run=run)
        if isinstance(found, SharedFailure):
            sharing.count(shared=True)
            return Outcome(run=run, failure=found.failure)
        if isinstance(found, SharedResult):
            sharing.count(shared=True)
            return _taken(run, found, self.at.head.file_commit)
        sharing.count(shared=False)
        began = time.perf_counter()
        outcome = self._run(run, member)
        ms = round((time.perf_counter() - began) * 1e3, 3)
        sharing.failed += outcome.failure is not None
        if key is not None and (reason := _cannot_be_shared(outcome)):
            sharing.unshared[node.name] = reason
            sharing.leave_to_each(key)
        elif key is not None and outcome.failure is not None:
            sharing.settle_now(key, SharedFailure(failure=outcome.failure))
        elif key is not None:
            self._unshared_keys[run.node] = (key, ms)
        return outcome

    def _share(self, outcome: Outcome, *, has_files: bool) -> tuple[bytes | None, Also | None]:
        """Return how to give away what was made here, in the transaction that keeps it and its files; and its key."""
        key, ms = self._unshared_keys.pop(outcome.run.node, (None, 0.0)) if self._unshared_keys else (None, 0.0)
        if key is None or self.sharing is None:
            return None, None
        sharing, known = self.sharing, self.at.head.file_commit

        def write(uow: UnitOfWork, file_commit: str | None) -> None:
            result = SharedResult(
                returned=outcome.returned or {},
                file_commit=file_commit if has_files else known,
                usage=outcome.data.get("usage", {}),
                ms=ms,
                tool_errors=outcome.tool_errors,
            )
            sharing.settle(uow, key, result)

        return key, write

    def _attempt(self, node: Node, run: NodeRun, member: str) -> Attempt:
        """Get one attempt of a node ready; a node that takes no context can call nothing, so there is nothing to do."""
        if node.function is None or not takes_context(node.function):
            return Attempt(run)
        return Attempt(run, *self._context(node, run, member))

    def _context(self, node: Node, run: NodeRun, member: str) -> tuple[CallJournal, NodeFiles, Context]:
        base = self._bases[run.id] if run.id in self._bases else _commit(self.at.head.file_commit)
        folder = member if run.attempt == 1 else f"{run.node}:{run.attempt}"  # no node's name has a colon
        files = NodeFiles(self._tools.workspaces, run.execution_id, self.at.branch.id, base, folder)
        journal = CallJournal(
            self._tools.storage,
            self._tools.clock,
            self._tools.codec,
            run,
            token=self.at.token,
            masker=self._tools.masker,
            mark=None if member else self._progress.mark,
            files=files,
            fine_grained=self._options.fine_grained,
        )
        if run.attempt > 1:
            journal.load()
        context = Context(
            journal,
            find_tool=self._tools.find_tool,
            workspace=files.folder,
            masker=self._tools.masker,
            price=self._tools.price,
            seed=self._seed(run),
            config=node.config,
            workflow=self._definition.name,
        )
        return journal, files, context

    def _made(self, node: Node, attempt: Attempt) -> Outcome:
        view = StateView(self._progress.state, node.name, node.reads)
        with self.watch(attempt.run) if self.watch else nullcontext():
            returned = self._tools.runner.call(node, view, attempt.context, self._time_for(node))
        diverged = attempt.unasked()
        if diverged:
            return Outcome(run=attempt.run, pause=_diverged(node, [call.tool for call in diverged]))
        if self._tools.warn_of_changes and (lost := view.changed_in_place()):
            _log.warning("node %s changed %s in place; only what it returns has an effect", node.name, lost)
        return Outcome(
            run=attempt.run,
            returned=returned,
            data=attempt.data(),
            files=attempt.files(),
            unshareable=attempt.unshareable(),
            tool_errors=attempt.tool_errors(),
        )

    def _retried(self, node: Node, run: NodeRun, error: Exception) -> NodeRun:
        assert node.retry is not None
        told = f"{type(error).__name__}: {error}"
        data = {"node": run.node, "visit": run.visit, "attempt": run.attempt, "error": told}
        self._tools.recorder.note(self.at, EventType.NODE_RETRIED, data)
        self._tools.runner.wait_before_retry(node.retry, run.attempt, random.Random(self._seed(run)))
        return run.tried_again()

    def _time_for(self, node: Node) -> float | None:
        if self._deadline is None:
            return node.timeout_s
        left = max(0.001, self._deadline - time.monotonic())
        return left if node.timeout_s is None else min(left, node.timeout_s)

    def _seed(self, run: NodeRun) -> int:
        return zlib.crc32(f"{self._options.seed}/{run.node}/{run.visit}".encode())

    def _advance(self, outcomes: list[Outcome]) -> None:
        """Apply the results in order of definition, route, and record it all as one step."""
        returned = {outcome.run.node: outcome.returned or {} for outcome in outcomes}
        delta = StateDelta.of_updates(self._progress.state, returned, self._definition.reducers)
        state = self._progress.state.apply(delta)
        finished = [Finished(node, update) for node, update in returned.items()]
        route = self._router.after(finished, state, self._progress.joins)
        files = self._files(outcomes)
        key, share = self._share(outcomes[0], has_files=files is not None) if len(outcomes) == 1 else (None, None)
        step = Step(
            runs=tuple([outcome.run for outcome in outcomes]),
            delta=delta,
            returned=returned,
            next_nodes=route.next_nodes,
            joins=route.joins,
            data=tuple([outcome.data for outcome in outcomes]),
            ending=self._ending(route, returned),
            files=files,
            also=() if share is None else (share,),
        )
        self._progress.advance(step, state)
        if key is not None and self.sharing is not None and self._progress.is_stored:
            self.sharing.settled(key)

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
        base = _commit(self.at.head.file_commit)
        return (lambda uow: self._tools.workspaces.merge(uow, base, sides)) if sides else None

    def _files_of(self, outcome: Outcome) -> SaveFiles | None:
        """Compare with the head, which may be a checkpoint in the middle of the node that holds other files."""
        head, files = _commit(self.at.head.file_commit), outcome.files
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


def _cannot_be_shared(outcome: Outcome) -> str | None:
    return "it waits for a person" if outcome.pause is not None else outcome.unshareable


def _taken(run: NodeRun, result: SharedResult, base: str | None) -> Outcome:
    """Return a shared result as if the node had run here."""
    data: dict[str, Any] = {"shared": True, "ms": result.ms}
    if result.usage:
        data["usage"] = dict(result.usage)
    if result.tool_errors:
        data["tool_errors"] = result.tool_errors
    changed = result.file_commit is not None and result.file_commit != base
    return Outcome(
        run=run, returned=result.returned, data=data, taken=FileCommitId(str(result.file_commit)) if changed else None
    )


def _commit(id: str | None) -> FileCommitId | None:
    return None if id is None else FileCommitId(id)


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
