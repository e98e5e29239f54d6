"""TypeRegistry: the user's own dataclasses, enums, named tuples, pydantic models and other classes, each under a name.

A stored name never causes an import: only types that the program registered can be built.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from enum import Enum, Flag
from typing import Any, NamedTuple, TypeVar

from wtb.domain.copies import COPIES, copied
from wtb.domain.errors import AlreadyExists, InvalidInput, UnknownFormat, WTBError
from wtb.domain.sameness import CONTENTS
from wtb.domain.values import is_showing
from wtb.infrastructure.codecs.library_types import LIBRARY_TYPES, build_library_value, find_library_name
from wtb.infrastructure.codecs.refusal import NotStorable
from wtb.infrastructure.codecs.unregistered import Unregistered

T = TypeVar("T", bound=type)


class _Registered(NamedTuple):
    type: type
    content: Callable[[Any], Any]
    build: Callable[[Any], Any]
    given: tuple[Callable[[Any], Any], Callable[[Any], Any]] | None = None
    """The functions that the user gave, if any."""


class TypeRegistry:
    """Names of types, with the functions that turn their values into data and back."""

    def __init__(self) -> None:
        self._by_name: dict[str, _Registered] = {}
        self._names: dict[type, str] = {}

    def register(
        self,
        cls: type,
        name: str | None = None,
        *,
        to: Callable[[Any], Any] | None = None,
        from_: Callable[[Any], Any] | None = None,
    ) -> None:
        """Make a type storable under a name; by default its module and qualified name."""
        name = name or f"{cls.__module__}:{cls.__qualname__}"
        known = self._by_name.get(name)
        if known is not None and _origin(known.type) != _origin(cls):  # they are equal if a module is reloaded
            raise AlreadyExists(f"the name {name!r} already belongs to {known.type!r}; give {cls!r} another")
        content, build = _how(cls) if to is None and from_ is None else _given(cls, to, from_)
        given = None if to is None or from_ is None else (to, from_)
        self._by_name[name] = _Registered(cls, content, build, given)
        self._names[cls] = name

    def find_name(self, cls: type) -> str | None:
        """Return the name of a registered type, or of a numpy or pandas type."""
        return self._names.get(cls) or find_library_name(cls)

    def types(self) -> tuple[type, ...]:
        """Return all registered types."""
        return tuple(known.type for known in self._by_name.values())

    def functions(self) -> dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]:
        """Return the functions that users gave to store and rebuild values, by the name of the type."""
        return {name: known.given for name, known in self._by_name.items() if known.given is not None}

    def registered_in(self, module: str) -> list[tuple[str, type, Any, Any]]:
        """Return the arguments with which the types of a module were registered: name, type, to and from_."""
        found = [(name, known) for name, known in self._by_name.items() if known.type.__module__ == module]
        return [(name, known.type, *(known.given or (None, None))) for name, known in found]

    def content(self, name: str, value: Any) -> Any:
        """Return a value of this type as plain data."""
        known = self._by_name.get(name)
        return LIBRARY_TYPES[name].to(value) if known is None else known.content(value)

    def build(self, name: str, content: Any) -> Any:
        """Return the value with this content."""
        known = self._by_name.get(name)
        try:
            if known is not None:
                return known.build(content)
            if name in LIBRARY_TYPES:
                return build_library_value(name, content)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise UnknownFormat(f"a stored {name!r} no longer fits its class: {error}") from error
        if is_showing():
            return Unregistered(name, content)
        raise UnknownFormat(
            f"a stored value is a {name!r}, which is not registered here; import the module that defines it "
            "(`--workflow FILE`), and see that it is registered with wtb.serialisable"
        )


def _origin(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


def _how(cls: type) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    if issubclass(cls, Flag):  # combinations of members have no name
        return (lambda value: value.value), cls
    if issubclass(cls, Enum):
        return (lambda value: value.name), (lambda content: cls[content])
    if dataclasses.is_dataclass(cls):
        _check_plain(cls)
        names = [field.name for field in dataclasses.fields(cls)]
        return (lambda value: {name: getattr(value, name) for name in names}), (lambda content: _filled(cls, content))
    if issubclass(cls, tuple) and hasattr(cls, "_make"):
        return list, cls._make
    if hasattr(cls, "model_construct"):
        return (lambda model: _model_content(cls, model)), (lambda content: _model(cls, *content))
    raise InvalidInput(
        f"{cls!r} is not a dataclass, enum, named tuple or pydantic model; "
        "say how to store it: wtb.serialisable(…, to=…, from_=…)"
    )


def _given(
    cls: type, to: Callable[[Any], Any] | None, from_: Callable[[Any], Any] | None
) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return the functions that the user gave, with errors that name the class."""
    if to is None or from_ is None:
        raise InvalidInput(
            f"{cls!r} needs both functions: to= makes plain data of a value, from_= a value of that data"
        )

    def content(value: Any) -> Any:
        try:
            return to(value)
        except Exception as error:
            raise NotStorable(f"{cls.__qualname__} cannot be stored: {_failed('to', error)}") from error

    def build(content: Any) -> Any:
        try:
            return from_(content)
        except WTBError:
            raise
        except Exception as error:
            raise ValueError(_failed("from_", error)) from error

    return content, build


