"""State: the keys and values of a workflow at one point, and the deltas from one state to the next.

A State owns its values: give it only values that nothing else will change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

from wtb.domain.copies import copied
from wtb.domain.errors import InvalidInput, InvalidStateChange
from wtb.domain.held import SMALLEST_MERGE, HeldList, HeldMapping, merged
from wtb.domain.sameness import same

Reducer = Callable[[Any, Any], Any]
"""Combines the old value of a key with the value that a node wrote."""


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


@final
class _DeleteMarker:
    def __repr__(self) -> str:
        return "wtb.DELETE"

    def __reduce__(self) -> str:
        return "DELETE"  # copying an update must keep this very object


MISSING: Final = _Missing()
"""The old value that a reducer gets for a key that does not exist yet."""

DELETE: Final = _DeleteMarker()
"""A node returns {"key": DELETE} to remove a key."""


@dataclass(frozen=True, slots=True)
class SetValue:
    """Set the key to this value, whatever it held."""

    value: Any


@dataclass(frozen=True, slots=True)
class DeleteKey:
    """Remove the key, if it is there."""


@dataclass(frozen=True, slots=True)
class Append:
    """Put items at the end of a list; a missing key counts as an empty list."""

    items: tuple[Any, ...]
    whole: list[Any] | None = field(default=None, compare=False, repr=False)
    """The resulting list, if known; the node's returned value then need not be stored as well."""


@dataclass(frozen=True, slots=True)
class Splice:
    """Replace `delete` items, from `start` on, with `items`."""

    start: int
    delete: int
    items: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Merge:
    """Remove keys from a mapping, then set others; a missing key of the state counts as an empty mapping."""

    items: Mapping[Any, Any]
    removed: tuple[Any, ...] = ()
    whole: dict[Any, Any] | None = field(default=None, compare=False, repr=False)
    """The resulting mapping, if known."""


Change = SetValue | DeleteKey | Append | Splice | Merge


class State(Mapping[str, Any]):
    """An immutable mapping of keys to values; lists that only grow share their items with earlier states.

    It iterates over sorted keys, so that a run sees the same order whether it was resumed or not.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        """Take the values without copying them, after checking that every key is a string."""
        self._values: dict[str, Any] = {}
        for key, value in (values or {}).items():
            _check_key(key)
            self._values[key] = _held(value)

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        return value.value() if type(value) is HeldList or type(value) is HeldMapping else value

    def __contains__(self, key: object) -> bool:
        return key in self._values  # the inherited method would copy a list only to find it

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._values))

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"State({dict(self)!r})"

    def apply(self, delta: StateDelta) -> State:
        """Return the state after the delta; self is unchanged."""
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
        return len(value) if type(value) is HeldList else None

    def mapping_length(self, key: str) -> int:
        """Number of keys of a mapping; 0 when the key holds none."""
        value = self._values.get(key)
        return len(value.value()) if type(value) is HeldMapping else 0

    def held(self, key: str) -> Any:
        """Return a value in its stored form, without copying it; None if the key does not exist."""
        return self._values.get(key)

    def copy_out(self, key: str) -> Any:
        """Return a copy of a value that a node may change."""
        value = self._values[key]
        return value.copy_out() if type(value) is HeldList or type(value) is HeldMapping else copied(value)

    def copy_in(self, update: Mapping[str, Any], reads: Collection[str] | None = None) -> Update:
        """Return a copy of a node's update that the node can no longer change.

        Items that the state already holds are not copied, and the changes to the state are found on the way. Keys that
        the node cannot read are copied whole: their new values do not depend on the state.
        """
        copy, changes = dict[str, Any](), dict[str, Change]()
        for key, value in update.items():
            is_readable = reads is None or key in reads
            if is_readable and (type(value) is list or type(value) is dict):
                changes[key], copy[key] = _owned(self.get(key), _shortest(self, key, value))
            else:
                copy[key] = copied(value)
        return Update(copy, self, changes)


def _held(value: Any) -> Any:
    """Return a value in the form that states keep."""
    if type(value) is list:
        return HeldList(list(value))
    return HeldMapping(value) if type(value) is dict else value


class Update(dict[str, Any]):
    """The update that a node returned, with the changes that it makes to the node's input state."""

    __slots__ = ("base", "changes")

    def __init__(self, values: Mapping[str, Any], base: State, changes: Mapping[str, Change]) -> None:
        super().__init__(values)
        self.base = base
        self.changes = changes


