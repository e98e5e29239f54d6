"""StateClasses: the classes that a state may hold, for tagged JSON and for edits of their fields."""

from __future__ import annotations

from typing import Any

from wtb.domain.errors import InvalidInput, UnknownFormat
from wtb.infrastructure.codecs.types import REGISTERED, TypeRegistry
from wtb.infrastructure.codecs.unregistered import Unregistered


class StateClasses:
    """The registered classes by name, and the fields of their values and of pydantic models such as messages."""

    def __init__(self, types: TypeRegistry = REGISTERED) -> None:
        self._types = types

    def find(self, value: Any) -> tuple[str, Any] | None:
        if isinstance(value, Unregistered):
            return value.name, value.content
        name = self._types.find_name(type(value))
        return None if name is None else (name, self._types.content(name, value))

    def build(self, name: str, content: Any) -> Any:
        try:
            return self._types.build(name, content)
        except (UnknownFormat, TypeError, ValueError, LookupError, AttributeError) as error:
            raise InvalidInput(f"no {name!r} can be made of this: {error}") from error

    def get_field(self, value: Any, name: Any) -> Any:
        return _fields(self._content(value))[name]

    def with_field(self, value: Any, name: Any, new: Any) -> Any:
        if hasattr(type(value), "__pydantic_validator__"):
            return _validated(value, name, new)
        found = self.find(value)
        if found is None:
            raise LookupError(name)
        fields = _fields(found[1])
        self.get_field(value, name)  # a field that is not there cannot be changed
        changed = {**fields, name: new} if isinstance(fields, dict) else [*fields[:name], new, *fields[name + 1 :]]
        return self.build(found[0], changed)

    def _content(self, value: Any) -> Any:
        if hasattr(type(value), "__pydantic_validator__"):
            return dict(value.__dict__)
        found = self.find(value)
        if found is None:
            raise LookupError(type(value).__qualname__)
        return found[1]


def _fields(content: Any) -> Any:
    if isinstance(content, dict | list):
        return content
    raise LookupError("this object has no fields")


def _validated(model: Any, name: Any, new: Any) -> Any:
    """Return a copy of a pydantic model with another value in a field, as the model validates it."""
    kind = type(model)
    if name not in kind.model_fields:
        raise LookupError(name)
    try:
        if kind.model_config.get("frozen"):
            return kind.model_validate({**dict(model.__dict__), name: new})
        changed = model.model_copy()
        kind.__pydantic_validator__.validate_assignment(changed, name, new)
    except ValueError as error:  # pydantic's errors are among these
        raise InvalidInput(f"{kind.__qualname__}.{name}: {error}") from error
    return changed
