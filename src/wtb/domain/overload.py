"""Says whether an exception means that a service is overloaded or away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from wtb.domain.errors import WTBError
from wtb.domain.secrets import masked_logger

_log = masked_logger(__name__)

STATUSES = frozenset({429, 502, 503, 504, 529})
"""The HTTP status codes that mean: too many calls, or no answer right now."""

_NAMES = ("status_code", "status", "code", "http_status")
_DEPTH = 5
"""How many causes of an exception are looked at."""


def is_overload(error: BaseException, predicate: Callable[[BaseException], bool] | None = None) -> bool:
    """Whether a service was overloaded or away, judged by an exception and its causes.

    WTB's own errors never count: a database that does not answer is not the service that was called.
    """
    for each in _causes(error):
        if isinstance(each, WTBError) or not isinstance(each, Exception):
            return False
        if isinstance(each, TimeoutError | ConnectionError) or _has_status(each):
            return True
        if predicate is not None and _says(predicate, each):
            return True
    return False


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    for _ in range(_DEPTH):
        if found is None:
            return
        yield found
        found = _cause(found)


def _cause(error: BaseException) -> BaseException | None:
    """Return what led to an exception; urllib names it as a reason, requests only raises while handling it."""
    reason = _read(error, "reason")
    if isinstance(reason, BaseException):
        return reason
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _has_status(error: BaseException) -> bool:
    return any(_status(holder, name) in STATUSES for holder in (error, _read(error, "response")) for name in _NAMES)


def _status(holder: Any, name: str) -> int | None:
    found = _read(holder, name)
    if isinstance(found, str) and found.isdigit():
        return int(found)
    return int(found) if isinstance(found, int) else None


def _read(holder: Any, name: str) -> Any:
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001  a property of another library may raise anything
        return None


def _says(predicate: Callable[[BaseException], bool], error: BaseException) -> bool:
    try:
        return bool(predicate(error))
    except Exception as fault:  # noqa: BLE001  a fault in the user's function must not hide the call's own error
        _log.warning("the `overloaded` function of a limit raised %s: %s", type(fault).__name__, fault)
        return False