def _owned(old: Any, change: Change) -> tuple[Change, Any]:
    """Return a change to a list or mapping with its new parts copied, and the resulting value."""
    match change:
        case Append(items=items):
            own = tuple(map(copied, items))
            grown = [*old, *own]
            return Append(own, grown), grown
        case Merge(items=items, removed=removed):
            values = {key: copied(value) for key, value in items.items()}
            after = merged(old, values, removed)
            return Merge(values, removed, after), after
        case SetValue(value=value):
            whole = copied(value)
            return SetValue(whole), whole
    raise AssertionError(change)


def _check_key(key: object) -> None:
    if type(key) is not str:
        raise InvalidStateChange(f"state keys are strings, not {type(key).__name__}: {key!r}")


def _change(values: dict[str, Any], key: str, change: Change) -> None:
    match change:
        case SetValue(value=value):
            values[key] = _held(value)
        case DeleteKey():
            values.pop(key, None)  # the key may be absent: a set and a delete combine into a delete
        case Append(items=items):
            values[key] = _list_at(values, key, "append to").grown(items)
        case Splice():
            values[key] = HeldList(spliced(key, _list_at(values, key, "splice").value(), change))
        case Merge(items=items, removed=removed):
            values[key] = _mapping_at(values, key).merged(items, removed)


def _list_at(values: Mapping[str, Any], key: str, verb: str) -> HeldList:
    value = values.get(key, MISSING)
    if value is MISSING:
        return HeldList([])
    if type(value) is not HeldList:
        raise InvalidStateChange(f"cannot {verb} {key!r}: it holds a {_kind(value)}, not a list")
    return value


def _mapping_at(values: Mapping[str, Any], key: str) -> HeldMapping:
    value = values.get(key, MISSING)
    if value is MISSING:
        return HeldMapping({})
    if type(value) is not HeldMapping:
        raise InvalidStateChange(f"cannot merge into {key!r}: it holds a {_kind(value)}, not a mapping")
    return value


def _kind(value: Any) -> str:
    return type(value.value() if isinstance(value, HeldList | HeldMapping) else value).__name__


def spliced(key: str, items: list[Any], splice: Splice) -> list[Any]:
    """Return the items after the splice; raise if it does not fit into the list."""
    end = splice.start + splice.delete
    if splice.start < 0 or splice.delete < 0 or end > len(items):
        raise InvalidStateChange(f"cannot splice {key!r}: items {splice.start} to {end} of a list of {len(items)}")
    return [*items[: splice.start], *splice.items, *items[end:]]


