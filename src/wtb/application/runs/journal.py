"""CallJournal: records the outside calls of a node run, so that a new attempt does not repeat them."""

from __future__ import annotations

import inspect
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn

from wtb.application.runs.calls_in_flight import CallInFlight, in_flight
from wtb.application.runs.leases import SET_BACK
from wtb.application.runs.node_files import NodeFiles
from wtb.application.runs.node_messages import NodeMessages
from wtb.application.runs.progress import Mark
from wtb.domain.anchor import AnchoredCall
from wtb.domain.checkpoint import Kind, NodeRun, Trigger
from wtb.domain.errors import ExecutionNotFound, InvalidInput, LeaseLost, StorageError, StorageReplaced, WTBError
from wtb.domain.event_body import EventBody
from wtb.domain.event_catalogue import ToolCompleted, ToolFailed, ToolStarted
from wtb.domain.events import Event
from wtb.domain.excerpts import excerpt
from wtb.domain.figures import NO_FIGURES, NOTHING, Figures, Usage
from wtb.domain.ports import Clock, Codec, Storage, UnitOfWork
from wtb.domain.secrets import Masker, unrevealed
from wtb.domain.tools import CallKind, CallStatus, Effects, ToolCall, identity_of
from wtb.domain.values import evolve

_TRIGGERS = {
    (CallKind.TOOL, CallStatus.INTENDED): Trigger.TOOL_START,
    (CallKind.TOOL, CallStatus.SUCCEEDED): Trigger.TOOL_END,
    (CallKind.TOOL, CallStatus.FAILED): Trigger.TOOL_END,
    (CallKind.STEP, CallStatus.SUCCEEDED): Trigger.LLM_CALL,
}
"""The calls that make a checkpoint inside a node when checkpoints are fine-grained."""


_AROUND: ContextVar[tuple[CallJournal | None, str]] = ContextVar("wtb_call", default=(None, ""))
"""The journal and the identity of the call that is being made here."""


class Interruption(BaseException):
    """Leaves a node without a result. It is no Exception, so that a node's `except Exception` does not swallow it."""


class Asked(Interruption):
    """The node waits for a person's answer."""

    def __init__(self, call: ToolCall) -> None:
        super().__init__(call.tool)
        self.call = call


class InDoubt(Interruption):
    """An earlier attempt began an external call, and it is unknown whether the call happened."""

    def __init__(self, call: ToolCall) -> None:
        super().__init__(call.identity)
        self.call = call


class ContextRevoked(WTBError):
    """The node was given up because its time was over; its further calls have no effect."""


