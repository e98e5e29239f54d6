"""State: what a workflow knows at one point, and the deltas that lead from one to the next.

Values are owned by the State that holds them: hand it values that nobody else goes on changing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, final
from uuid import UUID

from wtb.domain.errors import InvalidInput, InvalidStateChange

Reducer = Callable[[Any, Any], Any]
"""Combines the old value of a key with what a node wrote to it."""


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


@final
class _DeleteMarker:
    def __repr__(self) -> str:
        return "wtb.DELETE"

    def __reduce__(self) -> str:
        return "DELETE"  # copies of what a node returned hold this very marker


MISSING: Final = _Missing()
"""What a reducer is given as the old value of a key that is not there yet."""

DELETE: Final = _DeleteMarker()
"""A node returns {"key": DELETE} to remove a key."""


@dataclass(frozen=True, slots=True)
class SetValue:
    """Give the key this value, whatever it had."""

    value: Any


@dataclass(frozen=True, slots=True)
class DeleteKey:
    """Remove the key, if it is there."""


@dataclass(frozen=True, slots=True)
class Append:
    """Put items at the end of a list; a missing key counts as an empty list."""

    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Splice:
    """Replace `delete` items from `start` on by `items`."""

    start: int
    delete: int
    items: tuple[Any, ...] = ()


Change = SetValue | DeleteKey | Append | Splice

_growing = threading.Lock()


class _GrownList:
    """A list that successive states share: each sees the first `length` items of one backing list.

    Appending to the longest of them is O(1); appending to a shorter one (a branch) copies first.
    """

    __slots__ = ("_backing", "_length")

    def __init__(self, items: list[Any], length: int | None = None) -> None:
        self._backing = items
        self._length = len(items) if length is None else length

    def __len__(self) -> int:
        return self._length

    def to_list(self) -> list[Any]:
        return self._backing[: self._length]

    def grown(self, items: tuple[Any, ...]) -> _GrownList:
        with _growing:  # two threads that go on from one state must not both take it for the longest
            backing = self._backing if len(self._backing) == self._length else self.to_list()
            backing.extend(items)
        return _GrownList(backing, self._length + len(items))


class State(Mapping[str, Any]):
    """An immutable mapping of keys to values; lists that only grow are shared between versions.

    It iterates in the order of its keys, so that a run sees the same order whether it was resumed or not.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        """Take the values as they are, checking that every key is a string."""
        self._values: dict[str, Any] = {}
        for key, value in (values or {}).items():
            _check_key(key)
            self._values[key] = _GrownList(list(value)) if type(value) is list else value

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        return value.to_list() if type(value) is _GrownList else value

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._values))

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"State({dict(self)!r})"

    def apply(self, delta: StateDelta) -> State:
        """Return the state that the delta leads to; self is unchanged."""
        values = dict(self._values)
        for key, changes in delta.changes.items():
            for change in changes:
                _change(values, key, change)
        result = State()
        result._values = values
        return result

    def list_length(self, key: str) -> int | None:
        """Length of a list without copying it; None when the key holds no list."""
        value = self._values.get(key)
        return len(value) if type(value) is _GrownList else None


def _check_key(key: object) -> None:
    if type(key) is not str:
        raise InvalidStateChange(f"state keys are strings, not {type(key).__name__}: {key!r}")


def _change(values: dict[str, Any], key: str, change: Change) -> None:
    match change:
        case SetValue(value=value):
            values[key] = _GrownList(list(value)) if type(value) is list else value
        case DeleteKey():
            values.pop(key, None)  # absent is fine, or a set and a delete could not be composed
        case Append(items=items):
            values[key] = _list_at(values, key, "append to").grown(items)
        case Splice():
            values[key] = _GrownList(spliced(key, _list_at(values, key, "splice").to_list(), change))


def _list_at(values: Mapping[str, Any], key: str, verb: str) -> _GrownList:
    value = values.get(key, MISSING)
    if value is MISSING:
        return _GrownList([])
    if type(value) is not _GrownList:
        raise InvalidStateChange(f"cannot {verb} {key!r}: it holds a {type(value).__name__}, not a list")
    return value


def spliced(key: str, items: list[Any], splice: Splice) -> list[Any]:
    """Return the items after the splice, or raise when it does not lie inside the list."""
    end = splice.start + splice.delete
    if splice.start < 0 or splice.delete < 0 or end > len(items):
        raise InvalidStateChange(f"cannot splice {key!r}: items {splice.start} to {end} of a list of {len(items)}")
    return [*items[: splice.start], *splice.items, *items[end:]]


