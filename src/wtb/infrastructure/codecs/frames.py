"""pandas frames, series and indexes as plain data: each column as an array or a list, with its dtype.

It needs no pickle, and no package besides pandas. The frequency of a time index and the flags of a frame are not kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wtb.domain.copies import copied
from wtb.domain.errors import DamagedData
from wtb.infrastructure.codecs.refusal import NotStorable

_ADVICE = "convert the column with .astype(…), or keep a file in ctx.workspace"


def frame_data(frame: Any) -> list[Any]:
    """Return a DataFrame as its index, its column labels, its columns and its attrs."""
    columns = [_column(frame.iloc[:, at]) for at in range(frame.shape[1])]
    return [index_data(frame.index), index_data(frame.columns), columns, dict(frame.attrs)]


def build_frame(content: Any) -> Any:
    """Return the DataFrame that was stored."""
    import pandas as pd

    index, labels, columns, attrs = content
    rows = build_index(index)
    frame = pd.DataFrame({at: _series(column, rows) for at, column in enumerate(columns)}, index=rows)
    frame.columns = build_index(labels)
    frame.attrs = attrs
    return frame


def series_data(series: Any) -> list[Any]:
    """Return a Series as its index, its values, its name and its attrs."""
    return [index_data(series.index), _column(series), series.name, dict(series.attrs)]


def build_series(content: Any) -> Any:
    """Return the Series that was stored."""
    index, column, name, attrs = content
    series = _series(column, build_index(index))
    series.name, series.attrs = name, attrs
    return series


def _series(column: Any, index: Any) -> Any:
    import pandas as pd

    values = _array(column)
    return pd.Series(values, index=index, dtype=values.dtype)  # otherwise pandas turns objects into texts


def index_data(index: Any) -> list[Any]:
    """Return an index of any kind as its names and its values."""
    import pandas as pd

    names = list(index.names)
    if type(index) is pd.RangeIndex:
        return ["range", names, [index.start, index.stop, index.step]]
    if isinstance(index, pd.MultiIndex):
        levels = [_column(index.get_level_values(at)) for at in range(index.nlevels)]
        return ["levels", names, levels]
    return ["values", names, _column(index)]


def build_index(content: Any) -> Any:
    """Return the index that was stored."""
    import pandas as pd

    kind, names, values = content
    if kind == "range":
        return pd.RangeIndex(*values, name=names[0])
    if kind == "levels":
        return pd.MultiIndex.from_arrays([_labels(level) for level in values], names=names)
    return _labels(values, names[0])


def _labels(column: Any, name: Any = None) -> Any:
    import pandas as pd

    values = _array(column)
    return pd.Index(values, dtype=values.dtype, name=name)


def _column(column: Any) -> list[Any]:
    """Return a column or an index with its dtype: as a numpy array if it is one, otherwise as a list."""
    import pandas as pd

    dtype, values = column.dtype, column.array
    if isinstance(dtype, pd.CategoricalDtype):
        return ["category", dtype.ordered, index_data(dtype.categories), values.codes]
    if isinstance(dtype, pd.DatetimeTZDtype):
        return ["zoned", str(dtype), values.asi8]
    if isinstance(dtype, pd.StringDtype):
        name = "str" if dtype.na_value is not pd.NA else "string"
        return ["list", name, _listed(values)]
    if type(dtype).__module__.startswith("pandas"):
        if type(dtype).__name__ not in _NULLABLE:
            raise NotStorable(f"pandas data of dtype {dtype} cannot be stored; {_ADVICE}")
        return ["list", dtype.name, _listed(values)]
    if dtype.kind == "O":
        return ["list", "object", list(values)]
    return ["array", column.to_numpy()]


_NULLABLE = frozenset(
    f"{sign}{size}Dtype" for sign, sizes in (("Int", (8, 16, 32, 64)), ("UInt", (8, 16, 32, 64))) for size in sizes
) | {"Float32Dtype", "Float64Dtype", "BooleanDtype"}


def _listed(values: Any) -> list[Any]:
    """Return values as a list of Python values, with None for missing ones."""
    missing = values.isna()
    return [None if gone else copied(value) for value, gone in zip(values, missing, strict=True)]


def _array(content: Any) -> Any:
    """Return the values of a column in the form that pandas holds."""
    build = _BUILDERS.get(content[0]) if isinstance(content, list) and content else None
    if build is None:
        raise DamagedData("a stored column has a form that this version of wtb does not know")
    return build(*content[1:])


def _category(ordered: Any, categories: Any, codes: Any) -> Any:
    import pandas as pd

    return pd.Categorical.from_codes(codes, categories=build_index(categories), ordered=ordered)


def _zoned(dtype: str, moments: Any) -> Any:
    import pandas as pd

    known = pd.api.types.pandas_dtype(dtype)
    return pd.DatetimeIndex(moments.view(f"M8[{known.unit}]"), tz="UTC").tz_convert(known.tz).array


def _list(dtype: str, values: list[Any]) -> Any:
    import numpy as np
    import pandas as pd

    if dtype != "object":
        return pd.array(values, dtype=dtype)
    array = np.empty(len(values), dtype=object)
    for at, value in enumerate(values):  # in one assignment numpy would turn lists into dimensions
        array[at] = value
    return array


_BUILDERS: dict[str, Callable[..., Any]] = {
    "array": lambda values: values,
    "category": _category,
    "zoned": _zoned,
    "list": _list,
}
