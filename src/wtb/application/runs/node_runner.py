"""NodeRunner: runs one node, retries it if its policy allows, or takes a result that another run has made."""

from __future__ import annotations

import itertools
import logging
import random
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from wtb.application.node_cache import Busy, SharedFailure, SharedResult, Sharing
from wtb.application.runs.callers_loop import LoopGone
from wtb.application.runs.calls_in_flight import CallInFlight, list_in_flight, wait_for
from wtb.application.runs.context import Context
from wtb.application.runs.engine_context import EngineContext
from wtb.application.runs.function_caller import FunctionCaller, NodeTimeout, RunTimeout, failure_of, may_retry
from wtb.application.runs.journal import Asked, CallJournal, InDoubt
from wtb.application.runs.node_attempt import Attempt, Outcome, Work
from wtb.application.runs.node_calls import NodeCalls
from wtb.application.runs.node_files import NodeFiles
from wtb.application.runs.node_pauses import asks, cut_off, diverged, in_doubt, lost_calls
from wtb.application.runs.progress import RunProgress
from wtb.application.runs.recorder import Recorder
from wtb.application.runs.run_limits import RunLimits
from wtb.application.runs.shared_outcomes import Share, outcome_of, why_unshareable
from wtb.application.runs.steps import NodeReport
from wtb.application.runs.tool_answers import ToolAnswers
from wtb.application.workspaces import Workspaces
from wtb.domain.anchor import AnchoredCall
from wtb.domain.checkpoint import NodeRun
from wtb.domain.errors import DatabaseAway, LeaseLost, StorageReplaced
from wtb.domain.event_catalogue import NodeRetried, ToolAwaited
from wtb.domain.figures import Figures, Price
from wtb.domain.files import FileCommitId
from wtb.domain.ids import NodeRunId
from wtb.domain.observation import Window
from wtb.domain.options import RunOptions
from wtb.domain.ports import (
    NO_TELEMETRY,
    CallAnchor,
    Clock,
    Codec,
    Measure,
    Storage,
    Telemetry,
    measured,
)
from wtb.domain.secrets import Masker
from wtb.domain.tools import CallStatus, Tool, ToolCall
from wtb.domain.workflow import Node, WorkflowDefinition

_log = logging.getLogger(__name__)

_POLL_S = 0.02

MAX_WAIT_S = 60.0
"""How long a new attempt waits for an unfinished call of an earlier attempt; then the run pauses in doubt."""

