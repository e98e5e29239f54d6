"""Types of numpy and pandas that a state can hold without registration, by name.

A type is recognised by name, so that neither package is imported before one of its values appears.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from wtb.domain.errors import UnknownFormat
from wtb.domain.sameness import CONTENTS
from wtb.infrastructure.codecs.arrays import array_data, build_array
from wtb.infrastructure.codecs.frames import (
    build_frame,
    build_index,
    build_series,
    frame_data,
    index_data,
    series_data,
)


class LibraryType(NamedTuple):
    """The functions that turn a library type's values into data, and back."""

    library: str
    to: Callable[[Any], Any]
    from_: Callable[[Any], Any]


_INDEX = LibraryType("pandas", index_data, build_index)

LIBRARY_TYPES: dict[str, LibraryType] = {
    "numpy:ndarray": LibraryType("numpy", array_data, build_array),
    "pandas:DataFrame": LibraryType("pandas", frame_data, build_frame),
    "pandas:Series": LibraryType("pandas", series_data, build_series),
    "pandas:Index": _INDEX,
}
"""Data written under a name must stay readable for ever, like the type tags of the codec."""

_STORED_AS = {
    "numpy:ndarray": "numpy:ndarray",
    **{f"{place}:DataFrame": "pandas:DataFrame" for place in ("pandas", "pandas.core.frame")},
    **{f"{place}:Series": "pandas:Series" for place in ("pandas", "pandas.core.series")},
    **{
        f"{place}:{name}": "pandas:Index"
        for name, module in (
            ("Index", "base"),
            ("RangeIndex", "range"),
            ("MultiIndex", "multi"),
            ("DatetimeIndex", "datetimes"),
            ("TimedeltaIndex", "timedeltas"),
            ("CategoricalIndex", "category"),
        )
        for place in ("pandas", f"pandas.core.indexes.{module}")
    },
}
"""The stored name of each type, by all names that it has had: pandas has moved types between modules."""


def find_library_name(kind: type) -> str | None:
    """Return the name under which values of a library's type are stored; None for other types."""
    return _STORED_AS.get(f"{kind.__module__}:{kind.__qualname__}")


def build_library_value(name: str, content: Any) -> Any:
    """Return a value of a library's type; raise UnknownFormat if the library is not installed here."""
    known = LIBRARY_TYPES[name]
    try:
        import_module(known.library)
    except ImportError as error:
        raise UnknownFormat(f"a stored value is a {name!r}; install {known.library} to read it") from error
    return known.from_(content)


# Two values are the same if their stored data is the same: their own == compares item by item.
CONTENTS.update({name: LIBRARY_TYPES[stored].to for name, stored in _STORED_AS.items()})
