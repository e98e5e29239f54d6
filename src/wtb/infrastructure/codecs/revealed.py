"""Warns about secrets in stored data. They are stored unmasked, because a resumed run needs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.domain.secrets import masked_logger

_log = masked_logger(__name__)

_MOST_PLACES = 1_000
"""The most places that are remembered, so that each is reported once."""

_warned: set[str] = set()


def warn_of_secret(needle: bytes, value: Any, path: str) -> None:
    """Log a warning, once per place, that stored data holds the text of a `Secret`; the path says where."""
    root = path.partition("[")[0]  # warn once per list, not once per item
    if root in _warned or len(_warned) >= _MOST_PLACES:
        return
    _warned.add(root)
    _log.warning(
        "%s holds the text of a wtb.Secret and is stored unmasked: read the secret in the node that needs it, and do "
        "not return it from nodes or pass it as a plain argument",
        _place(value, needle.decode("utf-8", "surrogatepass"), path),
    )


def _place(value: Any, text: str, path: str) -> str:
    """Return the path of the first value that contains the text; inside an object, the path ends at the object."""
    if isinstance(value, Mapping):
        parts = [(f"{path}.{key}", item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        parts = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    else:
        return path
    for place, item in parts:
        if _holds(item, text):
            return _place(item, text, place)
    return path


def _holds(value: Any, text: str) -> bool:
    if isinstance(value, str):
        return text in value
    if isinstance(value, Mapping):
        return any(_holds(item, text) for item in value.values())
    return isinstance(value, list | tuple) and any(_holds(item, text) for item in value)
