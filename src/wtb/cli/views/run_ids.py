"""Run ids, cut to a length that still tells them apart."""

from __future__ import annotations

import re
from collections.abc import Iterable

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHORT_UUID = 13
"""The length of the timestamp in a run's id: short to type, and two runs hardly ever share it."""


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Return the start of each id, long enough to be distinct among these; an id that you chose stays whole."""
    known = set(ids)
    length = _SHORT_UUID
    while len({each[:length] for each in known}) < len(known):
        length += 1
    return {each: each[:length] if _UUID.fullmatch(each) else each for each in known}
