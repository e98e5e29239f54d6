"""numpy arrays as the bytes of a .npy file, without pickle.

We write the header ourselves: numpy has changed its padding, and equal arrays must keep equal digests. Every version of
numpy can read the bytes. The memory order is not kept, and every NaN is written with the same bits.
"""

from __future__ import annotations

import re
from typing import Any

from wtb.domain.errors import DamagedData
from wtb.infrastructure.codecs.refusal import NotStorable

_MAGIC = b"\x93NUMPY\x01\x00"
_ALIGNMENT = 64
_HEADER = re.compile(
    rb"\{'descr': '([<>|][\w\[\]]+)', 'fortran_order': False, 'shape': \((|\d+,|\d+(?:, \d+)+)\), \} *\n"
)

_KINDS = frozenset("biufcSUMm")
"""Booleans, numbers, texts and times of a fixed size."""
_EXTENDED = frozenset("gG")
"""Floats with more than 64 bits: their padding bytes are arbitrary, and they differ between machines."""


def array_data(array: Any) -> bytes:
    """Return an array as a .npy file; raise NotStorable for a dtype that needs pickle."""
    import numpy as np

    dtype = array.dtype
    if dtype.kind not in _KINDS or dtype.char in _EXTENDED:
        raise NotStorable(f"numpy.ndarray of dtype {dtype} cannot be stored without pickle; {_instead(dtype)}")
    array = np.ascontiguousarray(array).reshape(array.shape)  # the first call adds a dimension to a scalar
    if dtype.kind in "fc":
        array = _with_one_nan(array)
    return _header(dtype.str, array.shape) + bytes(array.tobytes())


def _instead(dtype: Any) -> str:
    if dtype.kind == "O":
        return "use .tolist(), or an array of numbers or texts"
    return "use one array for each field" if dtype.fields else "convert it with .astype(…)"


def _with_one_nan(array: Any) -> Any:
    """Return an array whose NaNs all have the same bits: their sign depends on the processor."""
    import numpy as np

    parts = array.view(array.real.dtype) if array.dtype.kind == "c" and array.ndim else array
    unknown = np.isnan(parts)
    if not unknown.any():
        return array
    if array.dtype.kind == "c" and not array.ndim:
        return _with_one_nan(array.reshape(1)).reshape(())
    return np.where(unknown, parts.dtype.type(np.nan), parts).astype(parts.dtype).view(array.dtype)


def _header(descr: str, shape: tuple[int, ...]) -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape!r}, }}".encode()
    fixed = len(_MAGIC) + 2 + len(text) + 1
    text += b" " * (-fixed % _ALIGNMENT) + b"\n"
    return _MAGIC + len(text).to_bytes(2, "little") + text


def build_array(data: Any) -> Any:
    """Return the array that was stored; raise DamagedData if the bytes are not as `array_data` writes them."""
    import numpy as np

    start = len(_MAGIC) + 2
    if type(data) is not bytes or data[: len(_MAGIC)] != _MAGIC:
        raise DamagedData("a stored array is not an .npy file")
    end = start + int.from_bytes(data[len(_MAGIC) : start], "little")
    header = _HEADER.fullmatch(data[start:end])
    if header is None:
        raise DamagedData("the header of a stored array cannot be read")
    shape = tuple(int(size) for size in header[2].split(b",") if size)
    try:
        dtype = np.dtype(header[1].decode())
        if dtype.kind not in _KINDS:
            raise ValueError(f"dtype {dtype} is never stored")
        return np.frombuffer(data[end:], dtype=dtype).reshape(shape).copy()
    except (ValueError, TypeError, SyntaxError, MemoryError) as error:  # numpy parses some names of types as Python
        raise DamagedData(f"a stored array cannot be read: {error}") from error
