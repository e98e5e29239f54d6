"""NodeMessages: stores what a node emits and logs, without making the node wait for the store."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

from wtb.application.runs.threads import in_background
from wtb.domain.checkpoint import NodeRun
from wtb.domain.errors import LeaseLost, StorageUnavailable
from wtb.domain.event_body import EventBody
from wtb.domain.event_catalogue import NodeEmitted, NodeLogged
from wtb.domain.events import Event
from wtb.domain.excerpts import bounded
from wtb.domain.ports import Clock, Storage
from wtb.domain.secrets import Masker, masked_logger

_log = masked_logger(__name__)

MOST_MESSAGES = 10_000
"""How many messages of one attempt are kept."""


class NodeMessages:
    """The messages of one attempt of a node, in their order.

    A thread writes them, so that a node does not block its event loop. Messages that arrive during a write go into the
    next one together. `flush` returns when all of them are written.
    """

    def __init__(self, storage: Storage, clock: Clock, masker: Masker, run: NodeRun, token: int | None) -> None:
        self._storage = storage
        self._clock = clock
        self._masker = masker
        self._run = run
        self._token = token
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._waiting: list[Event] = []
        self._is_scheduled = False
        self._has_ended = False
        self._count = 0

    def emit(self, data: Any) -> None:
        """Store data that the node emits."""
        run = self._run
        data = bounded(data, self._masker)
        self._add(NodeEmitted(node=run.node, visit=run.visit, attempt=run.attempt, data=data))

    def log(self, level: int, text: str) -> None:
        """Store a line of the node's log."""
        run, name = self._run, logging.getLevelName(level).lower()
        text = self._masker.bounded(text)
        self._add(NodeLogged(node=run.node, visit=run.visit, attempt=run.attempt, level=name, text=text))

    def _add(self, body: EventBody) -> None:
        with self._lock:
            if self._has_ended:
                return
            self._count += 1
            too_many = self._count - MOST_MESSAGES
            must_write = too_many <= 0 and not self._is_scheduled
            if too_many <= 0:
                self._waiting.append(Event.of(body, stream=self._run.execution_id, at=self._clock.now()))
                self._is_scheduled = True
        if too_many == 1:
            self._say_full()
        elif must_write:
            in_background(self.flush)

    def _say_full(self) -> None:
        _log.warning(
            "node %s of run %s has emitted and logged %d messages in one attempt, the most that are kept; its later "
            "ones are not",
            self._run.node,
            self._run.execution_id,
            MOST_MESSAGES,
        )

    def flush(self) -> None:
        """Write all messages that are not written yet."""
        with self._writing:
            with self._lock:
                events, self._waiting, self._is_scheduled = self._waiting, [], False
            if not events:
                return
            try:
                self._write(events)
            except StorageUnavailable:
                with self._lock:
                    self._waiting = events + self._waiting
            except LeaseLost:
                pass  # the driver of the run learns of it from its next write
            except Exception:  # noqa: BLE001  nothing waits for this thread: its errors would be lost
                _log.exception("messages of node %s of run %s are lost", self._run.node, self._run.execution_id)

    def end(self) -> None:
        """Write the rest, and accept no more messages: the attempt has ended."""
        with self._lock:
            self._has_ended = True
        self.flush()
        if lost := len(self._waiting):
            _log.warning(
                "%d messages of node %s of run %s could not be stored", lost, self._run.node, self._run.execution_id
            )

    def _write(self, events: list[Event]) -> None:
        with self._storage.unit_of_work() as uow:
            uow.executions.check_lease(self._run.execution_id, self._token)
            uow.events.append(*events)
            uow.commit()


class NodeLog(logging.LoggerAdapter[logging.Logger]):
    """The log of a node: a logger whose lines from INFO up are also kept with the run.

    They are kept however Python's logging is set up. `ctx.log("…")` is short for `ctx.log.info("…")`.
    """

    def __init__(self, logger: logging.Logger, keep: Callable[[int, str], None]) -> None:
        super().__init__(logger, {})
        self._keep = keep

    def __call__(self, msg: object, *args: object) -> None:
        self.log(logging.INFO, msg, *args, stacklevel=2)

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a line with a level of your choice."""
        if level >= logging.INFO:
            self._keep(level, _line(level, msg, args) + _traceback(kwargs.get("exc_info")))
        super().log(level, msg, *args, **{**kwargs, "stacklevel": kwargs.get("stacklevel", 1) + 1})


def _line(level: int, msg: object, args: tuple[object, ...]) -> str:
    """Return a line of a log; like Python's logging, a wrong format or an odd argument does not stop the program."""
    try:
        return logging.LogRecord("", level, "", 0, msg, args or None, None).getMessage()
    except Exception:  # noqa: BLE001  the argument's own __str__ may raise anything
        return f"{msg if isinstance(msg, str) else type(msg).__name__} (its arguments do not fit)"


def _traceback(exc_info: Any) -> str:
    if not exc_info:
        return ""
    if isinstance(exc_info, BaseException):
        exc_info = (type(exc_info), exc_info, exc_info.__traceback__)
    elif not isinstance(exc_info, tuple):
        exc_info = sys.exc_info()
    return "" if exc_info[0] is None else f"\n{logging.Formatter().formatException(exc_info)}"