@dataclass(frozen=True, slots=True)
class StateDelta:
    """The changes to each key, in the order in which they happened."""

    changes: Mapping[str, tuple[Change, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in self.changes:
            _check_key(key)

    @classmethod
    def of(cls, **changes: Change) -> StateDelta:
        """Build a delta with one change per key: `StateDelta.of(topic=SetValue("billing"))`."""
        return cls({key: (change,) for key, change in changes.items()})

    @classmethod
    def setting(cls, values: Mapping[str, Any]) -> StateDelta:
        """Build a delta that sets these keys, and deletes those whose value is DELETE."""
        return cls({key: (DeleteKey() if value is DELETE else SetValue(value),) for key, value in values.items()})

    @classmethod
    def of_update(cls, state: State, update: Mapping[str, Any], reducers: Mapping[str, Reducer]) -> StateDelta:
        """Turn a node's update into the changes that it makes, with the reducers applied."""
        known = update.changes if isinstance(update, Update) and update.base is state else {}
        changes: dict[str, tuple[Change, ...]] = {}
        for key, written in update.items():
            change = known.get(key) if key not in reducers else None
            if change is None:
                change = _written(state, key, written, reducers.get(key))
            if change is not None:
                changes[key] = (change,)
        return cls(changes)

    @classmethod
    def of_updates(
        cls, state: State, updates: Mapping[str, Mapping[str, Any]], reducers: Mapping[str, Reducer]
    ) -> StateDelta:
        """Turn the updates of a superstep's nodes, in order, into the changes that they make together.

        Two nodes that write the same key need a reducer for it.
        """
        writers: dict[str, str] = {}
        delta, current = cls(), state
        for node, update in updates.items():
            for key in update:
                if key in writers and key not in reducers:
                    raise InvalidInput(
                        f"nodes {writers[key]!r} and {node!r} of one superstep both write {key!r}; "
                        f"combine them with flow.reducer({key!r}, …), or let them write different keys"
                    )
                writers[key] = node
            change = cls.of_update(current, update, reducers)
            delta = delta.compose(change) if delta else change
            current = current.apply(change) if len(updates) > 1 else current
        return delta

    @classmethod
    def between(cls, old: State, new: State) -> StateDelta:
        """Build the smallest delta from old to new out of whole keys and appends."""
        changes: dict[str, tuple[Change, ...]] = {key: (DeleteKey(),) for key in old if key not in new}
        for key in new:
            if key not in old or not same(old[key], new[key]):
                changes[key] = (_shortest(old, key, new[key]),)
        return cls(changes)

    def compose(self, later: StateDelta) -> StateDelta:
        """Return one delta that has the effect of self followed by `later`."""
        changes = dict(self.changes)
        for key, added in later.changes.items():
            for change in added:
                changes[key] = _followed_by(key, changes.get(key, ()), change)
        return StateDelta(changes)

    def invert(self, base: State) -> StateDelta:
        """Return the delta that restores `base` after self was applied to it."""
        return StateDelta({key: _undo(base, key, changes) for key, changes in self.changes.items()})

    def __bool__(self) -> bool:
        return bool(self.changes)


def _written(state: State, key: str, written: Any, reducer: Reducer | None) -> Change | None:
    if written is DELETE:
        return DeleteKey() if key in state else None
    if reducer is append:
        return Append(tuple(_items(written)))
    if reducer is merge and type(written) is dict and state.mapping_length(key) >= SMALLEST_MERGE:
        return Merge(written)
    if reducer is not None:
        written = reducer(state.get(key, MISSING), written)
    return _shortest(state, key, written)


def _shortest(state: State, key: str, value: Any) -> Change:
    """Return an append if the list only grew, a merge if few keys of a mapping differ, otherwise the whole value."""
    old = state.held(key)
    if type(value) is list and type(old) is HeldList and len(old) and old.begins(value):
        return Append(tuple(value[len(old) :]), value)
    if type(value) is dict and type(old) is HeldMapping:
        found = old.merge_to(value)
        if found is not None:
            return Merge(*found, value)
    return SetValue(value)


def _followed_by(key: str, changes: tuple[Change, ...], change: Change) -> tuple[Change, ...]:
    if isinstance(change, SetValue | DeleteKey) or not changes:
        return (change,)
    both = _combined(key, changes[-1], change)
    return (*changes, change) if both is None else (*changes[:-1], both)


def _combined(key: str, first: Change, then: Change) -> Change | None:
    """Return one change with the effect of both; None if no such change exists."""
    match first, then:
        case Append(items=items), Append(items=more):
            return Append(items + more)
        case DeleteKey(), Append(items=items):
            return SetValue(list(items))
        case Merge(items=values, removed=gone), Merge(items=changed, removed=removed):
            return Merge(merged(values, changed, removed), (*gone, *removed))
        case SetValue(value=list() | dict() as value), _:
            held: dict[str, Any] = {key: _held(value)}
            _change(held, key, then)
            return SetValue(held[key].value())
    return None


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
    """Append the new value to the list: each item of a list, or one item."""
    return [*(() if old is MISSING else old), *_items(new)]


def merge(old: Any, new: Any) -> dict[Any, Any]:
    """Update the old mapping with the new one."""
    return {**({} if old is MISSING else old), **new}


def add(old: Any, new: Any) -> Any:
    """Add the new value to the old one, for example for counters."""
    return new if old is MISSING else old + new


REDUCERS: Mapping[str, Reducer] = {"append": append, "merge": merge, "add": add}
"""The reducers that a workflow as data can name."""
