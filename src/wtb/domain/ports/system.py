"""The machine that WTB runs on: time, ids, processes, encoding, conditions, and observed reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from wtb.domain.observation import Observation, ObservedSource


class Clock(Protocol):
    """The time, always aware and in UTC."""

    def now(self) -> datetime:
        """Return the current time."""
        ...


class Ids(Protocol):
    """New ids: unique everywhere, and each sorts after the earlier ids of the same source."""

    def new(self) -> str:
        """Return a new id."""
        ...


class Owners(Protocol):
    """The processes that run executions; a process's name includes its machine and its start."""

    def me(self) -> str:
        """Return the name of this process."""
        ...

    def is_gone(self, owner: str) -> bool | None:
        """Whether that process has ended; None if this machine cannot see it because it runs on another."""
        ...


class Codec(Protocol):
    """Values to bytes and back, and the hash of their content.

    `decode(encode(v).data)` returns a value of the same types that equals v. `canonical` is the same for equal
    values, whatever the order of keys in their mappings, so content hashes use it; `data` keeps that order. A value
    that cannot be stored raises StateNotSerialisable with its path.
    """

    def encode(self, value: Any, path: str) -> tuple[bytes, bytes]:
        """Return (data, canonical)."""
        ...

    def decode(self, data: bytes | memoryview) -> Any:
        """Return the value; raise UnknownFormat for a type that is not registered in this process."""
        ...

    def digest(self, *parts: bytes) -> bytes:
        """Return the 32-byte hash of the parts joined together."""
        ...


class Conditions(Protocol):
    """The language of edge conditions, compiled once. Evaluating a condition takes bounded time and has no effects."""

    def compile(self, expression: str) -> Callable[[Mapping[str, Any]], bool]:
        """Return the condition as a function of the state; raise InvalidCondition that says where the fault is."""
        ...


class DependencyObserver(Protocol):
    """Records everything that the user's functions read in this process, once it is started. It forgets nothing."""

    def start(self) -> None:
        """Start to observe; calling it again changes nothing."""
        ...

    def count(self) -> int:
        """Return how many observations there are so far; they are numbered from 0."""
        ...

    def seen(self, since: int = 0) -> Sequence[Observation]:
        """Return the observations from a number on, in order; later calls only add to them."""
        ...

    def add(self, observations: Iterable[Observation]) -> None:
        """Add those observations of another process that are not there yet."""
        ...

    def digest(self, source: ObservedSource) -> str:
        """Return the digest of a source as it is now."""
        ...
