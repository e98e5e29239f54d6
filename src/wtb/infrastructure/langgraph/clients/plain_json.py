"""Plain JSON: values of graphs as LangGraph's clients expect them. An object becomes its fields, a message too.

Values come from two sides: live ones from a graph in a worker, stored ones from the database. The web process has the
stored ones only, and nothing is built from them.
"""

from __future__ import annotations

import base64
import dataclasses
import math
from collections import deque
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from wtb.infrastructure.codecs.foreign import Foreign
from wtb.infrastructure.langgraph.values import ChannelValues


class PlainValues(ChannelValues):
    """Reads stored values as plain data, and builds no object from them."""

    def __init__(self) -> None:
        super().__init__(JsonPlusSerializer())

    def load(self, stored: Foreign) -> Any:
        """Return the fields of an object."""
        return stored.fields()


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: what has no such form becomes its text."""
    if value is None or (isinstance(value, bool | int | str) and not isinstance(value, Enum)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset | deque):
        return [plain(item) for item in value]
    for kind, convert in _CONVERTED:
        if isinstance(value, kind):
            return plain(convert(value))
    return _of_object(value)


def _of_object(value: Any) -> Any:
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return plain(value.model_dump())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return without_empty({field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)})
    return repr(value)


def without_empty(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a question; one that accepts any answer has no schema."""
    return {key: value for key, value in question.items() if key != "response_schema" or value is not None}


def _text_of_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode()


_CONVERTED: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (Foreign, Foreign.fields),
    (Enum, lambda value: value.value),
    ((datetime, date, time), lambda value: value.isoformat()),
    (timedelta, timedelta.total_seconds),
    ((UUID, Decimal, PurePath), str),
    ((bytes, bytearray), _text_of_bytes),
)
