"""numpy arrays and pandas frames in a state: they come back as they were, and equal ones have one digest."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from wtb.domain.copies import copied
from wtb.domain.errors import DamagedData, UnknownFormat
from wtb.domain.sameness import same
from wtb.infrastructure.codecs.msgpack import MsgpackCodec
from wtb.infrastructure.codecs.types import TypeRegistry

CODEC = MsgpackCodec(TypeRegistry())

DTYPES = st.one_of(
    arrays.boolean_dtypes(),
    arrays.integer_dtypes(endianness="?"),
    arrays.unsigned_integer_dtypes(),
    arrays.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    arrays.complex_number_dtypes(sizes=(64, 128)),
    arrays.byte_string_dtypes(min_len=1, max_len=4),
    arrays.unicode_string_dtypes(min_len=1, max_len=4),
    arrays.datetime64_dtypes(),
    arrays.timedelta64_dtypes(),
)
ARRAYS = arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
FLOATS = st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")])


def stored(value: Any) -> tuple[bytes, bytes]:
    return CODEC.encode(value, "state.x")


def as_read_back(value: Any) -> Any:
    return CODEC.decode(stored(value)[0])


@given(ARRAYS)
@example(np.array(complex("nan+1j")))
@example(np.array([[np.nan, -0.0]], order="F"))
def test_an_array_comes_back_with_its_dtype_its_shape_and_its_items(array: Any) -> None:
    back = as_read_back({"a": [array]})["a"][0]
    assert (type(back), back.dtype, back.shape) == (np.ndarray, array.dtype, array.shape)
    np.testing.assert_array_equal(back, array)
    assert back.flags.writeable


@given(ARRAYS)
def test_equal_arrays_have_one_digest_however_they_lie_in_memory(array: Any) -> None:
    turned = np.asfortranarray(array)
    spread = np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array
    assert stored(turned.reshape(array.shape)) == stored(array) == stored(spread)
    assert stored(as_read_back(array)) == stored(array)
    assert same(array, copied(turned.reshape(array.shape)))


@given(ARRAYS)
def test_numpy_reads_what_is_stored_as_a_file_of_its_own_without_pickle(array: Any) -> None:
    data = stored(array)[0]
    back = np.load(io.BytesIO(data[data.index(b"\x93NUMPY") :]), allow_pickle=False)
    np.testing.assert_array_equal(back, array)


@given(ARRAYS, ARRAYS)
def test_different_arrays_have_different_digests(one: Any, other: Any) -> None:
    alike = one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if alike:
        assert stored(one) == stored(other)
    elif one.dtype.kind not in "fc":
        assert stored(one)[1] != stored(other)[1]
        assert not same(one, other)


def test_every_nan_is_the_same_one() -> None:
    with np.errstate(invalid="ignore"):
        made = np.array([0.0]) / np.array([0.0])  # negative on x86
    assert stored(made) == stored(np.array([np.nan])) == stored(-np.array([np.nan]))
    assert stored(copied(made[0])) == stored(copied(-made[0])) == stored(float("nan"))


@given(ARRAYS, st.data())
def test_a_damaged_array_is_another_one_or_an_error_of_ours(array: Any, data: st.DataObject) -> None:
    damaged = bytearray(stored(array)[0])
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        CODEC.decode(bytes(damaged))
    except (DamagedData, UnknownFormat):
        return


@pytest.mark.parametrize(
    ("scalar", "plain"),
    [
        (np.float64(1.5), 1.5),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.uint64(1 << 63), 1 << 63),
        (np.bool_(1), True),
        (np.str_("a"), "a"),
        (np.bytes_(b"a"), b"a"),
    ],
    ids=repr,
)
def test_a_scalar_becomes_a_python_value_wherever_it_is(scalar: Any, plain: Any) -> None:
    value = copied([scalar, (scalar,), {"x": {scalar: scalar}}, {scalar}])
    assert value == [plain, (plain,), {"x": {plain: plain}}, {plain}]
    found = [value[0], value[1][0], *value[2]["x"], *value[2]["x"].values(), *value[3]]
    assert {type(each) for each in found} == {type(plain)}
    assert stored(scalar) == stored(plain)


COLUMNS: st.SearchStrategy[Any] = st.sampled_from(
    [
        np.arange,
        lambda n: np.linspace(0, 1, n, dtype="f4"),
        lambda n: [float("nan")] * n,
        lambda n: pd.array([None, *range(n - 1)][:n], dtype="Int64"),
        lambda n: pd.array([True, None, False][:n] + [None] * (n - 3), dtype="boolean"),
        lambda n: pd.array(["a", None, "ü\n"][:n] + ["z"] * (n - 3), dtype="str"),
        lambda n: pd.array(["a", None, "ü\n"][:n] + ["z"] * (n - 3), dtype="string"),
        lambda n: pd.Series([1, "x", None, {"k": [1]}][:n] + [b"z"] * (n - 4), dtype=object),
        lambda n: pd.Categorical((["low", "high", None] * n)[:n], categories=["low", "high"], ordered=True),
        lambda n: pd.date_range("2026-03-29", periods=n, tz="Europe/Berlin", unit="us"),
        lambda n: pd.DatetimeIndex([pd.NaT] * n),
        lambda n: pd.to_timedelta(range(n), unit="h"),
    ]
)
INDEXES: st.SearchStrategy[Any] = st.sampled_from(
    [
        lambda n: pd.RangeIndex(3, 3 + 2 * n, 2, name="row"),
        lambda n: pd.Index([f"r{number}" for number in range(n)], name="id"),
        lambda n: pd.date_range("2026-01-01", periods=n, tz="UTC"),
        lambda n: pd.MultiIndex.from_arrays([["a"] * n, range(n)], names=["group", None]),
        lambda n: pd.CategoricalIndex((["a", "b"] * n)[:n]),
    ]
)


@st.composite
def frames(draw: st.DrawFn) -> Any:
    rows = draw(st.integers(0, 5))
    columns = [draw(COLUMNS)(rows) for _ in range(draw(st.integers(0, 4)))]
    index = draw(INDEXES)(rows)
    frame = pd.DataFrame(
        {
            at: pd.Series(column, index=index, copy=True)
            if not isinstance(column, pd.Series)
            else column.set_axis(index)
            for at, column in enumerate(columns)
        },
        index=index,
    )
    labels = [f"c{at % 3}" if at != 2 else 2 for at in range(len(columns))]  # some twice, one a number
    frame.columns = pd.Index(labels, dtype=object, name="columns")
    frame.attrs = draw(st.sampled_from([{}, {"source": "test"}]))
    return frame


@settings(max_examples=30)
@given(frames())
def test_a_frame_comes_back_with_its_dtypes_its_index_and_its_labels(frame: Any) -> None:
    back = as_read_back([frame])[0]
    pd.testing.assert_frame_equal(back, frame, check_exact=True, check_freq=False, check_column_type=True)
    assert [str(dtype) for dtype in back.dtypes] == [str(dtype) for dtype in frame.dtypes]
    assert back.attrs == frame.attrs
    assert stored(back) == stored(frame)
    assert same(back, frame)


@settings(max_examples=30)
@given(frames(), frames())
def test_frames_with_one_digest_are_equal(one: Any, other: Any) -> None:
    if stored(one)[1] == stored(other)[1]:
        pd.testing.assert_frame_equal(one, other, check_freq=False)
    assert same(one, other) == (stored(one)[1] == stored(other)[1])


@settings(max_examples=30)
@given(INDEXES, COLUMNS, st.integers(0, 4))
def test_series_and_indexes_come_back(index: Any, column: Any, rows: int) -> None:
    values = column(rows)
    series = pd.Series(values.array if isinstance(values, pd.Series) else values, index=index(rows), name="s")
    pd.testing.assert_series_equal(as_read_back(series), series, check_freq=False)
    pd.testing.assert_index_equal(as_read_back(index(rows)), index(rows), exact="equiv", check_freq=False)
