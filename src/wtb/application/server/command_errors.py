"""Errors of commands as plain JSON, and back as errors of the same class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.domain import errors
from wtb.domain.errors import WorkerFailed, WTBError, error_with
from wtb.domain.secrets import Masker

_MORE = ("faults", "command")
"""Attributes of errors that a caller sees beside the message."""


def error_data(error: BaseException, masker: Masker) -> dict[str, Any]:
    """Return an error without secrets. The subclasses that a module of WTB keeps to itself become their public base."""
    kind = next((base for base in type(error).__mro__ if vars(errors).get(base.__name__) is base), None)
    if kind is None:
        cause = {"type": type(error).__name__, "message": masker.text(str(error))}
        return {"type": WorkerFailed.__name__, "message": f"the worker failed: {masker.error(error)}", "cause": cause}
    more = {name: value for name in _MORE if (value := getattr(error, name, None)) is not None}
    return {"type": kind.__name__, "message": masker.text(str(error)), **masker.data(more)}


def load_error(reference: str, error: BaseException, masker: Masker) -> dict[str, Any]:
    """Return why a worker could not load a reference; an error of the user's own code is the cause of ours."""
    return {
        "reference": reference,
        "error": error_data(error, masker),
        "is_unimportable": error.__cause__ is not None,
    }


def error_from(data: Mapping[str, Any]) -> WTBError:
    """Return the error that ended a command."""
    kind = vars(errors).get(data["type"])
    if not isinstance(kind, type) or not issubclass(kind, WTBError):
        kind = WorkerFailed
    error = error_with(kind, data["message"])
    for name in _MORE:
        if name in data:
            setattr(error, name, data[name])
    return error
