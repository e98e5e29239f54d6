"""StateEdit: a person's change of a state, as the paths that change; and applying it to the stored state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from wtb.application.queries.tagged_json import TYPE, Stored, TaggedJson
from wtb.domain.errors import InvalidInput
from wtb.domain.state import DELETE

Path = tuple[Any, ...]
"""Keys of mappings, positions in lists, names of fields; `{"id": …}` names the item of a list that has this id."""

_LONGEST_PATH = 200


class Fields(Protocol):
    """The fields of objects, which the path of an edit may name."""

    def get_field(self, value: Any, name: Any) -> Any:
        """Return a field of an object; raise LookupError if it has none of this name."""
        ...

    def with_field(self, value: Any, name: Any, new: Any) -> Any:
        """Return a copy of the object with another value in this field, validated if the class can validate."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PathChange:
    """A new value at a path, as tagged JSON."""

    path: Path
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEdit:
    """The paths that change in a state. First come the new values in their order, then the deletions."""

    set: tuple[PathChange, ...] = ()
    delete: tuple[Path, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.set or self.delete)

    def to_data(self) -> dict[str, Any]:
        """Return the edit as plain JSON."""
        changes = [{"path": list(change.path), "value": change.value} for change in self.set]
        return {"set": changes, "delete": [list(path) for path in self.delete]}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> StateEdit:
        """Read what `to_data` wrote, or what a client sent; raise InvalidInput if it is no edit."""
        try:
            changes = tuple(PathChange(path=_path(each["path"]), value=each["value"]) for each in data.get("set", ()))
            return cls(set=changes, delete=tuple(map(_path, data.get("delete", ()))))
        except (KeyError, TypeError) as error:
            raise InvalidInput(
                'an edit is {"set": [{"path": [...], "value": ...}], "delete": [[...]]}; this is none'
            ) from error


def _path(given: Any) -> Path:
    if not isinstance(given, list | tuple) or not given or len(given) > _LONGEST_PATH:
        raise InvalidInput("the path of an edit is a list of keys and positions, and begins with a key of the state")
    if not isinstance(given[0], str):
        raise InvalidInput(f"the path {_shown(given)} does not begin with a key of the state")
    return tuple(given)


class StateEditor:
    """Applies edits to states. Only a worker does this: it builds objects."""

    def __init__(self, json: TaggedJson, fields: Fields) -> None:
        self._json = json
        self._fields = fields

    def update(self, edit: StateEdit, stored: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keys of the state that an edit changes, with their new values; DELETE removes a key.

        `stored` is the state as it was shown, `live` the same one with the objects that nodes see.
        """
        state, changed = dict(live), dict[str, Any]()
        for change in edit.set:
            key = change.path[0]
            before = Stored((live.get(key), stored.get(key))) if key in live else Stored()
            changed[key] = state[key] = self._set({key: state[key]} if key in state else {}, change, before)[key]
        for path in edit.delete:
            state = self._removed(state, path, path)
            changed[path[0]] = state.get(path[0], DELETE)
        return changed

    def _set(self, state: dict[str, Any], change: PathChange, before: Stored) -> dict[str, Any]:
        for step in change.path[1:]:
            before = before.part(partial(self._child, step=step))
        new = self._json.read(change.value, before, _shown(change.path))
        result: dict[str, Any] = self._with(state, change.path, new, change.path)
        return result

    def _with(self, value: Any, path: Path, new: Any, whole: Path) -> Any:
        """Return a copy of a value with a new one at a path inside it."""
        step, rest = path[0], path[1:]
        if rest:
            try:
                child = self._child(value, step)
            except (LookupError, TypeError) as error:
                raise _nothing_there(whole, len(whole) - len(rest)) from error
            new = self._with(child, rest, new, whole)
        try:
            return self._with_child(value, step, new)
        except (LookupError, TypeError) as error:
            raise _nothing_there(whole, len(whole) - len(rest)) from error

    def _removed(self, value: Any, path: Path, whole: Path) -> Any:
        """Return a copy of a value without the item at a path."""
        step, rest = path[0], path[1:]
        try:
            child = self._child(value, step)
            if rest:
                return self._with_child(value, step, self._removed(child, rest, whole))
            return self._without_child(value, step)
        except (LookupError, TypeError) as error:
            raise _nothing_there(whole, len(whole) - len(rest)) from error

    def _child(self, value: Any, step: Any) -> Any:
        if type(value) is dict:
            return value[self._key(step)]
        if type(value) in (list, tuple):
            return value[self._position(value, step)]
        return self._fields.get_field(value, step)

    def _with_child(self, value: Any, step: Any, new: Any) -> Any:
        if type(value) is dict:
            return {**value, self._key(step): new}
        if type(value) in (list, tuple):
            position = self._position(value, step, may_append=type(value) is list)
            return type(value)((*value[:position], new, *value[position + 1 :]))
        return self._fields.with_field(value, step, new)

    def _without_child(self, value: Any, step: Any) -> Any:
        if type(value) is dict:
            gone = self._key(step)
            return {key: item for key, item in value.items() if key != gone}
        if type(value) in (list, tuple):
            position = self._position(value, step)
            return type(value)((*value[:position], *value[position + 1 :]))
        raise TypeError("a field cannot be deleted")

    def _key(self, step: Any) -> Any:
        return self._json.read(step) if isinstance(step, Mapping) and TYPE in step else step

    def _position(self, items: Sequence[Any], step: Any, *, may_append: bool = False) -> int:
        if isinstance(step, Mapping) and set(step) == {"id"}:
            return _position_of_id(items, step["id"])
        if type(step) is not int or not 0 <= step < len(items) + may_append:
            raise LookupError(step)
        return step


def _position_of_id(items: Sequence[Any], wanted: Any) -> int:
    """Return the position of the message, or of the mapping, that has this id."""
    for position, item in enumerate(items):
        found = item.get("id") if isinstance(item, Mapping) else getattr(item, "id", None)
        if found == wanted and wanted is not None:
            return position
    raise LookupError(wanted)


def _nothing_there(path: Path, upto: int) -> InvalidInput:
    return InvalidInput(f"the state has nothing at {_shown(path[:upto])} that could be changed; read the state again")


def _shown(path: Sequence[Any]) -> str:
    text = ".".join(str(step.get("id", step) if isinstance(step, Mapping) else step) for step in path)
    return repr(text if len(text) <= 200 else f"{text[:199]}…")
