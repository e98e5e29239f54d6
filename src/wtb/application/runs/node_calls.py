"""NodeCalls: makes the outside calls of one node run and records them, for nodes and for engines."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from typing import Any

from wtb.application.runs.about_calls import asked
from wtb.application.runs.journal import Asked, CallJournal, InDoubt, Interruption, Unawaited, made
from wtb.application.runs.run_limits import RunLimits
from wtb.application.runs.threads import in_background, in_thread
from wtb.application.runs.tool_answers import PreparedCall, ToolAnswers
from wtb.domain.anchor import first_id
from wtb.domain.ports import Measure, Telemetry, measured
from wtb.domain.tools import CallKind, CallStatus, Effects, Tool, ToolCall, WhenInDoubt


class NodeCalls:
    """Looks each call up in the journal, makes it unless its result is recorded, and records its end."""

    def __init__(self, journal: CallJournal, telemetry: Telemetry, answers: ToolAnswers, limits: RunLimits) -> None:
        self.journal = journal
        self.telemetry = telemetry
        self.answers = answers
        self.limits = limits

    def tool(self, tool: Tool, arguments: Mapping[str, Any], key: str | None = None) -> ToolCall:
        """Return the call of a tool: the recorded one with its result, or one that is to be made."""
        effects = self.answers.effects(tool)
        call = self.journal.lookup(
            CallKind.TOOL, tool.spec.name, effects, arguments, key, reversible=tool.reverse is not None
        )
        return self._resolved(tool, call) if call.status is CallStatus.INTENDED and call.ended_at is None else call

    def step(self, key: str, args: tuple[Any, ...]) -> ToolCall:
        """Return the call of a recorded step."""
        return self.journal.lookup(CallKind.STEP, key, Effects.NONE, {"args": list(args)}, None)

    def ask(self, arguments: Mapping[str, Any]) -> Any:
        """Return the answer to a question; raise Asked, which pauses the run, if nobody has answered yet.

        The code that catches Asked records the question, because an async node must not write on its event loop.
        """
        call = self.journal.lookup(CallKind.ASK, "ask", Effects.NONE, arguments, None)
        if call.status is CallStatus.SUCCEEDED:
            return call.result
        raise Asked(call)

    def make(self, call: ToolCall, function: Callable[[], Any], limit: str | None = None) -> Any:
        """Make a call and return its result; if the result is already recorded, do not call the function.

        With `limit`, the call holds a slot of that limit. It waits for the slot before its intent is recorded: a call
        that only waits has not begun.
        """
        if call.status is CallStatus.SUCCEEDED:
            return call.result
        prepared = self.answers.prepared(self.journal.run, call, function)
        make = measured(self.telemetry, Measure.CALL, call.tool, made)
        if limit is None or prepared.is_answered:
            return make(self.journal, prepared.call, prepared.function)
        with self._slot(prepared, limit):
            return make(self.journal, self.journal.starting_now(prepared.call), prepared.function)

    @contextmanager
    def _slot(self, prepared: PreparedCall, limit: str) -> Iterator[None]:
        with ExitStack() as stack:
            try:
                stack.enter_context(self.limits.hold(limit, self.journal.check_current))
            except BaseException:
                prepared.let_go()
                raise
            yield

    @asynccontextmanager
    async def _aslot(self, prepared: PreparedCall, limit: str | None) -> AsyncIterator[ToolCall]:
        """Return the call to make, once it has a slot if it needs one."""
        if limit is None or prepared.is_answered:
            yield prepared.call
            return
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self.limits.ahold(limit, self.journal.check_current))
            except BaseException:
                in_background(prepared.let_go)
                raise
            yield self.journal.starting_now(prepared.call)

    async def make_either(self, call: ToolCall, function: Callable[[], Any], limit: str | None = None) -> Any:
        """Like `make`, in async code, for a function that may be sync. A sync function runs on a thread.

        The thread records the end of the call. It continues even if the node is cancelled, so the end is always
        recorded.
        """
        if inspect.iscoroutinefunction(function):
            return await self.amake(call, function, limit)
        if call.status is CallStatus.SUCCEEDED:
            return call.result
        prepared = await in_thread(self.answers.prepared, self.journal.run, call, function)
        async with self._aslot(prepared, limit) as ready:
            return await self._made_either(ready, prepared.function)

    async def _made_either(self, call: ToolCall, function: Callable[[], Any]) -> Any:
        with self._span(call):
            returned = await in_thread(made, self.journal, call, function, is_awaited=True)
            if isinstance(returned, Unawaited):
                return await self._awaited(returned.call, lambda: returned.coroutine)
            return returned

    async def amake(self, call: ToolCall, function: Callable[[], Any], limit: str | None = None) -> Any:
        """Like `make`, for a function that is awaited."""
        if call.status is CallStatus.SUCCEEDED:
            return call.result
        prepared = await in_thread(self.answers.prepared, self.journal.run, call, function)
        async with self._aslot(prepared, limit) as ready:
            with self._span(ready):
                return await self._awaited(await in_thread(self.journal.intend, ready), prepared.function)

    def _span(self, call: ToolCall) -> AbstractContextManager[None]:
        return self.telemetry.span(Measure.CALL, call.tool) if self.telemetry.is_on else nullcontext()

    async def _awaited(self, call: ToolCall, function: Callable[[], Any]) -> Any:
        """Await a call whose intent is recorded, and record its end; if it is cancelled, it stays in doubt."""
        with self.journal.flying(call):
            try:
                with self.journal.inside(call):
                    result = function()
                    if inspect.isawaitable(result):  # the mock of an async tool may be sync
                        result = await result
            except (Exception, SystemExit, Interruption) as error:
                await in_thread(self.journal.fail, call, error)
                raise
            return await in_thread(self.journal.settle, call, result)

    def _resolved(self, tool: Tool, call: ToolCall) -> ToolCall:
        """Decide what to do about a call that an earlier attempt began and did not finish."""
        if not self.journal.is_recorded(call) or call.effects is Effects.NONE:
            return call
        known = self.answers.find_own(self.journal.run, call)
        if known is not None:
            return self.journal.settled(call, known.result)
        with self.journal.flying(call):  # a later attempt must not settle it at the same time
            decided = self._decided(tool, call)
        if decided.status is CallStatus.SUCCEEDED:
            self.answers.keep_own(self.journal.run, decided)
        return decided

    def _decided(self, tool: Tool, call: ToolCall) -> ToolCall:
        match tool.spec.in_doubt:
            case WhenInDoubt.RUN_AGAIN:
                return call
            case WhenInDoubt.CONFIRM:
                assert tool.confirm is not None
                result = asked(tool.confirm, call)
                return call if result is None else self.journal.settled(call, result)
            case WhenInDoubt.REVERSE:
                assert tool.reverse is not None
                asked(tool.reverse, call)
                return call
            case WhenInDoubt.PAUSE:
                raise InDoubt(call)


def with_idempotency_key(tool: Tool, call: ToolCall) -> Callable[..., Any]:
    """Return the function of a tool, with the idempotency key of this call if it takes one."""
    if not tool.takes_key:
        return tool.function
    key = uuid.uuid5(uuid.NAMESPACE_OID, f"{call.execution_id}/{first_id(call.node_run_id)}/{call.identity}").hex

    def with_key(*args: Any, **kwargs: Any) -> Any:
        return tool.function(*args, idempotency_key=key, **kwargs)

    return with_key
