"""Shows errors where they happened in the user's own code."""

from __future__ import annotations

import functools
import sysconfig
import traceback
from pathlib import Path

_WTB = Path(__file__).resolve().parents[2]


def own_place(error: BaseException) -> str:
    """Return `file.py:12, in judge`: the innermost line of the user's own code that an error came through.

    Empty when it came through none. A file in the current folder is named from there.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if _is_own(frame.filename):
            return f"{_shown(frame.filename)}:{frame.lineno}, in {frame.name}"
    return ""


def own_traceback(error: BaseException) -> str:
    """Return the traceback from the first line of the user's own code on, and those of its causes too.

    What called the user's code, WTB or another library, is left out. An error that came through no code of the user's
    is shown whole.
    """
    told = traceback.TracebackException.from_exception(error)
    remaining: list[traceback.TracebackException | None] = [told]
    while remaining:
        each = remaining.pop()
        if each is not None:
            _begin_with_own(each.stack)
            remaining += (each.__cause__, each.__context__, *(each.exceptions or ()))
    return "".join(told.format())


def _begin_with_own(stack: traceback.StackSummary) -> None:
    first = next((at for at, frame in enumerate(stack) if _is_own(frame.filename)), 0)
    del stack[:first]


@functools.lru_cache(maxsize=1_000)
def _is_own(file: str) -> bool:
    """Whether code is the user's, not that of WTB, of Python or of an installed package."""
    if file.startswith("<frozen "):
        return False
    path = Path(file).resolve()
    return not any(path.is_relative_to(folder) for folder in (_WTB, *_installed()))


@functools.cache
def _installed() -> frozenset[Path]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return frozenset(Path(sysconfig.get_paths()[name]).resolve() for name in names)


def _shown(file: str) -> str:
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file
