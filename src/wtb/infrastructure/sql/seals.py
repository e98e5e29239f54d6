"""Seals: a checksum before a stored value, which covers what else its row says, so that a flipped bit is seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wtb.domain.errors import DamagedData
from wtb.domain.ports import Codec

_SEAL = b"\xc1" * 4
"""What a value begins with that has a checksum. No msgpack does so, and no flipped bit makes one of the other."""
_BYTES = 16


def sealed(codec: Codec, facts: Sequence[Any], value: bytes) -> bytes:
    """Return a value with a checksum before it, which covers these facts of its row too."""
    large = [fact for fact in facts if isinstance(fact, bytes)]
    known = repr([len(fact) if isinstance(fact, bytes) else fact for fact in facts])
    return _SEAL + codec.digest(known.encode("utf-8", "surrogatepass"), *large, value)[:_BYTES] + value


def unsealed(codec: Codec, facts: Sequence[Any], stored: Any, what: str) -> bytes:
    """Return the value; DamagedData when it or the facts are not what was written. Old rows have no checksum."""
    if isinstance(stored, bytes):
        value = stored[len(_SEAL) + _BYTES :]
        if stored == sealed(codec, facts, value):
            return value
        if stored[:1] != _SEAL[:1] and stored[1:4] != _SEAL[1:]:
            return stored
    raise DamagedData(f"{what} is damaged: its row does not match its checksum; `wtb doctor` tells more")
