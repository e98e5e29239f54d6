"""CallersLoop: the event loop of the program that awaits a run. Only the coroutines of async nodes run on it.

A thread drives the run and does all the writing. Decision 20 says why.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

from wtb.application.runs.journal import Interruption

Found = TypeVar("Found")

_LOOK_S = 0.1
"""How often a thread that waits for a coroutine checks whether its loop was closed; nothing reports that."""


class LoopGone(Interruption):
    """The caller's event loop does not finish the coroutine of a node, so the run pauses."""


class OutOfTime(Exception):
    """A coroutine took too long."""


class CallersLoop:
    """The loop of one `await bench.arun(…)`, seen from the threads that work for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._under_way: set[Future[Any]] = set()
        self._is_cancelled = False

    def is_here(self) -> bool:
        """Whether this is the loop's thread: if it waited for a coroutine on the loop, it would wait for itself."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def result(self, name: str, coroutine: Coroutine[Any, Any, Any], timeout_s: float | None) -> Any:
        """Run a coroutine on the loop and wait for its result; raise OutOfTime if it takes too long."""
        future = self._submitted(name, coroutine)
        self._under_way.add(future)
        if self._is_cancelled:  # cancelled just before the future was in the set
            future.cancel()
        try:
            return self._waited_for(name, future, timeout_s)
        except CancelledError:
            raise LoopGone(f"the coroutine of {name!r} was cancelled") from None
        finally:
            self._under_way.discard(future)
            if not self._loop.is_closed():
                future.cancel()  # matters only if its time is over: otherwise it has ended

    def _submitted(self, name: str, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise self._closed(name) from None

    def _waited_for(self, name: str, future: Future[Any], timeout_s: float | None) -> Any:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = _LOOK_S if deadline is None else min(_LOOK_S, max(0.0, deadline - time.monotonic()))
            try:
                return future.result(left_s)
            except FutureTimeoutError:
                if future.done():
                    return future.result()  # or the node's own TimeoutError
                if self._loop.is_closed():
                    raise self._closed(name) from None
                if deadline is not None and time.monotonic() >= deadline:
                    raise OutOfTime from None

    def _closed(self, name: str) -> LoopGone:
        return LoopGone(f"the event loop was closed before {name!r} had ended")

    def cancel(self) -> None:
        """Cancel the coroutines that are running, and those that come later."""
        self._is_cancelled = True
        for future in tuple(self._under_way):
            future.cancel()

    def tell(self, callback: Callable[[], None]) -> None:
        """Call a function on the loop; do nothing if the loop is closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)


CALLERS_LOOP: ContextVar[CallersLoop | None] = ContextVar("wtb_callers_loop", default=None)
"""The loop that async nodes run on here; None for WTB's own loop."""


def finished(name: str, returned: Any) -> Any:
    """Return what a function has returned; if it is a coroutine, run it first: on the caller's loop, or on a new one.

    So `reverse` and `confirm` of a tool may be async. A coroutine that nobody runs would look like a success.
    """
    if not inspect.iscoroutine(returned):
        return returned
    callers = CALLERS_LOOP.get()
    if callers is not None and not callers.is_here():
        return callers.result(name, returned, None)
    with ThreadPoolExecutor(1) as thread:  # this one may have a loop that runs
        return thread.submit(asyncio.run, returned).result()


@contextmanager
def off_blocked_loop() -> Iterator[None]:
    """Use WTB's own loop inside the block if this thread blocks the caller's loop.

    This happens when an async node calls `bench.run` and waits, instead of awaiting `bench.arun`.
    """
    callers = CALLERS_LOOP.get()
    if callers is None or not callers.is_here():
        yield
        return
    token = CALLERS_LOOP.set(None)
    try:
        yield
    finally:
        CALLERS_LOOP.reset(token)


async def awaited(work: Callable[[], Found], pause: Callable[[], None]) -> Found:
    """Do work on a thread and return its result; its async nodes run on this loop.

    If the awaiting task is cancelled, `pause` asks the work to end at its next boundary. The task waits for that, and
    is cancelled then. If it is cancelled a second time, the coroutines of nodes are cancelled, too.
    """
    loop = asyncio.get_running_loop()
    callers, done = CallersLoop(loop), loop.create_future()
    _begin(work, callers, done)
    cancelled: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError as error:
            if cancelled is None:
                pause()
            else:
                callers.cancel()
            cancelled = cancelled or error
    if cancelled is not None:
        raise cancelled from done.exception()
    found: Found = done.result()
    return found


def _begin(work: Callable[[], Any], callers: CallersLoop, done: asyncio.Future[Any]) -> None:
    """Start a thread with the caller's context variables. It is a daemon, because a node may never return."""
    context = contextvars.copy_context()
    context.run(CALLERS_LOOP.set, callers)

    def run() -> None:
        try:
            result = context.run(work)
        except BaseException as error:  # noqa: BLE001  it is raised again where the result is awaited
            callers.tell(partial(_settle, done, None, error))
        else:
            callers.tell(partial(_settle, done, result, None))

    threading.Thread(target=run, name="wtb-run", daemon=True).start()


def _settle(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
