"""Times as stored: whole microseconds since 1970 in UTC, the same in every database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_us(at: datetime) -> int:
    """Return microseconds since 1970, exactly."""
    since = at - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def from_us(at_us: int) -> datetime:
    """Return the aware time."""
    return _EPOCH + timedelta(microseconds=at_us)


def to_us_or_none(at: datetime | None) -> int | None:
    """Return microseconds since 1970, or None for no time."""
    return None if at is None else to_us(at)


def from_us_or_none(at_us: int | None) -> datetime | None:
    """Return the aware time, or None if there is none."""
    return None if at_us is None else from_us(at_us)
