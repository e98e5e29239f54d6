"""Seals: checksums of rows, so that a flipped bit is noticed.

An important row has a seal in its own column. A value of any length has a seal before it, which also covers other facts
of its row. Rows written before seals existed have none, and are read as they are.
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
"""The first bytes of a value with a checksum. No msgpack begins like this, and no single flipped bit makes it so."""
_BYTES = 16

TELLS_MORE = "; `wtb doctor` shows more"
"""The end of every message about a damaged row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSeal:
    """A checksum in its own column.

    It covers columns that are always written together with the seal, and columns that never change. Columns that
    another statement changes alone are left out: two concurrent transactions would leave a seal that fits neither.
    """

    kind: FaultKind
    """The kind of row, for messages and for `wtb doctor`."""
    table: str
    key: tuple[str, ...]
    """The columns that identify the row; they come first among the covered columns."""
    rest: tuple[str, ...]
    """The other covered columns."""
    column: str = "seal"
    part: str = "row"
    """The name of the covered part, for messages."""

    @property
    def covered(self) -> str:
        """The covered columns, for a statement."""
        return ", ".join((*self.key, *self.rest))

    def of(self, facts: Sequence[Any]) -> bytes:
        """Return the seal over the values of the covered columns, in their order."""
        try:
            packed = ormsgpack.packb(tuple(facts))
        except TypeError:  # half a surrogate, or a number beyond 64 bits: the database reports the fault
            packed = repr(facts).encode("utf-8", "surrogatepass")
        return hashlib.sha256(packed).digest()[:_BYTES]

    def check(self, facts: Sequence[Any], seal: bytes | None) -> None:
        """Raise DamagedData if the row does not match its seal; an old row has no seal."""
        if seal is not None and self.of(facts) != seal:
            name = self.name(facts)
            raise DamagedData(
                f"{self.kind} {name!r} is damaged: its {self.part} does not match its checksum{TELLS_MORE}"
            )

    def name(self, facts: Sequence[Any]) -> str:
        """Return the name of a row for people."""
        return "/".join(map(str, facts[: len(self.key)]))


def text_of(given: str | None) -> str | None:
    """Return the value that a text column returns: SQLite turns a number that a user gave as a name into text."""
    return None if given is None else str(given)


def sealed(codec: Codec, facts: Sequence[Any], value: bytes) -> bytes:
    """Return a value after a checksum, which also covers these facts of its row."""
    large = [fact for fact in facts if isinstance(fact, bytes)]
    known = repr([len(fact) if isinstance(fact, bytes) else fact for fact in facts])
    return _SEAL + codec.digest(known.encode("utf-8", "surrogatepass"), *large, value)[:_BYTES] + value


def unsealed(codec: Codec, facts: Sequence[Any], stored: Any, what: str) -> bytes:
    """Return the value; raise DamagedData if it or the facts do not match the checksum. Old rows have none."""
    if isinstance(stored, bytes):
        value = stored[len(_SEAL) + _BYTES :]
        if stored == sealed(codec, facts, value):
            return value
        if stored[:1] != _SEAL[:1] and stored[1:4] != _SEAL[1:]:
            return stored
    raise DamagedData(f"{what} is damaged: its row does not match its checksum{TELLS_MORE}")
