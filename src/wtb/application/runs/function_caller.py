"""FunctionCaller: calls a node's function, sync or async, with its timeout and its retries."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import random
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from wtb.application.runs.callers_loop import CALLERS_LOOP, OutOfTime
from wtb.application.runs.state_view import StateView
from wtb.application.runs.tracebacks import own_traceback
from wtb.domain.copies import IMMUTABLE
from wtb.domain.errors import InvalidInput, WTBError
from wtb.domain.execution import Failure
from wtb.domain.secrets import text_of
from wtb.domain.workflow import Node, RetryPolicy

if TYPE_CHECKING:
    from wtb.application.runs.environments import Environments

_LET_GO_S = 1.0
"""How long coroutines that were given up may take to clean up when the loop is closed."""


class NodeTimeout(WTBError, TimeoutError):
    """A node did not finish within its timeout_s."""


class RunTimeout(WTBError, TimeoutError):
    """The run took longer than its timeout_s."""

    def __init__(self, timeout_s: float, node: str | None = None) -> None:
        place = "" if node is None else f", in node {node!r}"
        super().__init__(f"the run took longer than its timeout of {timeout_s:g} s{place}")


class EventLoopThread:
    """An event loop on a thread of WTB's own, so that async nodes run in scripts and notebooks alike."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def is_here(self) -> bool:
        """Whether this is the loop's thread."""
        return self._thread is threading.current_thread()

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._running_loop())

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run_forever, args=(self._loop,), name="wtb-loop", daemon=True)
                self._thread.start()
            return self._loop

    def close(self) -> None:
        """Stop the loop. Coroutines that still run on it were given up before; they get a moment to clean up.

        If a node blocks the loop, the thread lives on as a daemon until the node returns.
        """
        with self._lock:
            if self._loop is not None and self._thread is not None:
                asyncio.run_coroutine_threadsafe(_let_go(), self._loop)
                self._thread.join(2 * _LET_GO_S)
                self._loop = None


async def _let_go() -> None:
    """Cancel everything else on this loop, wait a limited time for its end, and stop the loop."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        if not task.cancelling():  # a second cancellation would interrupt its clean-up
            task.cancel()
    if others:
        await asyncio.wait(others, timeout=_LET_GO_S)
    asyncio.get_running_loop().stop()


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop until it is stopped. A node that calls `exit` breaks out of it; the other nodes must go on."""
    while not loop.is_closed():
        with suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()
            loop.close()


