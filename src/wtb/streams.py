"""RunStream: the events of a run as they happen, for `for` and `async for`."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, wait
from types import TracebackType
from typing import TYPE_CHECKING, Self

from wtb.application.runs.callers_loop import awaited
from wtb.application.runs.run_request import RunRequest
from wtb.application.runs.threads import in_thread
from wtb.domain.errors import InvalidInput
from wtb.domain.events import RecordedEvent

if TYPE_CHECKING:
    from wtb.bench import Bench
    from wtb.runs import Run

_PAGE = 100


class RunStream:
    """The events of a run that begins with the loop: `for event in stream`, or `async for` for a stream of `astream`.

    If you leave the loop early, the run pauses at the next boundary. A `for` loop waits for that. After an `async for`
    loop, `await stream.aclose()` waits, as does `async with` at its end. Then `stream.run` is the run.
    """

    def __init__(self, bench: Bench, run_id: str, begin: Callable[[RunRequest], Run]) -> None:
        self._bench = bench
        self._begin = begin
        self._request = RunRequest()
        self._over: Future[Run] = Future()
        self._has_begun = False
        self.id = run_id
        """The id of the run, even before it begins."""

    @property
    def run(self) -> Run:
        """The run, after the loop. It raises what went wrong if the run could not be started or driven."""
        if not self._over.done():
            raise InvalidInput(
                f"run {self.id!r} has not ended or paused yet; read `stream.run` after the loop. If you left an "
                "`async for` loop early, `await stream.aclose()` first"
            )
        return self._over.result()

    def __iter__(self) -> Iterator[RecordedEvent]:
        feed = self._opened()
        drive = contextvars.copy_context()
        threading.Thread(target=drive.run, args=(self._drive, feed), name="wtb-run", daemon=True).start()
        try:
            while page := feed.next_page():
                yield from page
        finally:
            self._request.pause()
            wait([self._over])
            feed.close()
        self._over.result()

    async def __aiter__(self) -> AsyncIterator[RecordedEvent]:
        feed = self._opened()
        driving = asyncio.ensure_future(awaited(lambda: self._drive(feed), self._request.pause))
        try:
            while page := await in_thread(feed.next_page):
                for event in page:
                    yield event
        finally:
            self._request.pause()
            try:
                await _ended(driving)
            finally:
                feed.close()
        self._over.result()

    async def aclose(self) -> None:
        """If the run is still running, pause it at the next boundary and wait for that."""
        self._request.pause()
        if self._has_begun:
            await awaited(lambda: wait([self._over]), lambda: None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def _opened(self) -> _EventFeed:
        if self._has_begun:
            raise InvalidInput(f"the stream of run {self.id!r} has been read; read its events with `run.events()`")
        self._has_begun = True
        return _EventFeed(self._bench, self.id)

    def _drive(self, feed: _EventFeed) -> None:
        """Drive the run to its end, on a thread."""
        try:
            self._over.set_result(self._begin(self._request))
        except BaseException as error:  # noqa: BLE001  it is raised again at the end of the loop
            self._over.set_exception(error)
        feed.end(is_broken=self._over.exception() is not None)


async def _ended(driving: asyncio.Future[None]) -> None:
    """Wait until the run has stopped, even if this task is cancelled meanwhile."""
    cancelled: asyncio.CancelledError | None = None
    while not driving.done():
        try:
            await asyncio.wait([driving])
        except asyncio.CancelledError as error:
            cancelled = error
            driving.cancel()
    if cancelled is not None:
        raise cancelled


class _EventFeed:
    """Reads the events of a run from the log when there are new ones, so that a slow reader misses none."""

    def __init__(self, bench: Bench, run_id: str) -> None:
        self._queries = bench.services.queries
        self._run_id = run_id
        self._after = 0
        self._news = threading.Event()
        self._is_over = False
        self._is_broken = False
        self._subscription = bench.services.bus.subscribe(self._hear)

    def _hear(self, event: RecordedEvent) -> None:
        if event.stream == self._run_id:
            self._news.set()

    def end(self, *, is_broken: bool) -> None:
        """Note that no more events come. If the run could not be driven, the log may hold another driver's events."""
        self._is_broken = is_broken
        self._is_over = True
        self._news.set()

    def next_page(self) -> tuple[RecordedEvent, ...]:
        """Wait for new events and return some of them; none if the run has ended or paused."""
        while True:
            self._news.wait()
            self._news.clear()
            is_over = self._is_over
            page = () if self._is_broken else self._read()
            if page or is_over:
                self._news.set()  # there may be more
                return page

    def _read(self) -> tuple[RecordedEvent, ...]:
        page = self._queries.list_events(self._run_id, by="sequence", after=self._after, limit=_PAGE)
        self._after = page[-1].sequence if page else self._after
        return page

    def close(self) -> None:
        self._subscription.cancel()