Watch = Callable[[NodeRun], AbstractContextManager[object]]
"""Returns a context manager that surrounds an attempt of a node, on its thread, so that somebody can watch it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """The services that all drivers of a process share."""

    storage: Storage
    anchor: CallAnchor
    clock: Clock
    codec: Codec
    recorder: Recorder
    caller: FunctionCaller
    workspaces: Workspaces
    find_tool: Callable[[str], Tool]
    masker: Masker
    price: Price
    limits: RunLimits
    """The limits of the settings, for runs outside a batch."""
    telemetry: Telemetry = NO_TELEMETRY


def file_commit(id: str | None) -> FileCommitId | None:
    """Return the commit that a checkpoint names."""
    return None if id is None else FileCommitId(id)


class NodeRunner:
    """Runs the nodes of one run in this process: makes their attempts, answers their calls, shares their results."""

    def __init__(
        self,
        equipment: Equipment,
        definition: WorkflowDefinition,
        options: RunOptions,
        progress: RunProgress,
        *,
        bases: Mapping[NodeRunId, FileCommitId | None],
        watch: Watch | None = None,
        sharing: Sharing | None = None,
        limits: RunLimits | None = None,
        calls_begun: int = 0,
        lost: Sequence[AnchoredCall] = (),
    ) -> None:
        self._equipment = equipment
        self._definition = definition
        self._options = options
        self._progress = progress
        self._bases = bases
        self._deadline = None if options.timeout_s is None else time.monotonic() + options.timeout_s
        self._unshared_keys: dict[NodeRunId, tuple[bytes, Window]] = {}
        self._watch = watch
        self._sharing = sharing
        self._answers = ToolAnswers(
            workflow=definition.name, answers=definition.tools, codec=equipment.codec, sharing=sharing
        )
        self._limits = limits or equipment.limits
        self._lost: dict[tuple[str, int], dict[str, AnchoredCall]] = {}
        for call in lost:
            self._lost.setdefault(call.place, {})[call.identity] = call
        self._numbers = itertools.count(calls_begun + 1)
        self.waits_for: bytes | None = None
        """The key of a result that this run needs next and another run is making. Drive on once it exists."""

    def run(self, work: Work) -> Outcome:
        """Make one node run, or take the result of an equal one that another run made."""
        return self._made(work) if self._sharing is None else self._made_or_taken(work, self._sharing)

    def _made(self, work: Work) -> Outcome:
        """Run the node, and retry it while its policy allows."""
        node, run = work.node, work.run
        while True:
            flights = list_in_flight(run.execution_id, run.id) if run.attempt > 1 else ()
            if flights and (still := self._waited_for(run, flights)):
                return Outcome(run=run, pause=in_doubt(run, InDoubt(still.call)))
            attempt = self._attempt(work, run, flights)
            try:
                return self._tried(work, attempt)
            except Asked as asked:
                attempt.give_back_files()
                return Outcome(run=attempt.run, pause=asks(run, asked))
            except InDoubt as doubt:
                attempt.give_back_files()
                return Outcome(run=attempt.run, pause=in_doubt(run, doubt))
            except LoopGone as gone:
                attempt.revoke()
                attempt.give_back_files(gone)
                return Outcome(run=attempt.run, pause=cut_off(gone, run.node))
            except (LeaseLost, StorageReplaced):
                raise  # this process must stop writing; no retry can help
            except (Exception, SystemExit) as error:  # a node may raise anything; it is recorded with its traceback
                attempt.revoke()
                attempt.give_back_files(error)
                if isinstance(error, DatabaseAway):
                    raise  # it is no failure of the node, and nothing can be recorded now
                run = attempt.run
                is_late = isinstance(error, RunTimeout)  # this run has no time to retry; another run may have
                if is_late or not may_retry(node.retry, run.attempt, error):
                    failure = self._equipment.masker.failure(failure_of(error, run.node, run.visit, run.input_id))
                    unshareable = "its run took too long" if is_late else attempt.unshareable()
                    return Outcome(run=run, failure=failure, unshareable=unshareable)
                run = self._retried(node, run, error)
            finally:
                if self._sharing is not None:
                    self._sharing.charge(attempt.spent().totals())

    def _made_or_taken(self, work: Work, sharing: Sharing) -> Outcome:
        """Run a node of a batch, or take the result that another run made.

        If another run is still making the result, this run gives up its worker until then. Only a member of a
        parallel superstep waits here, since its siblings are at work.
        """
        node, run, head = work.node, work.run, self._progress.at.head
        key = sharing.key(node, run, work.state, head.file_commit)
        found = None if key is None else sharing.claim(key, node.name, work.state)
        while isinstance(found, Busy) and work.member:
            time.sleep(_POLL_S)
            found = sharing.claim(found.key, node.name, work.state)
        if isinstance(found, Busy):
            self.waits_for = found.key
            return Outcome(run=run)
        if isinstance(found, SharedFailure):
            sharing.count(shared=True)
            return Outcome(run=run.measured(Figures(is_shared=True)), failure=found.failure)
        if isinstance(found, SharedResult):
            sharing.count(shared=True)
            return outcome_of(run, found, head.file_commit)
        sharing.count(shared=False)
        position = sharing.begin()
        outcome = self._made(work)
        window = sharing.observed(position)
        outcome = replace(outcome, report=replace(outcome.report, trace=window.to_data()))
        sharing.failed += outcome.failure is not None
        if key is not None and (reason := why_unshareable(outcome)):
            sharing.unshared[node.name] = reason
            sharing.leave_to_each(key)
        elif key is not None and outcome.failure is not None:
            sharing.settle_now(key, SharedFailure(failure=outcome.failure))
        elif key is not None:
            self._unshared_keys[run.id] = (key, window)
        return outcome

    def count_again(self, report: NodeReport) -> None:
        """Count a node run that finished before a crash, given the report that was recorded for it."""
        if self._sharing is not None:
            self._sharing.count_again(report.usage, shared=report.shared)

    def share(self, outcome: Outcome, *, has_files: bool) -> Share | None:
        """Return a function that shares a result made here, in the transaction that stores it and its files."""
        waiting = self._unshared_keys.pop(outcome.run.id, None) if self._unshared_keys else None
        if waiting is None or self._sharing is None:
            return None
        key, window = waiting
        known = None if has_files else self._progress.at.head.file_commit
        return Share(sharing=self._sharing, key=key, window=window, outcome=outcome, has_files=has_files, known=known)

    def shared(self, share: Share | None) -> None:
        """Tell waiting runs that a result exists, after its transaction is committed."""
        if share is not None:
            share.sharing.settled(share.key)

    def _waited_for(self, run: NodeRun, flights: Sequence[CallInFlight]) -> CallInFlight | None:
        """Wait until the calls of earlier attempts end, so that none is made twice; return one that does not end.

        It does not wait for calls that a person has settled meanwhile.
        """
        with self._equipment.storage.unit_of_work(readonly=True) as uow:
            calls = uow.tool_calls.list_calls(run.execution_id, run.id)
        settled = {call.identity for call in calls if call.status is CallStatus.SUCCEEDED}
        flights = [flight for flight in flights if flight.call.identity not in settled]
        for flight in flights:
            self._say_waiting(run, flight.call)
        left_s = MAX_WAIT_S if self._deadline is None else self._deadline - time.monotonic()
        return next(iter(wait_for(flights, max(0.0, min(MAX_WAIT_S, left_s)))), None)

    def _say_waiting(self, run: NodeRun, call: ToolCall) -> None:
        _log.warning(
            "run %s: node %s is to run again, but its call of %s (since %s UTC) has not ended; waiting up to %g s",
            run.execution_id,
            run.node,
            call.tool,
            f"{call.started_at:%H:%M:%S}",
            MAX_WAIT_S,
        )
        body = ToolAwaited(node=run.node, visit=run.visit, attempt=run.attempt, tool=call.tool, call=call.identity)
        self._equipment.recorder.note(self._progress.at, body)

    def _attempt(self, work: Work, run: NodeRun, flights: Sequence[CallInFlight]) -> Attempt:
        """Prepare one attempt of a node. A node without a context cannot call anything, so it needs no preparation."""
        return Attempt(run, *self._context(work.node, run, work.member, flights)) if work.with_context else Attempt(run)

    def _context(
        self, node: Node, run: NodeRun, member: str, flights: Sequence[CallInFlight]
    ) -> tuple[CallJournal, NodeFiles, EngineContext]:
        base = self._bases[run.id] if run.id in self._bases else file_commit(self._progress.at.head.file_commit)
        folder = member if run.attempt == 1 else f"{member or run.node}:{run.attempt}"  # no node's name has a colon
        files = NodeFiles(self._equipment.workspaces, run.execution_id, self._progress.at.branch.id, base, folder)
        journal = CallJournal(
            self._equipment.storage,
            self._equipment.clock,
            self._equipment.codec,
            run,
            token=self._progress.at.token,
            masker=self._equipment.masker,
            mark=None if member else self._progress.mark,
            files=files,
            fine_grained=self._options.fine_grained,
            place=self._place,
            note=self._note,
            lost=self._lost.get((run.node, run.visit), {}),
            answered=self._answers.names,
        )
        if run.attempt > 1:
            journal.load([flight.unrecorded for flight in flights if flight.unrecorded is not None])
        calls = NodeCalls(journal, self._equipment.telemetry, self._answers, self._limits)
        context = Context(
            calls,
            find_tool=self._equipment.find_tool,
            workspace=files.folder,
            masker=self._equipment.masker,
            price=self._equipment.price,
            seed=self._seed(run),
            config=node.config,
            workflow=self._definition,
        )
        return journal, files, EngineContext(context, calls)

    def _place(self) -> tuple[int, int]:
        """Return the number of the next step, and a call number that is higher than all before it."""
        return self._progress.at.head.step + 1, next(self._numbers)

    def _note(self, run: NodeRun, call: ToolCall) -> None:
        self._equipment.anchor.note(AnchoredCall.of(self._progress.at.execution, run, call))

    def _tried(self, work: Work, attempt: Attempt) -> Outcome:
        began = time.perf_counter()
        try:
            with self._watch(attempt.run) if self._watch else nullcontext():
                call = measured(self._equipment.telemetry, Measure.NODE, work.node.name, work.call)
                returned = self._in_time(work.node, partial(call, attempt.context))
        except Asked as asked:
            attempt.record_question(asked.call)
            raise
        finally:
            attempt.end_messages()
        ms = round((time.perf_counter() - began) * 1e3, 3)
        if unasked := attempt.unasked():
            attempt.give_back_files()
            return Outcome(run=attempt.run, pause=diverged(work.node, [call.tool for call in unasked]))
        if lost := attempt.unasked_lost():
            attempt.give_back_files()
            return Outcome(run=attempt.run, pause=lost_calls(work.node, [call.tool for call in lost]))
        return Outcome(
            run=attempt.completed(ms),
            returned=returned,
            report=attempt.report(),
            files=attempt.files(),
            unshareable=attempt.unshareable(),
        )

    def _retried(self, node: Node, run: NodeRun, error: BaseException) -> NodeRun:
        assert node.retry is not None
        reason = self._equipment.masker.error(error)
        body = NodeRetried(node=run.node, visit=run.visit, attempt=run.attempt, error=reason)
        self._equipment.recorder.note(self._progress.at, body, run)
        self._equipment.caller.wait_before_retry(node.retry, run.attempt, random.Random(self._seed(run)))
        return run.tried_again()

    def _in_time(self, node: Node, call: Callable[[float | None], Any]) -> Any:
        """Call a node with its timeout; if the run's own time is over, raise that error instead."""
        try:
            return call(self._time_for(node))
        except NodeTimeout as error:
            late = self.run_timeout(node.name)
            if late is None:
                raise
            raise late from error

    def _time_for(self, node: Node) -> float | None:
        if self._deadline is None:
            return node.timeout_s
        left = max(0.001, self._deadline - time.monotonic())
        return left if node.timeout_s is None else min(left, node.timeout_s)

    def run_timeout(self, node: str | None = None) -> RunTimeout | None:
        """Return the error for a run whose time is over, in this node; None while it has time."""
        if self._deadline is None or time.monotonic() < self._deadline:
            return None
        return RunTimeout(self._options.timeout_s or 0.0, node)

    def _seed(self, run: NodeRun) -> int:
        return zlib.crc32(f"{self._options.seed}/{run.node}/{run.visit}".encode())
