"""StateView: the state as one node sees it, as a private copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from wtb.domain.errors import InvalidInput
from wtb.domain.state import State, StateDelta


class UndeclaredRead(InvalidInput, KeyError):
    """A node with `reads=` asked for a key that it did not declare."""

    def __str__(self) -> str:
        return str(self.args[0])


class MissingKey(KeyError):
    """A node asked for a key that the state does not have; the message names the keys that it has."""

    def __init__(self, key: str, view: StateView) -> None:
        super().__init__(key)
        self._view = view

    def __str__(self) -> str:
        return f"the state has no {self.args[0]!r}; it has {', '.join(self._view) or 'nothing'}"


class StateView(MutableMapping[str, Any]):
    """A mapping over a state that copies a value when it is first read.

    Changing the view, or a value read from it, changes only the view: a node changes the state by returning
    values. With `reads`, the view has only those keys, and asking for another is an error.
    """

    def __init__(self, state: State, node: str, reads: tuple[str, ...] | None) -> None:
        self._state = state
        self._node = node
        self._reads = reads
        self._own: dict[str, Any] = {}
        self._gone: set[str] = set()
        self.assigned: set[str] = set()
        """Keys that the node assigned to: the values are lost unless it returned them."""

    def __getitem__(self, key: str) -> Any:
        if key in self._own:
            return self._own[key]
        self._check_declared(key)
        if key in self._gone or key not in self._state:
            raise MissingKey(key, self)
        own = self._own[key] = self._state.copy_out(key)
        return own

    def __setitem__(self, key: str, value: Any) -> None:
        self._own[key] = value
        self._gone.discard(key)
        self.assigned.add(key)

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._own.pop(key, None)
        self._gone.add(key)

    def __contains__(self, key: object) -> bool:
        if key in self._own:
            return True
        self._check_declared(key)
        return key in self._state and key not in self._gone

    def __iter__(self) -> Iterator[str]:
        visible = self._state if self._reads is None else [key for key in self._reads if key in self._state]
        yield from (key for key in visible if key not in self._gone)
        yield from (key for key in self._own if key not in self._state)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))

    def _check_declared(self, key: object) -> None:
        if self._reads is not None and key not in self._reads:
            declared = ", ".join(self._reads) or "nothing"
            raise UndeclaredRead(f"node {self._node!r} reads {key!r}, but declares reads=[{declared}]; add it there")

    def copy_in(self, update: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a copy of the node's update, which the node can no longer change."""
        try:
            return self._state.copy_in(update, self._reads)
        except Exception:  # noqa: BLE001 what cannot be copied (a lock) cannot be stored: the codec says where it is
            return update

    def changed_in_place(self) -> tuple[str, ...]:
        """Return the keys whose values the node changed in place; the changes are lost unless it returned them."""
        original = State({key: self._state[key] for key in self._own if key in self._state})
        return tuple(sorted(StateDelta.between(original, State(self._own)).changes))
