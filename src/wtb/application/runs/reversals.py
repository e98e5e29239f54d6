"""Reversals: undoes tool calls, or repeats them, with a journal entry before and after each."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from enum import StrEnum
from typing import Any

from wtb.application.runs.callers_loop import finished
from wtb.application.runs.calls_in_flight import is_in_flight
from wtb.domain.anchor import Act, AnchoredCall
from wtb.domain.errors import InvalidInput, WTBError
from wtb.domain.event_catalogue import ToolCompleted, ToolFailed, ToolReversed, ToolStarted
from wtb.domain.events import Event
from wtb.domain.ports import CallAnchor, Clock, Codec, Storage
from wtb.domain.rollback import can_reverse
from wtb.domain.secrets import Masker
from wtb.domain.tools import CallStatus, Tool, ToolCall, WhenInDoubt
from wtb.domain.values import evolve

_CallEvent = type[ToolStarted] | type[ToolCompleted] | type[ToolFailed] | type[ToolReversed]


class ReversalFailed(WTBError):
    """A call could not be undone; it is still in effect."""


class ReversalInDoubt(InvalidInput):
    """A process died while it undid or repeated a call, and it is unknown whether that happened."""


class RedoDiverged(WTBError):
    """A repeated call gave another result than before."""


class Doubt(StrEnum):
    """A person's decision about a reversal whose outcome is unknown."""

    AGAIN = "again"
    DONE = "done"


