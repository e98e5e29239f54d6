"""RunLimits: the limits that apply to a run, and the blocks in which its calls hold a slot."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from contextvars import ContextVar
from types import TracebackType

from wtb.application.limits import Check, HeldSlot, Limits
from wtb.application.runs.threads import in_background, in_thread
from wtb.domain.errors import InvalidInput
from wtb.domain.limits import CallEnd, Limit
from wtb.domain.ports import UnitOfWork

_log = logging.getLogger(__name__)

_HELD: ContextVar[frozenset[tuple[str, str]]] = ContextVar("wtb_held_limits", default=frozenset())
"""The limits of which the code around this holds a slot: a call inside needs no second one, and cannot wait for it."""


_LONG_S = 30.0
"""After this time, a call that waits for one limit inside another is worth a warning."""


def _watched(check: Check, name: str) -> Check:
    """Return a check that warns once if a call waits for a limit for long while it holds another.

    If a second call takes the two in the other order, both wait for ever.
    """
    around = ", ".join(sorted(held for _, held in _HELD.get()))
    if not around:
        return check
    at = time.monotonic() + _LONG_S

    def checked() -> None:
        nonlocal at
        check()
        if time.monotonic() > at:
            at = math.inf
            _log.warning(
                "a call holds a slot of limit %s and has waited %g s for limit %s; if other calls take them in another "
                "order, they wait for each other for ever: take limits in the same order everywhere",
                around,
                _LONG_S,
                name,
            )

    return checked


class RunLimits:
    """The limits of a run by name, each with its scope. A name without a limit has no effect."""

    def __init__(self, limits: Limits, known: Mapping[str, tuple[str, Limit]]) -> None:
        self._limits = limits
        self._known = known

    @classmethod
    def of_settings(cls, limits: Limits, known: Mapping[str, Limit]) -> RunLimits:
        """Return the limits that all runs of a store share."""
        return cls(limits, {name: ("", limit) for name, limit in known.items()})

    def of_batch(self, batch_id: str, own: Mapping[str, Limit]) -> RunLimits:
        """Return the limits of a batch's runs: its own, and those of the settings that it does not replace."""
        return RunLimits(self._limits, {**self._known, **{name: (batch_id, limit) for name, limit in own.items()}})

    def begin_batch(self, uow: UnitOfWork, batch_id: str, own: Mapping[str, Limit]) -> None:
        """Prepare the limits of a batch that starts or continues."""
        self._limits.begin(uow, batch_id, own)

    @contextmanager
    def hold(self, name: str, check: Check) -> Iterator[None]:
        """Hold a slot inside the block."""
        scope, limit = self._known.get(name, ("", None))
        if limit is None or (scope, name) in _HELD.get():
            yield
            return
        held = self._limits.take(scope, name, limit, _watched(check, name))
        token = _HELD.set(_HELD.get() | {(scope, name)})
        try:
            yield
        except BaseException as error:
            self._limits.end(held, limit.end_of(error), error)
            raise
        else:
            self._limits.end(held, CallEnd.SUCCEEDED)
        finally:
            _HELD.reset(token)

    @asynccontextmanager
    async def ahold(self, name: str, check: Check) -> AsyncIterator[None]:
        """Like `hold`, in async code: it waits on a thread."""
        scope, limit = self._known.get(name, ("", None))
        if limit is None or (scope, name) in _HELD.get():
            yield
            return
        held = await _Taking(self._limits, scope, name, limit, _watched(check, name)).taken()
        token = _HELD.set(_HELD.get() | {(scope, name)})
        try:
            yield
        except Exception as error:
            await in_thread(self._limits.end, held, limit.end_of(error), error)
            raise
        except BaseException:  # cancelled: a task must not wait then
            in_background(lambda: self._limits.end(held, CallEnd.OTHER))
            raise
        else:
            await in_thread(self._limits.end, held, CallEnd.SUCCEEDED)
        finally:
            _HELD.reset(token)


BATCH_LIMITS: ContextVar[RunLimits | None] = ContextVar("wtb_batch_limits", default=None)
"""The limits of the batch whose job runs here, for its evaluators; None outside a batch."""


class _Taking:
    """Takes a slot on a thread. If the task that waits is cancelled, the slot is given back once it is there."""

    def __init__(self, limits: Limits, scope: str, name: str, limit: Limit, check: Check) -> None:
        self._limits = limits
        self._wanted = (scope, name, limit)
        self._check = check
        self._lock = threading.Lock()
        self._held: HeldSlot | None = None
        self._is_given_up = False

    async def taken(self) -> HeldSlot:
        try:
            return await in_thread(self._take)
        except asyncio.CancelledError:
            with self._lock:
                self._is_given_up = True
                held = self._held
            if held is not None:  # it came at the same moment
                in_background(lambda: self._limits.end(held, CallEnd.OTHER))
            raise

    def _take(self) -> HeldSlot:
        held = self._limits.take(*self._wanted, self._check_both)
        with self._lock:
            if not self._is_given_up:
                self._held = held
                return held
        self._limits.end(held, CallEnd.OTHER)
        raise asyncio.CancelledError

    def _check_both(self) -> None:
        self._check()
        if self._is_given_up:
            raise asyncio.CancelledError


class LimitBlock:
    """A block that holds a slot of a limit: `with ctx.limit("openai"):`, and `async with` in async nodes."""

    def __init__(self, limits: RunLimits, name: str, check: Check = lambda: None) -> None:
        self._limits = limits
        self._name = name
        self._check = check
        self._sync: AbstractContextManager[None] | None = None
        self._async: AbstractAsyncContextManager[None] | None = None

    def __enter__(self) -> None:
        self._check_unused()
        self._sync = self._limits.hold(self._name, self._check)
        self._sync.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        block, self._sync = self._sync, None
        assert block is not None
        return block.__exit__(kind, error, traceback)

    def _check_unused(self) -> None:
        if self._sync is not None or self._async is not None:
            raise InvalidInput(f"this block of limit {self._name!r} is in use; call ctx.limit anew for each block")

    async def __aenter__(self) -> None:
        self._check_unused()
        self._async = self._limits.ahold(self._name, self._check)
        await self._async.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        block, self._async = self._async, None
        assert block is not None
        return await block.__aexit__(kind, error, traceback)
