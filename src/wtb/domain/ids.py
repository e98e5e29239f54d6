"""Ids: one NewType per noun, and the uuid7 layout that sorts them by time."""

from __future__ import annotations

from typing import NewType

from wtb.domain.errors import InvalidInput

WorkflowId = NewType("WorkflowId", str)
ExecutionId = NewType("ExecutionId", str)
BranchId = NewType("BranchId", str)
CheckpointId = NewType("CheckpointId", str)
NodeRunId = NewType("NodeRunId", str)

MAX_ID_LENGTH = 200


def uuid7(unix_ms: int, counter: int, random_62: int) -> str:
    """Lay out RFC 9562 version 7: 48 bits of time, a 12-bit counter, 62 random bits."""
    value = (unix_ms & (1 << 48) - 1) << 80 | 0x7 << 76 | (counter & 0xFFF) << 64
    digits = f"{value | 0b10 << 62 | random_62 & (1 << 62) - 1:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def check_id(value: str, what: str) -> str:
    """Return an id that a person chose, or raise InvalidInput saying what is wrong with it."""
    if not value or len(value) > MAX_ID_LENGTH:
        raise InvalidInput(f"{what} must have 1 to {MAX_ID_LENGTH} characters, not {len(value)}")
    if not all(char.isalnum() or char in "-_.:" for char in value):
        raise InvalidInput(f"{what} {value!r} may hold letters, digits and - _ . : only")
    if not value.strip("."):
        raise InvalidInput(f"{what} {value!r} would mean a folder in an address; use letters or digits, too")
    return value