class Reversals:
    """Reverses and repeats recorded tool calls; every write is fenced by the lease of the run."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        codec: Codec,
        find_tool: Callable[[str], Tool],
        masker: Masker,
        *,
        anchor: CallAnchor,
        user: str | None = None,
    ) -> None:
        self._storage = storage
        self._anchor = anchor
        self._clock = clock
        self._codec = codec
        self._find_tool = find_tool
        self._masker = masker
        self._user = user

    def acting_for(self, user: str | None) -> Reversals:
        """Return the same service, with events that name this user."""
        other = copy(self)
        other._user = user
        return other

    def find_tool(self, name: str) -> Tool | None:
        """Return a registered tool; None for a plain function, of which nothing is known."""
        with suppress(InvalidInput):
            return self._find_tool(name)
        return None

    def can_reverse(self, call: ToolCall) -> bool:
        """Whether the call may be in effect and its tool can undo it."""
        return call.may_have_happened and can_reverse(call, self.find_tool(call.tool))

    def reverse(self, call: ToolCall, token: int | None, doubt: Doubt | None = None, *, rollback_id: str = "") -> None:
        """Undo a call if it is in effect."""
        if call.status in (CallStatus.FAILED, CallStatus.REVERSED):
            return
        tool = self.find_tool(call.tool)
        if tool is None or tool.reverse is None:
            raise InvalidInput(f"there is no tool {call.tool!r} with reverse= in this process; import its module first")
        if call.status is CallStatus.INTENDED and is_in_flight(call):
            raise ReversalFailed(
                f"{call.tool} ({call.identity}) is still being called by a node that was given up, and cannot be "
                "undone before that call has ended; try again then"
            )
        if self._was_lost(call, Act.REVERSAL):
            call = call.reversing()
        if call.status is CallStatus.REVERSING and not self._is_to_be_repeated(call, tool, doubt):
            self._save(call.reversed(), token, ToolReversed)
            return
        if call.status is CallStatus.INTENDED and tool.confirm is not None and not tool.spec.reverse_in_doubt:
            result = finished(call.tool, tool.confirm(call))
            if result is None:  # it never happened
                self._save(call.failed("never happened", self._clock.now()), token, None)
                return
            call = call.succeeded(result, self._clock.now())
        self._save(call.reversing(), token, None)
        try:
            self._note(call, Act.REVERSAL, rollback_id)
            finished(call.tool, tool.reverse(call))
        except Exception as error:
            error_text = self._masker.error(error)
            self._save(call.not_reversed(error_text), token, ToolFailed)
            raise ReversalFailed(f"{call.tool} ({call.identity}) could not be undone: {error_text}") from error
        self._save(call.reversed(), token, ToolReversed)

    def repeat(self, call: ToolCall, token: int | None, redo_id: str, doubt: Doubt | None = None) -> None:
        """Repeat an undone call with the same arguments; its result must be the same as before."""
        tool = self.find_tool(call.tool)
        if tool is None:
            raise InvalidInput(f"there is no tool {call.tool!r} in this process to call again; import its module first")
        if call.status is CallStatus.SUCCEEDED and call.error is not None:  # a process found this out, and died then
            raise RedoDiverged(call.error)
        if self._was_lost(call, Act.REPEAT):
            call = call.redoing()
        if call.status is CallStatus.REDOING and not self._is_to_be_repeated(call, tool, doubt):
            self._save(call.redone(), token, ToolCompleted)
            return
        if call.status not in (CallStatus.REVERSED, CallStatus.REDOING) or call.ended_at is None:
            return  # it was never known whether an unfinished call happened: the run makes it when it continues
        self._save(call.redoing(), token, ToolStarted)
        try:
            self._note(call, Act.REPEAT, redo_id)
            result = self._called(tool, call, redo_id)
        except Exception as error:
            error_text = self._masker.error(error)
            self._save(evolve(call.reversed(), error=error_text), token, ToolFailed)
            raise RedoDiverged(
                f"{call.tool} ({call.identity}) failed when it was called again: {error_text}"
            ) from error
        if self._are_same(result, call.result):
            self._save(call.redone(), token, ToolCompleted)
            return
        error_text = (
            f"{call.tool} ({call.identity}) gave {result!r} when it was called again, and {call.result!r} before"
        )
        self._save(call.diverged(error_text), token, ToolCompleted)
        self._take_back_other(tool, call, result, error_text)
        self._save(evolve(call.reversed(), error=error_text), token, ToolReversed)
        raise RedoDiverged(error_text)

    def _was_lost(self, call: ToolCall, act: Act) -> bool:
        """Whether the store has lost the record of such an act on this call, so that its end is unknown."""
        key = (call.node_run_id, call.identity, act)
        lost = self._anchor.list_lost(call.execution_id)
        return any((each.node_run_id, each.identity, each.act) == key for each in lost)

    def _note(self, call: ToolCall, act: Act, rollback_id: str) -> None:
        with self._storage.unit_of_work(readonly=True) as uow:
            execution = uow.executions.get(call.execution_id)
            run = uow.node_runs.get(call.execution_id, call.node_run_id)
        self._anchor.note(AnchoredCall.of(execution, run, call, act, rollback_id))

    def _take_back_other(self, tool: Tool, call: ToolCall, result: Any, error_text: str) -> None:
        """Undo a call whose result differs from the recorded one; `reverse` must get the new result."""
        try:
            assert tool.reverse is not None
            finished(call.tool, tool.reverse(evolve(call, result=result)))
        except Exception as error:
            why = self._masker.error(error)
            raise ReversalFailed(f"{error_text}; that could not be undone: {why}") from error

    def _called(self, tool: Tool, call: ToolCall, redo_id: str) -> Any:
        arguments = dict(call.arguments)
        if tool.takes_key:  # use another key, because the receiver has seen the first one
            arguments["idempotency_key"] = uuid.uuid5(uuid.NAMESPACE_OID, f"{redo_id}/{call.identity}").hex
        return finished(call.tool, tool.function(**arguments))

    def _are_same(self, one: Any, other: Any) -> bool:
        return self._codec.encode(one, "result")[1] == self._codec.encode(other, "result")[1]

    def _is_to_be_repeated(self, call: ToolCall, tool: Tool, doubt: Doubt | None) -> bool:
        """Whether an act that began before a crash is to be done again: the tool decides if it can, else a person."""
        if tool.confirm is not None:
            is_in_effect = finished(call.tool, tool.confirm(call)) is not None
            return is_in_effect if call.status is CallStatus.REVERSING else not is_in_effect
        if tool.spec.in_doubt is WhenInDoubt.RUN_AGAIN or doubt is Doubt.AGAIN:
            return True
        if doubt is Doubt.DONE:
            return False
        begun = "taken back" if call.status is CallStatus.REVERSING else "made again"
        raise ReversalInDoubt(
            f"{call.tool} ({call.identity}) was being {begun} when its process died; find out whether that happened, "
            "and say so: `--in-doubt done` if it did, `--in-doubt again` if not"
        )

    def _save(self, call: ToolCall, token: int | None, event_type: _CallEvent | None) -> None:
        with self._storage.unit_of_work() as uow:
            uow.executions.check_lease(call.execution_id, token)
            uow.tool_calls.save(call)
            if event_type is not None:
                body = event_type(tool=call.tool, call=call.identity, error=call.error or None, by=self._user)
                uow.events.append(Event.of(body, stream=call.execution_id, at=self._clock.now()))
            uow.commit()
