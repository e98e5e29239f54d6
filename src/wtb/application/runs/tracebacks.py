"""Shows where in the user's own code an error happened."""

from __future__ import annotations

import traceback
from pathlib import Path

from wtb.application.dependencies.own_code import is_own_file

REMOTE_TRACEBACK = "wtb_remote_traceback"
"""The attribute of an error that happened in another process: its traceback there, as text."""


def own_place(error: BaseException) -> str:
    """Return the innermost line of the user's own code that an error came through: `file.py:12, in judge`.

    It is empty if there is none. A file in the current folder is named relative to it.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if _is_own(frame.filename):
            return f"{_shown(frame.filename)}:{frame.lineno}, in {frame.name}"
    return ""


def own_traceback(error: BaseException) -> str:
    """Return the traceback from the first line of the user's own code on, also for the causes of the error.

    Frames of WTB or other libraries that called the user's code are left out. If an error came through no code of the
    user's, its whole traceback is shown.
    """
    if (remote := getattr(error, REMOTE_TRACEBACK, None)) is not None:
        return str(remote)
    raised = traceback.TracebackException.from_exception(error)
    remaining: list[traceback.TracebackException | None] = [raised]
    while remaining:
        each = remaining.pop()
        if each is not None:
            _begin_with_own(each.stack)
            remaining += (each.__cause__, each.__context__, *(each.exceptions or ()))
    return "".join(raised.format())


def _begin_with_own(stack: traceback.StackSummary) -> None:
    first = next((at for at, frame in enumerate(stack) if _is_own(frame.filename)), 0)
    del stack[:first]


def _is_own(file: str) -> bool:
    """Whether code is the user's own, and not from WTB, Python or an installed package."""
    if file.startswith("<"):  # typed in, or made at run time
        return not file.startswith("<frozen ")
    return is_own_file(file)


def _shown(file: str) -> str:
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file
