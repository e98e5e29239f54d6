"""A process and those that it started: their memory and their end; on Linux only, where /proc shows it."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def family(pid: int, proc: Path = _PROC) -> list[int]:
    """Return a process and all that it has started, also in other sessions, as far as they can be seen."""
    found = [pid]
    for parent in found:
        tasks = proc / str(parent) / "task"
        with suppress(OSError):  # it may have ended
            for task in tasks.iterdir():
                found += [int(each) for each in (task / "children").read_text().split()]
    return found


def memory_above(pid: int, limit_bytes: int, proc: Path = _PROC) -> int | None:
    """Return how much memory a process and those that it started use, if it is more than a limit; else None.

    Forked processes share pages. The first, quick sum counts a shared page in each of them, so a second one, which
    counts it once, decides.
    """
    pids = family(pid, proc)
    if sum(_resident(proc / str(each)) for each in pids) <= limit_bytes:
        return None
    used = sum(_proportional(proc / str(each)) for each in pids)
    return used if used > limit_bytes else None


def _resident(process: Path) -> int:
    try:
        return int((process / "statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _proportional(process: Path) -> int:
    """Return the memory of a process, with its part of each page that it shares."""
    try:
        lines = (process / "smaps_rollup").read_text().splitlines()
    except OSError:
        return _resident(process)
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")]
    return found[0] if found else _resident(process)


def kill_family(pid: int) -> None:
    """Kill a process and all that it has started."""
    _kill(family(pid))


def kill_started(pid: int) -> None:
    """Kill all that a process has started, but not the process."""
    _kill(family(pid)[1:])


def _kill(pids: list[int]) -> None:
    for each in reversed(pids):
        with suppress(OSError):
            os.kill(each, signal.SIGKILL)