class FunctionCaller:
    """Calls the functions of nodes. It deals with threads and loops, and records nothing."""

    def __init__(self, *, sleep: Callable[[float], None], environments: Environments | None = None) -> None:
        self._sleep = sleep
        self._environments = environments
        self._loop = EventLoopThread()

    def call(self, node: Node, state: StateView, context: Any, timeout_s: float | None) -> Mapping[str, Any]:
        """Call the function once and return a private copy of its update."""
        function = node.function
        if function is None:
            raise InvalidInput(f"node {node.name!r} has no function; import {node.reference!r} before running")
        if node.environment is not None:
            if not node.environment.is_in_process:
                return self._outside(node, state, context, timeout_s)
            timeout_s = least(timeout_s, node.environment.timeout_s)
        arguments = (state, context) if takes_context(function) else (state,)
        if timeout_s is not None and not inspect.iscoroutinefunction(function):
            returned = self._in_thread(node.name, partial(function, *arguments), timeout_s)
        else:
            returned = function(*arguments)
        if type(returned) is not dict and inspect.iscoroutine(returned):
            returned = self._awaited(node.name, returned, timeout_s)
        return _checked(node, returned, state)

    def _outside(self, node: Node, state: StateView, context: Any, timeout_s: float | None) -> Mapping[str, Any]:
        """Call the function in the environment of its node."""
        if self._environments is None:
            raise InvalidInput(f"node {node.name!r} has an environment, and runs in one already; call it without")
        return self._environments.call(node, state, context, timeout_s, self)

    def run(self, name: str, function: Callable[[], Any], timeout_s: float | None) -> Any:
        """Call a function that is no WTB node, such as an evaluator, and wait for it if it returns a coroutine."""
        is_sync = not inspect.iscoroutinefunction(function)
        returned = function() if timeout_s is None or not is_sync else self._in_thread(name, function, timeout_s)
        return self._awaited(name, returned, timeout_s) if inspect.iscoroutine(returned) else returned

    def _awaited(self, name: str, coroutine: Coroutine[Any, Any, Any], timeout_s: float | None) -> Any:
        callers = CALLERS_LOOP.get()
        if callers is None or callers.is_here():
            return self._awaited_here(name, coroutine, timeout_s)
        try:
            return callers.result(name, coroutine, timeout_s)
        except OutOfTime:
            raise _too_slow(name, timeout_s) from None

    def _awaited_here(self, name: str, coroutine: Coroutine[Any, Any, Any], timeout_s: float | None) -> Any:
        """Wait for a coroutine on WTB's own loop."""
        if self._loop.is_here():
            coroutine.close()
            raise InvalidInput(
                f"{name!r} is async, and the async node that runs it here would wait for itself: write "
                "`await bench.arun(…)` in that node, not `bench.run(…)`"
            )
        future = self._loop.submit(coroutine)
        try:
            return future.result(timeout_s)
        except FutureTimeoutError:
            if future.done():
                raise  # the node's own
            future.cancel()
            raise _too_slow(name, timeout_s) from None

    def _in_thread(self, name: str, function: Callable[[], Any], timeout_s: float) -> Any:
        """Call the function on a thread, and wait no longer than its timeout. Then the thread is left behind.

        A thread cannot be killed. It is a daemon, so that one that never returns does not keep the process alive.
        """
        future: Future[Any] = Future()
        target = partial(_settle, future, partial(contextvars.copy_context().run, function))
        threading.Thread(target=target, name=f"wtb-{name}", daemon=True).start()
        try:
            return future.result(timeout_s)
        except FutureTimeoutError:
            if future.done():
                raise  # the node's own
            raise _too_slow(name, timeout_s) from None

    def wait_before_retry(self, policy: RetryPolicy, attempt: int, rng: random.Random) -> None:
        """Wait as long as the policy says after this attempt."""
        wait_s = min(policy.wait_s * policy.backoff ** (attempt - 1), policy.max_wait_s)
        self._sleep(wait_s * (1 + policy.jitter * rng.uniform(-1, 1)))

    def close(self) -> None:
        """End all environments and stop the loop."""
        if self._environments is not None:
            self._environments.close()
        self._loop.close()


def least(*limits: float | None) -> float | None:
    """Return the least of some time limits; None means no limit."""
    return min((each for each in limits if each is not None), default=None)


def _settle(future: Future[Any], function: Callable[[], Any]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:  # noqa: BLE001  it is raised again where the result is waited for
        future.set_exception(error)


@lru_cache(maxsize=4096)  # reading a signature would take longer than a whole step
def takes_context(function: Callable[..., Any]) -> bool:
    """Whether a node function takes the context beside the state."""
    parameters = inspect.signature(function).parameters.values()
    positional = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and (parameter.default is parameter.empty or parameter.name == "ctx")
    ]
    return len(positional) > 1 or any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)


def may_retry(policy: RetryPolicy | None, attempt: int, error: BaseException) -> bool:
    """Whether the policy allows another attempt after this error."""
    if policy is None or attempt >= policy.times:
        return False
    if policy.when is not None:
        return isinstance(error, Exception) and policy.when(error)
    names = {
        name for kind in type(error).__mro__ for name in (kind.__qualname__, f"{kind.__module__}.{kind.__qualname__}")
    }
    return not policy.errors or not names.isdisjoint(policy.errors)


def failure_of(error: BaseException, node: str, visit: int, input_id: Any) -> Failure:
    """Return an exception as a Failure that can be stored."""
    return Failure(
        type=type(error).__qualname__,
        message=text_of(error),
        traceback=own_traceback(error),
        node=node,
        visit=visit,
        input_checkpoint_id=input_id,
    )


def _checked(node: Node, returned: Any, state: StateView) -> Mapping[str, Any]:
    if returned is None:
        return {}
    if type(returned) is not dict and not isinstance(returned, Mapping):
        raise InvalidInput(
            f"node {node.name!r} returned a {type(returned).__name__}; return a mapping of what changes, or None"
        )
    is_plain = True
    for key, value in returned.items():
        if not isinstance(key, str):
            raise InvalidInput(f"node {node.name!r} returned the key {key!r}; keys of the state are strings")
        is_plain = is_plain and type(value) in IMMUTABLE
    return dict(returned) if is_plain else state.copy_in(dict(returned))


def _too_slow(node: str, timeout_s: float | None) -> NodeTimeout:
    return NodeTimeout(f"node {node!r} took longer than its {timeout_s:g} s")
