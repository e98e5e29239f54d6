"""EventBody: the base of all event bodies; turns them into plain JSON and reads them back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar

if TYPE_CHECKING:
    from wtb.domain.event_catalogue import EventType


class Severity(StrEnum):
    """How much an event matters to somebody who skims."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


_NEUTRAL: Mapping[str, Any] = {"str": "", "int": 0, "float": 0.0}
"""The value of a field that an earlier version did not write, by the field's annotation; None for all others."""


class _Slot(NamedTuple):
    """One field of a body and its place in the data."""

    name: str
    key: str
    missing: Any
    """The value if the data lack the key."""
    is_tuple: bool


class _Layout(NamedTuple):
    """The layout of a body class in the data; computed once, because every step writes an event."""

    slots: tuple[_Slot, ...]
    required: tuple[str, ...]
    """Keys that are always written, even if the value is None."""
    optional: tuple[tuple[str, Any], ...]
    """Keys that are left out as long as the field has its default."""
    values: Callable[[Any], tuple[Any, ...]]
    """Returns the values of all fields: the required ones first."""


class EventBody:
    """The facts of one event.

    A field without a default is always written. One with a default is left out of the data while it has that value.
    Reading is tolerant, so that the logs of all versions can be read: unknown keys are ignored, missing ones take the
    default. The name of a field is its key in the data, without an underscore at its end: `from_` is written as `from`.
    """

    __slots__ = ()

    TYPE: ClassVar[EventType]
    """The name of the event, such as `node.completed`."""
    SEVERITY: ClassVar[Severity]
    VERSION: ClassVar[int]
    """1, or higher once a field has changed its meaning; a version above 1 is written into the data as `version`."""
    _layout: ClassVar[_Layout]

    def to_data(self) -> dict[str, Any]:
        """Return the body as plain JSON."""
        layout = self._layout
        values = layout.values(self)
        count = len(layout.required)
        data = dict(zip(layout.required, values, strict=False))
        for (key, default), value in zip(layout.optional, values[count:], strict=True):
            if value is not default and value != default:
                data[key] = list(value) if type(value) is tuple else value
        if self.VERSION > 1:
            data["version"] = self.VERSION
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Read the data of an event of this or any other version."""
        return cls(**{slot.name: _read(slot, data) for slot in cls._layout.slots})


def _read(slot: _Slot, data: Mapping[str, Any]) -> Any:
    value = data.get(slot.key, slot.missing)
    return tuple(value) if slot.is_tuple and isinstance(value, list) else value


Body = TypeVar("Body", bound=EventBody)


def described(cls: type[Body], type: EventType, severity: Severity, version: int) -> type[Body]:
    """Make a dataclass of facts the body of an event type."""
    cls.TYPE, cls.SEVERITY, cls.VERSION = type, severity, version
    cls._layout = _layout_of(cls)
    return cls


def _layout_of(cls: type[EventBody]) -> _Layout:
    own = fields(cls)  # type: ignore[arg-type]  # every body is a dataclass
    required = [each for each in own if each.default is MISSING]
    optional = [each for each in own if each.default is not MISSING]
    ordered = [each.name for each in (*required, *optional)]
    getter = attrgetter(*ordered) if ordered else None
    return _Layout(
        slots=tuple(_Slot(each.name, _key(each.name), _missing(each), "tuple[" in str(each.type)) for each in own),
        required=tuple(_key(each.name) for each in required),
        optional=tuple((_key(each.name), each.default) for each in optional),
        values=(lambda body: ()) if getter is None else getter if len(ordered) > 1 else (lambda body: (getter(body),)),
    )


def _key(name: str) -> str:
    return name.rstrip("_")


def _missing(field: Any) -> Any:
    return _NEUTRAL.get(str(field.type)) if field.default is MISSING else field.default