@dataclass(frozen=True, slots=True)
class StateDelta:
    """What changed: for each key the changes in the order in which they happened."""

    changes: Mapping[str, tuple[Change, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in self.changes:
            _check_key(key)

    @classmethod
    def of(cls, **changes: Change) -> StateDelta:
        """Build a delta of one change a key: `StateDelta.of(topic=SetValue("billing"))`."""
        return cls({key: (change,) for key, change in changes.items()})

    @classmethod
    def setting(cls, values: Mapping[str, Any]) -> StateDelta:
        """Build the delta that sets these keys."""
        return cls({key: (SetValue(value),) for key, value in values.items()})

    @classmethod
    def of_update(cls, state: State, update: Mapping[str, Any], reducers: Mapping[str, Reducer]) -> StateDelta:
        """Turn what a node returned into what it changes, with the reducers applied."""
        changes: dict[str, tuple[Change, ...]] = {}
        for key, written in update.items():
            change = _written(state, key, written, reducers.get(key))
            if change is not None:
                changes[key] = (change,)
        return cls(changes)

    @classmethod
    def of_updates(
        cls, state: State, updates: Mapping[str, Mapping[str, Any]], reducers: Mapping[str, Reducer]
    ) -> StateDelta:
        """Turn what the nodes of one superstep returned, in order, into what they change together.

        Two that write one key without a reducer are refused.
        """
        writers: dict[str, str] = {}
        delta, current = cls(), state
        for node, update in updates.items():
            for key in update:
                if key in writers and key not in reducers:
                    raise InvalidInput(
                        f"nodes {writers[key]!r} and {node!r} of one superstep both write {key!r}; "
                        f"say how they combine with flow.reducer({key!r}, …), or let them write different keys"
                    )
                writers[key] = node
            change = cls.of_update(current, update, reducers)
            delta = delta.compose(change) if delta else change
            current = current.apply(change) if len(updates) > 1 else current
        return delta

    @classmethod
    def between(cls, old: State, new: State) -> StateDelta:
        """Build the smallest delta of whole keys and appends that leads from old to new."""
        changes: dict[str, tuple[Change, ...]] = {key: (DeleteKey(),) for key in old if key not in new}
        for key in new:
            if key not in old or not same(old[key], new[key]):
                changes[key] = (_shortest(old, key, new[key]),)
        return cls(changes)

    def compose(self, later: StateDelta) -> StateDelta:
        """Return the one delta that does what self and then `later` would."""
        changes = dict(self.changes)
        for key, added in later.changes.items():
            for change in added:
                changes[key] = _followed_by(key, changes.get(key, ()), change)
        return StateDelta(changes)

    def invert(self, base: State) -> StateDelta:
        """Return the delta that leads back to `base` from where self leads to from it."""
        return StateDelta({key: _undo(base, key, changes) for key, changes in self.changes.items()})

    def __bool__(self) -> bool:
        return bool(self.changes)


def _written(state: State, key: str, written: Any, reducer: Reducer | None) -> Change | None:
    if written is DELETE:
        return DeleteKey() if key in state else None
    if reducer is append:
        return Append(tuple(_items(written)))
    if reducer is not None:
        written = reducer(state.get(key, MISSING), written)
    return _shortest(state, key, written)


def _shortest(state: State, key: str, value: Any) -> Change:
    """Return an append where the old list is a prefix of the new one, else a set."""
    length = state.list_length(key)
    if type(value) is list and length is not None and 0 < length <= len(value):
        old = state[key]
        if all(same(old[i], value[i]) for i in range(length)):
            return Append(tuple(value[length:]))
    return SetValue(value)


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types throughout: True, 1 and 1.0 are three different values."""
    try:
        return _equal(one, other)
    except RecursionError:  # nested so deeply that it cannot be stored either
        return False


_EXACT = frozenset({str, int, bool, bytes, date, timedelta, UUID})
"""Types whose == is true of the same values only."""
_BY_TEXT = frozenset({float, Decimal, datetime, time})
"""Types whose == overlooks a sign of zero, trailing zeros, a time zone or a fold, and is false of NaN."""


def _equal(one: Any, other: Any) -> bool:
    kind = type(one)
    if one is other or kind is not type(other):
        return one is other
    if kind in _EXACT:
        return bool(one == other)
    if kind in _BY_TEXT:
        return repr(one) == repr(other)
    if kind in (set, frozenset):
        return sorted(map(repr, one)) == sorted(map(repr, other)) and bool(one == other)
    mine, others = _parts(one), _parts(other)
    return mine is not None and others is not None and len(mine) == len(others) and all(map(_equal, mine, others))


def _parts(value: Any) -> Sequence[Any] | None:
    """Return what a value is made of, whatever its own == compares; None when that cannot be seen."""
    if type(value) is dict:
        return [*value, *value.values()]
    if isinstance(value, list | tuple):
        return value
    fields = value.__getstate__()
    return None if fields is None else (fields,)


def _followed_by(key: str, changes: tuple[Change, ...], change: Change) -> tuple[Change, ...]:
    if isinstance(change, SetValue | DeleteKey) or not changes:
        return (change,)
    match changes[-1], change:
        case Append(items=first), Append(items=more):
            return (*changes[:-1], Append(first + more))
        case SetValue(value=list() as value), _:
            values: dict[str, Any] = {key: _GrownList(list(value))}
            _change(values, key, change)
            return (*changes[:-1], SetValue(values[key].to_list()))
        case DeleteKey(), Append(items=items):
            return (*changes[:-1], SetValue(list(items)))
    return (*changes, change)


def _undo(base: State, key: str, changes: tuple[Change, ...]) -> tuple[Change, ...]:
    if key not in base:
        return (DeleteKey(),)
    match changes:
        case (Append(items=items),):
            return (Splice(base.list_length(key) or 0, len(items)),)
        case (Splice(start=start, delete=delete, items=items),):
            return (Splice(start, len(items), tuple(base[key][start : start + delete])),)
    return (SetValue(base[key]),)


def _items(written: Any) -> list[Any] | tuple[Any, ...]:
    return written if isinstance(written, list | tuple) else (written,)


def append(old: Any, new: Any) -> list[Any]:
    """Put what was written at the end of the list: a list of items, or one item."""
    return [*(() if old is MISSING else old), *_items(new)]


def merge(old: Any, new: Any) -> dict[Any, Any]:
    """Update the old mapping with the new one."""
    return {**({} if old is MISSING else old), **new}


def add(old: Any, new: Any) -> Any:
    """Add what was written to what was there, as for counters."""
    return new if old is MISSING else old + new


REDUCERS: Mapping[str, Reducer] = {"append": append, "merge": merge, "add": add}
"""The reducers that a workflow as data can name."""
