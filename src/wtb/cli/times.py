"""Times as people type them: spans such as `12h`, and points in time, by date or by age."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from wtb.domain.errors import InvalidInput

_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def span(text: str, option: str) -> timedelta:
    """Return the span of time that an option gives."""
    found = _span(text)
    if found is None:
        raise InvalidInput(f"{option} {text!r}: give a number with m, h, d or w, such as 12h")
    return found


def point(text: str, option: str) -> datetime:
    """Return the point in time that an option gives: so long ago, or a date, which is local unless it has a zone."""
    age = _span(text)
    if age is not None:
        return datetime.now(UTC) - age
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        advice = "give an age such as 12h or 7d, or a time such as 2026-11-18T09:30"
        raise InvalidInput(f"{option} {text!r}: {advice}") from None


def _span(text: str) -> timedelta | None:
    found = re.fullmatch(r"(\d{1,4})([mhdw])", text.strip())
    return None if found is None else int(found[1]) * _UNITS[found[2]]
