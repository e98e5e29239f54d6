"""Problems of a server as the errors that a Bench raises, with the server's sentence."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from wtb.domain.errors import InvalidInput, StorageUnavailable, WTBError, error_with


def error_of(body: bytes, status: int) -> WTBError:
    """Return the error that an answer tells."""
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict) or "code" not in problem:
        return _of_status(status)(f"the server answered with status {status}: {body[:200].decode(errors='replace')!r}")
    return error_from(problem)


def error_from(problem: dict[str, Any]) -> WTBError:
    """Return the error of a problem (RFC 9457): its class by the code, its message by the detail."""
    status = problem.get("status", 500)
    kind = classes().get(problem["code"]) or _of_status(status)
    error = error_with(kind, problem.get("detail") or problem.get("title") or problem["code"])
    for name in ("faults", "command"):
        if problem.get(name) is not None:
            setattr(error, name, problem[name])
    return error


@cache
def classes() -> dict[str, type[WTBError]]:
    """Return all errors by their code: the name of the class in kebab case."""
    found: dict[str, type[WTBError]] = {}
    waiting: list[type[WTBError]] = [WTBError]
    while waiting:
        kind = waiting.pop()
        if kind.__module__ == WTBError.__module__:
            found[re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower()] = kind
        waiting.extend(kind.__subclasses__())
    return found


def _of_status(status: int) -> type[WTBError]:
    if status == 503:
        return StorageUnavailable
    return InvalidInput if 400 <= status < 500 else WTBError
