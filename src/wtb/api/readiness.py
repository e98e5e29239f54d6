"""Readiness: whether the server can work, asked once a second at most, however many ask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from wtb.domain.errors import StorageUnavailable, WTBError

PATIENCE_S = 2.0
"""How long to wait for the database: whoever watches the server wants an answer soon."""


class Readiness:
    """Checks the database. One thread asks, and the others wait for it, so that a silent database holds up no more."""

    fresh_s = 1.0

    def __init__(self, check: Callable[[], object]) -> None:
        self._check = check
        self._asking = threading.Lock()
        self._asked_at: float | None = None
        self._error: WTBError | None = None

    def require(self) -> None:
        """Raise what is wrong, if the server is not ready."""
        if not self._asking.acquire(timeout=PATIENCE_S):
            raise StorageUnavailable("the database does not answer; look whether it runs")
        try:
            if self._asked_at is None or time.monotonic() - self._asked_at >= self.fresh_s:
                self._error = self._find_error()
                self._asked_at = time.monotonic()
            error = self._error
        finally:
            self._asking.release()
        if error is not None:
            raise error.with_traceback(None)

    def _find_error(self) -> WTBError | None:
        try:
            self._check()
        except WTBError as error:
            return error
        return None
