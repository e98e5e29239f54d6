"""Cursors: the place where the next page of a list begins, as text that callers pass on without a look inside."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from wtb.domain.errors import InvalidInput
from wtb.domain.execution import Execution
from wtb.domain.ids import ExecutionId
from wtb.domain.ports import RunPosition

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LARGEST = 1 << 62
_LONGEST = 2_000


def cursor_of(*parts: str | int) -> str:
    """Return a cursor that holds these parts."""
    text = json.dumps(parts, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def parts_of(cursor: str, *kinds: type) -> list[Any]:
    """Return the parts of a cursor; raise InvalidInput if no list gave it."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        found = json.loads(base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise _unknown(cursor) from error
    fits = isinstance(found, list) and [type(part) for part in found] == list(kinds)
    if not fits or any(isinstance(part, int) and not 0 <= part < _LARGEST for part in found):
        raise _unknown(cursor)
    if len(cursor) > _LONGEST or any(isinstance(part, str) and "\0" in part for part in found):
        raise _unknown(cursor)
    return list(found)


def _unknown(cursor: str) -> InvalidInput:
    return InvalidInput(f"{cursor[:40]!r} is no cursor of this list; begin again without one")


def position_cursor(created_at: datetime, id: str) -> str:
    """Return the cursor of the page that begins after the run, the batch or the command of this time and id."""
    return cursor_of((created_at - _EPOCH) // timedelta(microseconds=1), id)


def run_cursor(execution: Execution) -> str:
    """Return the cursor of the page that begins after this run."""
    return position_cursor(execution.created_at, execution.id)


def position_of(cursor: str | None) -> RunPosition | None:
    """Return the position that `position_cursor` wrote."""
    if cursor is None:
        return None
    at_us, id = parts_of(cursor, int, str)
    try:
        return RunPosition(_EPOCH + timedelta(microseconds=at_us), ExecutionId(id))
    except OverflowError as error:
        raise _unknown(cursor) from error


def page_of_all(items: tuple[Any, ...], cursor: str | None, limit: int) -> tuple[tuple[Any, ...], str | None]:
    """Return one page of a list that is in memory, and the cursor of the next page."""
    start = 0 if cursor is None else parts_of(cursor, int)[0]
    end = start + limit
    return items[start:end], cursor_of(end) if end < len(items) else None
