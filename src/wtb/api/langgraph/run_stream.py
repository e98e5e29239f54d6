"""ClientRunStream: what one client hears of a run, live from its worker, until the run has ended.

A client that is cut off connects again and names its last message; the run does not notice. When the server stops, the
stream ends without the event `end`, and clients connect to the next server, where the run goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from wtb.api.access import find_caller
from wtb.api.command_answers import ended
from wtb.api.feed import CHECK_S, HEARTBEAT_S, SEND_S
from wtb.api.langgraph.parts import LangGraphParts, text_of
from wtb.application.server.thread_runs import was_cancelled
from wtb.domain.access import Caller
from wtb.domain.commands import Command
from wtb.domain.errors import ReaderTooSlow, ServerStopping, Unauthenticated, WTBError
from wtb.infrastructure.langgraph.clients.views import CheckpointPlace

_LOOK_S = 1.0
"""How often a stream looks whether its run has ended: another server may carry it out."""

_WAIT_S = 5.0
"""How often a client that waits hears that the run goes on."""

Leave = Callable[[], object]
"""What happens when a client leaves before the end."""


class ClientRunStream:
    """The messages of a run for one client. It asks again and again whether the client may still listen."""

    def __init__(self, graphs: LangGraphParts, connection: HTTPConnection, caller: Caller, command: Command) -> None:
        self._graphs = graphs
        self._connection = connection
        self._caller = caller
        self._command = command
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._has_spoken = False
        self.modes: Collection[str] | None = None
        """The modes that the client wants; None for all that the run streams."""

    async def frames(self, after: str | None, first: str = "") -> AsyncIterator[str]:
        """Yield Server-Sent Events, `first` before all others; `after` names the last one that the client has."""
        streams = self._graphs.server.dispatcher.streams
        follower = streams.follow(self._command.id, self._wake, after=after)
        forget = self._graphs.server.commands.when_ended(self._command.id, self._wake)
        spoke_at = checked_at = self._loop.time()
        try:
            if first:
                yield first
            while True:
                self._woken.clear()
                is_last = await self._is_over()  # before the messages are taken: then none can come after them
                found = follower.take()
                if found is None:
                    raise ReaderTooSlow("the client was too slow, and missed messages of the run; read its state")
                for each in found:
                    if self._is_wanted(each.event):
                        self._has_spoken = True
                        yield f"id: {streams.name_of(each)}\nevent: {each.event}\ndata: {each.data}\n\n"
                now = self._loop.time()
                if found:
                    spoke_at = now
                elif now - spoke_at >= HEARTBEAT_S:
                    yield ": heartbeat\n\n"
                    spoke_at = now
                if is_last:
                    break
                if now - checked_at >= CHECK_S:
                    await self._check()
                    checked_at = now
                if not found:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._woken.wait(), _LOOK_S)
            async for frame in self._ending():
                yield frame
        finally:
            forget()
            follower.close()

    async def _is_over(self) -> bool:
        """Whether the run has ended and its worker has said everything."""
        if self._graphs.parts.stopping.is_set():
            raise ServerStopping("the server is stopping; connect again to follow the run")
        server = self._graphs.server
        if not self._command.has_ended and not server.dispatcher.has(self._command.id):
            self._command = await run_in_threadpool(self._graphs.runs.get, str(self._command.subject), self._command.id)
        return self._command.has_ended and not server.dispatcher.has(self._command.id)

    async def _ending(self) -> AsyncIterator[str]:
        if self._command.error is not None and not was_cancelled(self._command):
            yield sse("error", error_of(self._command))
        elif not self._has_spoken and self._is_wanted("values"):  # another server carried it out
            yield sse("values", await run_in_threadpool(final_values, self._graphs, self._command))
        yield sse("end", None)

    async def _check(self) -> None:
        caller = await run_in_threadpool(find_caller, self._connection, self._graphs.parts)
        if caller != self._caller:
            raise Unauthenticated("the token or session was revoked, has expired or was changed; sign in again")

    def _is_wanted(self, event: str) -> bool:
        mode = event.partition("|")[0]
        return self.modes is None or mode in self.modes or (mode == "messages" and "messages-tuple" in self.modes)

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._woken.set)


class LiveAnswer(Response):
    """An answer that lasts as long as a run. When the server stops, it breaks off, and clients ask the next server."""

    def __init__(
        self, frames: AsyncIterator[str], headers: Mapping[str, str], media_type: str, if_left: Leave | None = None
    ) -> None:
        no_store = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(headers={**no_store, **headers}, media_type=media_type)
        del self.headers["content-length"]
        self._frames = frames
        self._if_left = if_left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def write(text: str, *, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": text.encode(), "more_body": more})

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        sending = asyncio.ensure_future(self._send_all(write))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                if not isinstance(reason := sending.result(), ServerStopping):
                    last = "" if reason is None else sse("error", problem(reason))
                    with suppress(TimeoutError, OSError, RuntimeError):
                        await asyncio.wait_for(write(last, more=False), 1)
            elif self._if_left is not None:
                with suppress(WTBError):
                    await run_in_threadpool(self._if_left)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send_all(self, write: Callable[[str], Awaitable[None]]) -> WTBError | None:
        try:
            async for frame in self._frames:
                await asyncio.wait_for(write(frame), SEND_S)
        except TimeoutError:
            return ReaderTooSlow(f"the client took nothing for {SEND_S:g} s; connect again to follow the run")
        except WTBError as error:
            return error
        except (OSError, RuntimeError):  # the client has gone
            return None
        return None


async def values_at_end(graphs: LangGraphParts, command: Command) -> AsyncIterator[str]:
    """Yield the values at the end of a run as JSON, and until then blank lines, so that nobody gives up."""
    while not command.has_ended:
        command = await ended(graphs.server.commands, command, _WAIT_S, graphs.parts.stopping)
        if not command.has_ended:
            if graphs.parts.stopping.is_set():
                raise ServerStopping("the server is stopping; connect again to wait for the run")
            yield "\n"
    yield text_of(await run_in_threadpool(final_values, graphs, command))


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def sse(event: str, data: Any) -> str:
    """Return one Server-Sent Event."""
    return f"event: {event}\ndata: {text_of(data)}\n\n"


def problem(error: WTBError) -> dict[str, str]:
    """Return an error as LangGraph's clients read it."""
    return {"error": type(error).__name__, "message": str(error)}


def error_of(command: Command) -> dict[str, Any]:
    """Return why a run failed, as LangGraph's clients read it: the error of the graph, if it has failed by itself."""
    error = command.error or {}
    told = error.get("cause") or error
    return {"error": str(told.get("type")), "message": str(told.get("message"))}


def final_values(graphs: LangGraphParts, command: Command) -> Any:
    """Return the values of a thread after a run, with the questions that it asks; or why the run failed."""
    if command.error is not None and not was_cancelled(command):
        return {"__error__": error_of(command)}
    state = graphs.states.get(CheckpointPlace(thread_id=str(command.subject)))
    asked = {"__interrupt__": state.interrupts} if state.interrupts else {}
    return {**state.values, **asked}