def _failed(function: str, error: Exception) -> str:
    return f"its {function}= function raised {type(error).__name__}: {error}"


def _check_plain(cls: type) -> None:
    """Raise if the fields do not hold all data, as in a dataclass that extends int or Exception."""
    try:
        object.__new__(cls)
    except TypeError as error:
        raise InvalidInput(
            f"{cls!r} extends a built-in type, or is abstract: its fields are not all its data; register a plain class"
        ) from error


def _filled(cls: type, content: dict[str, Any]) -> Any:
    """Build without __init__: the stored value was valid, and a __post_init__ may have effects."""
    missing = {field.name for field in dataclasses.fields(cls)} ^ set(content)
    if missing:
        raise ValueError(f"fields differ: {', '.join(sorted(missing))}")
    value: Any = object.__new__(cls)
    for name, item in content.items():
        object.__setattr__(value, name, item)
    return value


def _model_content(cls: Any, model: Any) -> list[Any]:
    fields = {name: model.__dict__[name] for name in cls.model_fields}  # __dict__ may hold cached properties too
    return [fields, model.__pydantic_extra__, sorted(model.__pydantic_fields_set__), model.__pydantic_private__]


def _model(cls: Any, fields: dict[str, Any], extra: Any, fields_set: list[str], private: Any) -> Any:
    """Build without validation, aliases and model_post_init; fields added later get their defaults."""
    known = cls.model_fields
    unfit = set(fields) - set(known) | {name for name in known if name not in fields and known[name].is_required()}
    if unfit:
        raise ValueError(f"fields differ: {', '.join(sorted(unfit))}")
    added = {
        name: field.get_default(call_default_factory=True, validated_data=fields)
        for name, field in known.items()
        if name not in fields
    }
    model = cls.__new__(cls)
    object.__setattr__(model, "__dict__", {**fields, **added})
    object.__setattr__(model, "__pydantic_extra__", extra)
    object.__setattr__(model, "__pydantic_fields_set__", set(fields_set))
    object.__setattr__(model, "__pydantic_private__", private)
    return model


REGISTERED = TypeRegistry()
"""The registry that `wtb.serialisable` fills. It is global, because a worker learns of types by importing modules."""


def serialisable(
    cls: T,
    *,
    name: str | None = None,
    to: Callable[[Any], Any] | None = None,
    from_: Callable[[Any], Any] | None = None,
) -> T:
    """Allow a class in the state. For dataclasses, enums, named tuples and pydantic models it is also a decorator.

    For any other class give both functions: `to` makes plain data of a value, `from_` makes a value of that data.
    `to` must give equal data for equal values.
    """
    REGISTERED.register(cls, name, to=to, from_=from_)
    if to is not None and from_ is not None:
        CONTENTS[f"{cls.__module__}:{cls.__qualname__}"] = to
        COPIES[cls] = _copier(to, from_)
    return cls


def _copier(to: Callable[[Any], Any], from_: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that copies a value through its data, because the value may hold uncopyable parts."""
    return lambda value: from_(copied(to(value)))
