"""Seals: checksums of rows, so that a flipped bit is noticed.

A row that decides something has a seal in a column of its own. A value of any length has one before it, which also
covers other facts of its row. Rows from before there were seals have none, and are read as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ormsgpack

from wtb.domain.errors import DamagedData
from wtb.domain.integrity import FaultKind
from wtb.domain.ports import Codec

_SEAL = b"\xc1" * 4
"""What a value begins with that has a checksum. No msgpack does so, and no flipped bit makes one of the other."""
_BYTES = 16

TELLS_MORE = "; `wtb doctor` shows more"
"""How the message of every damaged row ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSeal:
    """A checksum in a column of its own.

    It covers columns that every statement which writes the seal writes too, and columns that never change. What another
    statement changes alone is left out: two transactions at once would leave a seal that fits neither.
    """

    kind: FaultKind
    """What a row is, in messages and for `wtb doctor`."""
    table: str
    key: tuple[str, ...]
    """The columns that name the row; the first ones of those that are covered."""
    rest: tuple[str, ...]
    """The other columns that are covered."""
    column: str = "seal"
    part: str = "row"
    """What is covered, in messages."""

    @property
    def covered(self) -> str:
        """The covered columns, for a statement."""
        return ", ".join((*self.key, *self.rest))

    def of(self, facts: Sequence[Any]) -> bytes:
        """Return the seal over the values of the covered columns, in their order."""
        try:
            packed = ormsgpack.packb(tuple(facts))
        except TypeError:  # half a surrogate, or a number beyond 64 bits: the database says what is wrong with it
            packed = repr(facts).encode("utf-8", "surrogatepass")
        return hashlib.sha256(packed).digest()[:_BYTES]

    def check(self, facts: Sequence[Any], seal: bytes | None) -> None:
        """Raise DamagedData unless the row is what was written; a row without a seal is an old one."""
        if seal is not None and self.of(facts) != seal:
            name = self.name(facts)
            raise DamagedData(
                f"{self.kind} {name!r} is damaged: its {self.part} does not match its checksum{TELLS_MORE}"
            )

    def name(self, facts: Sequence[Any]) -> str:
        """Return what people call a row."""
        return "/".join(map(str, facts[: len(self.key)]))


def text_of(given: str | None) -> str | None:
    """Return what a text column gives back: SQLite makes a text of a number that a user gave as a name."""
    return None if given is None else str(given)


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
    raise DamagedData(f"{what} is damaged: its row does not match its checksum{TELLS_MORE}")
