"""Errors as plain data, to be raised again in another process as errors of the same class."""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wtb.application.runs.tracebacks import REMOTE_TRACEBACK, own_traceback
from wtb.domain.errors import StateNotSerialisable
from wtb.domain.ports import Codec
from wtb.domain.secrets import text_of


def error_to_data(error: BaseException, codec: Codec) -> dict[str, Any]:
    """Return an error as plain JSON."""
    try:
        args = b64encode(codec.encode(list(error.args), "args")[0]).decode()
    except StateNotSerialisable:
        args = None
    return {
        "classes": [f"{kind.__module__}:{kind.__qualname__}" for kind in type(error).__mro__],
        "message": text_of(error),
        "args": args,
        "traceback": own_traceback(error),
    }


def error_from_data(data: Mapping[str, Any], codec: Codec) -> Exception:
    """Return an error of the same class, if this process has loaded it; else of a class with the same name.

    No module is imported: a message must not decide what is executed here.
    """
    kind = _class_of(data["classes"])
    message: str = data["message"]
    args = (message,) if data["args"] is None else tuple(codec.decode(b64decode(data["args"])))
    error = _made(kind, args)
    if error is None or _text(error) != message:  # its text depends on more than its arguments
        error = _with_text(kind, message)
    setattr(error, REMOTE_TRACEBACK, data["traceback"])
    return error


def _class_of(names: Sequence[str]) -> type[Exception]:
    """Return the first class, or one of the same name that is derived from those that this process has."""
    known = _loaded(names[0])
    if known is not None:
        return known
    module, _, name = names[0].partition(":")
    base = _class_of(names[1:]) if len(names) > 1 else Exception
    return type(name.rpartition(".")[2], (base,), {"__module__": module, "__qualname__": name})


def _loaded(name: str) -> type[Exception] | None:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not issubclass(found, BaseException):
        return None
    if issubclass(found, Exception):
        return found
    # An exit of a node over there must not end this process.
    return type(found.__name__, (Exception,), {"__module__": found.__module__, "__qualname__": found.__qualname__})


def _made(kind: type[Exception], args: tuple[Any, ...]) -> Exception | None:
    """Return an error without calling its `__init__`, which may take other arguments."""
    try:
        error = kind.__new__(kind, *args)
        error.args = args
    except Exception:  # noqa: BLE001  a class of the user's may do anything
        return None
    return error


def _text(error: Exception) -> str | None:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  its `__str__` may need what its `__init__` would have set
        return None


def _with_text(kind: type[Exception], message: str) -> Exception:
    show: Callable[[Any], str] = lambda self: message  # noqa: E731
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__str__": show}
    error = _made(type(kind.__name__, (kind,), names), ())
    return RuntimeError(message) if error is None else error