class CallJournal:
    """The record of one node run, used by one attempt after the other.

    Each intent and each result is a transaction of its own, fenced by the lease. It is thread-safe: tools may be called
    concurrently, so a call is recognised by its identity, never by its order.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        codec: Codec,
        run: NodeRun,
        *,
        token: int | None,
        masker: Masker,
        files: NodeFiles,
        mark: Mark | None = None,
        fine_grained: bool = False,
        place: Callable[[], tuple[int, int]],
        note: Callable[[NodeRun, ToolCall], None],
        lost: dict[str, AnchoredCall],
        answered: frozenset[str] = frozenset(),
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._codec = codec
        self._token = token
        self._masker = masker
        self._files = files
        self._mark = mark
        self._fine_grained = fine_grained
        self._place = place
        self._note = note
        self._answered = answered
        """Tools that mocks or recordings answer: every other job gets the same answers."""
        self._lost = lost
        """Calls of this visit that the store has lost, by identity; a call is removed once it is recorded again."""
        self._lock = threading.Lock()
        self._calls: dict[str, ToolCall] = {}
        self._asked: set[str] = set()
        self._given: set[str] = set()
        """Calls that were answered with their recorded result."""
        self._earlier: set[str] = set()
        """Calls that earlier attempts made, whose results this one has not asked for yet."""
        self._occurrences: Counter[str] = Counter()
        self._begun: dict[str, CallInFlight] = {}
        """External calls that this attempt has begun."""
        self._revoked = False
        self._before = run.figures or NO_FIGURES
        self._used: dict[str, Usage] = {}
        """What was used inside each call of this attempt."""
        self._owes_figures = False
        """Whether the node run has figures that are not stored yet."""
        self._recalled = NOTHING
        """What earlier attempts used for the results that this attempt took from them."""
        self._recalled_ms = 0.0
        self._errors = 0
        self._messages: NodeMessages | None = None
        self.run = run
        self.spent = NOTHING
        """What this attempt has used."""

    def load(self, ended: Sequence[ToolCall] = ()) -> None:
        """Load the calls of earlier attempts. Tools that write to the workspace run again, since their files are gone.

        `ended` are calls whose end an earlier attempt saw but could no longer record: it is recorded now.
        """
        with self._storage.unit_of_work(readonly=True) as uow:
            calls = uow.tool_calls.list_calls(self.run.execution_id, self.run.id)
        now = self._clock.now()
        self._calls = {call.identity: call.again(now) if call.effects is Effects.WORKSPACE else call for call in calls}
        for call in ended:
            known = self._calls.get(call.identity)
            if known is not None and known.status is CallStatus.INTENDED:  # no one has settled it meanwhile
                self._save(call)
        self._earlier = {id for id, call in self._calls.items() if call.status is CallStatus.SUCCEEDED}

    @property
    def messages(self) -> NodeMessages:
        """The messages that the node emits and logs; made on first use, because most nodes have none."""
        with self._lock:
            if self._messages is None:
                self._messages = NodeMessages(self._storage, self._clock, self._masker, self.run, self._token)
            return self._messages

    def end_messages(self) -> None:
        """Write the messages that the node has emitted and logged; the attempt has ended."""
        if self._messages is not None:
            self._messages.end()

    def use(self, usage: Usage) -> None:
        """Count what the node used, also for the call in which it was used."""
        journal, identity = _AROUND.get()
        with self._lock:
            self.spent += usage
            self._owes_figures = True
            if journal is self:
                self._used[identity] = self._used.get(identity, NOTHING) + usage

    def _recall(self, call: ToolCall) -> None:
        """Count a call of an earlier attempt whose result is used now."""
        if call.identity in self._earlier:
            self._earlier.discard(call.identity)
            self._recalled += call.figures.usage
            self._used[call.identity] = call.figures.usage  # the call around it, made again, counts it as well
            self._recalled_ms += call.ms

    @property
    def usage(self) -> Usage:
        """The usage behind the result: of this attempt, and of the earlier calls whose results it took."""
        return self.spent + self._recalled

    def measured(self) -> NodeRun:
        """Return the node run with the spending of all its attempts so far."""
        if self.spent is NOTHING and not self._errors:
            return self.run
        return self.run.measured(self._figures())

    def completed(self, ms: float) -> NodeRun:
        """Return the node run with its figures; this attempt has succeeded in `ms` milliseconds."""
        return self.run.measured(self._figures(ms=round(ms + self._recalled_ms, 3), usage=self.usage))

    def _figures(self, **of_the_result: Any) -> Figures:
        before = self._before
        return Figures(spent=before.spent + self.spent, tool_errors=before.tool_errors + self._errors, **of_the_result)

    def revoke(self) -> None:
        """Refuse all further calls of a node that was given up; first wait for an intent that is being written."""
        with self._lock:
            self._revoked = True

    def check_current(self) -> None:
        """Raise ContextRevoked if the node was given up, for example because its time is over."""
        if self._revoked:
            raise ContextRevoked(f"node {self.run.node!r} was given up while it waited for a slot of a limit")

    def starting_now(self, call: ToolCall) -> ToolCall:
        """Return a call that begins now, after it has waited."""
        return evolve(call, started_at=self._clock.now())

    def lookup(
        self,
        kind: CallKind,
        tool: str,
        effects: Effects,
        arguments: Mapping[str, Any],
        key: str | None,
        *,
        reversible: bool = False,
    ) -> ToolCall:
        """Return the recorded call with this identity and its result, or a new call."""
        if self._revoked:
            raise ContextRevoked(f"node {self.run.node!r} was given up; its call of {tool!r} is refused")
        arguments = unrevealed(dict(arguments))
        digest = self._codec.digest(self._codec.encode(dict(arguments), f"{tool}()")[1]).hex()[:32]
        around = self._around()
        with self._lock:
            self._occurrences[f"{around}{tool}:{digest}"] += 1
            identity = around + identity_of(tool, digest, self._occurrences[f"{around}{tool}:{digest}"], key)
            self._asked.add(identity)
            known = self._calls.get(identity)
            is_lost = identity in self._lost
            if known is not None and known.status is CallStatus.SUCCEEDED and not is_lost:
                self._given.add(identity)
                self._recall(known)
        if known is not None:
            return self._taken_up(known) if is_lost else known
        call = ToolCall(
            execution_id=self.run.execution_id,
            node_run_id=self.run.id,
            identity=identity,
            sequence=len(self._calls),
            kind=kind,
            tool=tool,
            effects=effects,
            arguments=dict(arguments),
            reversible=reversible if effects is Effects.EXTERNAL else None,
            started_at=self._clock.now(),
        )
        return self._taken_up(call) if is_lost else call

    def _taken_up(self, call: ToolCall) -> ToolCall:
        """Record a call that the store has lost as begun by an earlier attempt: it is in doubt, as after a crash."""
        call = self._intended(call.again(self._lost[call.identity].started_at))
        self._lost.pop(call.identity, None)
        return call

    def _around(self) -> str:
        """Return the prefix for the identity of calls that are made inside another call.

        Once the outer result is recorded, its inner calls are not made again. Without the prefix, equal calls elsewhere
        would be taken for them.
        """
        journal, identity = _AROUND.get()
        return f"{identity}/" if journal is self else ""

    @contextmanager
    def inside(self, call: ToolCall) -> Iterator[None]:
        """Treat calls inside the block as parts of this call."""
        token = _AROUND.set((self, call.identity))
        try:
            yield
        finally:
            _AROUND.reset(token)

    @contextmanager
    def flying(self, call: ToolCall) -> Iterator[None]:
        """Keep other attempts from making this call during the block, if it changes the world."""
        if not _changes_the_world(call):
            yield
            return
        with in_flight(call) as flight:
            self._begun[call.identity] = flight
            yield

    def intend(self, call: ToolCall) -> ToolCall:
        """Record that the call is about to be made. If this fails, the call is not made."""
        return self._intended(call.again(self._clock.now()) if call.identity in self._calls else call)

    def _intended(self, call: ToolCall) -> ToolCall:
        call = self._save(call)
        if _changes_the_world(call):
            try:
                self._note(self.run, call)
            except StorageError as error:
                with suppress(WTBError):
                    self.fail(call, error)  # the call is not made, so it must not be in doubt
                raise
        return call

    def is_recorded(self, call: ToolCall) -> bool:
        """Whether an earlier attempt recorded this call."""
        return call.identity in self._calls

    def settled(self, call: ToolCall, result: Any) -> ToolCall:
        """Record the result and return the call with it."""
        return self._save(self._with_usage(call).succeeded(result, self._clock.now()))

    def _with_usage(self, call: ToolCall) -> ToolCall:
        """Return a call with its usage and that of the calls inside it, which are not made again."""
        inside = [
            usage for id, usage in self._used.items() if id == call.identity or id.startswith(f"{call.identity}/")
        ]
        return call.using(sum(inside, NOTHING)) if inside else call

    def settle(self, call: ToolCall, result: Any) -> Any:
        """Record the result and return it."""
        return self.settled(call, result).result

    def fail(self, call: ToolCall, error: BaseException) -> None:
        """Record that the call failed; it will be made again when the node is tried again."""
        failed = call.failed(self._masker.error(error), self._clock.now())
        if not isinstance(error, Interruption):  # waiting for a person is no failure
            failed = failed.counted_failure()
            with self._lock:
                self._errors += 1
                self._owes_figures = True
        self._save(failed)

    def _save(self, call: ToolCall) -> ToolCall:
        if self._messages is not None:
            self._messages.flush()  # the node's earlier messages are stored before the call
        with self._lock:
            call = self._placed(call)
            if self._revoked:
                self._save_late(call)
            is_new = call.identity not in self._calls
            if is_new:
                self.run = self.run.called_tool()
            self.run = self.measured()
            trigger = _TRIGGERS.get((call.kind, call.status)) if self._fine_grained and self._mark else None
            if trigger is None:
                self._write(call, with_run=is_new or self._owes_figures)
            else:
                self._mark_call(call, trigger=trigger)
            self._owes_figures = False
            self._calls[call.identity] = call
        return call

    def _placed(self, call: ToolCall) -> ToolCall:
        """Return a call with the step at which it starts or ends. No checkpoint may come before it is saved."""
        step, number = self._place()
        if call.status is CallStatus.INTENDED:
            return evolve(call, started_step=step, started_number=number)
        if call.started_step is None:  # it starts and ends at once
            return evolve(call, started_step=step, started_number=number, ended_step=step)
        return evolve(call, ended_step=step)

    def _save_late(self, call: ToolCall) -> NoReturn:
        """Record only the end of a call whose node was given up: the node run now belongs to another attempt.

        A new attempt waits for this end, and then takes the result or makes the call again.
        """
        given_up = f"node {self.run.node!r} was given up"
        if call.status is CallStatus.INTENDED:
            raise ContextRevoked(f"{given_up}; its call of {call.tool!r} is refused")
        if call.identity not in self._begun:
            raise ContextRevoked(f"{given_up}; the result of {call.tool!r} is discarded")
        self._write(call, with_run=False)
        raise ContextRevoked(f"{given_up}; the result of {call.tool!r} is recorded for its next attempt")

    def _write(self, call: ToolCall, *, with_run: bool) -> None:
        with self._storage.unit_of_work() as uow:
            self._check_lease(uow, call)
            if with_run:
                uow.node_runs.save(self.run)
            uow.tool_calls.save(call)
            uow.events.append(self._event(call))
            uow.commit()

    def _check_lease(self, uow: UnitOfWork, call: ToolCall) -> None:
        try:
            uow.executions.check_lease(call.execution_id, self._token)
        except LeaseLost:
            if call.ended_at is not None and call.identity in self._begun:
                self._begun[
                    call.identity
                ].unrecorded = call  # the attempt that has the lease now may wait for it, and then records it
            raise
        except ExecutionNotFound as error:  # a run that is being driven cannot be deleted
            raise StorageReplaced(f"run {call.execution_id!r} is no longer there: {SET_BACK}") from error

    def _mark_call(self, call: ToolCall, **facts: Any) -> None:
        """Record a call with a checkpoint of its own, which holds the files as they are now."""
        assert self._mark is not None
        files = self._files.prepared()

        def write(uow: UnitOfWork, run: NodeRun) -> None:
            uow.tool_calls.save(call)
            uow.events.append(self._event(call))

        self.run = self._mark(self.measured(), files=None if files is None else files.save, also=write, **facts)

    def checkpoint(self, name: str, description: str) -> None:
        """Record a named checkpoint for the node, unless an earlier attempt has made it."""
        if self._mark is None:
            raise InvalidInput(
                f"node {self.run.node!r} runs beside other nodes whose results are not there yet, so a checkpoint "
                f"{name!r} would hold half a step; make it in the node that follows"
            )
        description = self._masker.text(description)
        arguments = {"description": description}
        call = self.lookup(CallKind.CHECKPOINT, "checkpoint", Effects.NONE, arguments, name)
        if call.status is CallStatus.SUCCEEDED:
            return
        done = call.succeeded(None, self._clock.now())
        with self._lock:
            done = self._placed(done)
            facts = {"kind": Kind.MANUAL, "name": name, "description": description}
            self._mark_call(done, trigger=Trigger.USER_REQUEST, **facts)
            self._calls[done.identity] = done

    def _event(self, call: ToolCall) -> Event:
        """Return the event for a call, without the result, which may be large or secret."""
        return Event.of(self._body(call), stream=call.execution_id, at=call.ended_at or call.started_at)

    def _body(self, call: ToolCall) -> EventBody:
        facts: dict[str, Any] = {"node": self.run.node, "visit": self.run.visit}
        facts |= {"tool": call.tool, "call": call.identity, "error": call.error}
        if call.status is CallStatus.INTENDED:
            return ToolStarted(arguments=excerpt(dict(call.arguments), self._masker) or None, **facts)
        event_type = ToolCompleted if call.status is CallStatus.SUCCEEDED else ToolFailed
        return event_type(ms=round(call.ms, 3), **facts)

    def answered(self) -> list[ToolCall]:
        """Return the questions that people have answered, in the order of asking."""
        found = [call for call in self._calls.values() if call.kind is CallKind.ASK]
        return sorted((call for call in found if call.status is CallStatus.SUCCEEDED), key=lambda call: call.sequence)

    def unshareable(self) -> str | None:
        """Return why other runs must not take the result of this node run; None if they may."""
        for call in self._calls.values():
            if call.kind is CallKind.ASK:
                return "it asked a person"
            if call.kind is CallKind.TOOL and call.effects is Effects.EXTERNAL and call.tool not in self._answered:
                return f"it called {call.tool}, an external tool"
        return None

    def unasked(self) -> tuple[ToolCall, ...]:
        """Return external calls of an earlier attempt that this one asked for neither directly nor by an outer call."""
        inside = tuple(f"{identity}/" for identity in self._given)
        return tuple(
            call
            for identity, call in self._calls.items()
            if identity not in self._asked
            and not identity.startswith(inside)
            and call.effects is Effects.EXTERNAL
            and call.status is CallStatus.SUCCEEDED
            and call.kind is CallKind.TOOL
        )

    def unasked_lost(self) -> tuple[AnchoredCall, ...]:
        """Return calls that the store has lost and that this attempt never asked for."""
        return tuple(call for identity, call in self._lost.items() if identity not in self._asked)


@dataclass(frozen=True, slots=True)
class Unawaited:
    """A call whose function returned a coroutine, which has yet to be awaited."""

    call: ToolCall
    coroutine: Coroutine[Any, Any, Any]


def made(journal: CallJournal, call: ToolCall, function: Callable[[], Any], *, is_awaited: bool = False) -> Any:
    """Record the intent, call the function and record its result; or return the recorded result if there is one.

    With `is_awaited`, the caller awaits the coroutine that the function returns, and settles the call.
    """
    if call.status is CallStatus.SUCCEEDED:
        return call.result
    with journal.flying(call):
        call = journal.intend(call)
        try:
            with journal.inside(call):
                result = function()
        except (
            Exception,
            SystemExit,
            Interruption,
        ) as error:  # a call inside it asks or is in doubt: this one has ended
            journal.fail(call, error)
            raise
        if is_awaited and inspect.iscoroutine(result):
            return Unawaited(call, result)
        return journal.settle(call, result)


def _changes_the_world(call: ToolCall) -> bool:
    return call.kind is CallKind.TOOL and call.effects is Effects.EXTERNAL
