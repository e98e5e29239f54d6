"""Finds and ends the processes below this one, also those that have left its session."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_PASSES = 200
_WAIT_S = 0.005


def adopt_orphans() -> None:
    """Make this process the parent of every process below it whose own parent ends, so that it can find all of them.

    A process cannot leave by `setsid`, nor by letting its parent end.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def is_alone(*known: int) -> bool:
    """Whether there is no process below this one but the known ones. This is quicker than a search of all processes."""
    try:
        found = [child for pid in (os.getpid(), *known) for child in _children(pid)]
    except OSError:  # the kernel does not list children, or a process has just ended
        return False
    return set(found) <= set(known)


def _children(pid: int) -> Iterator[int]:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        yield from map(int, (thread / "children").read_text().split())


def list_descendants(root: int) -> list[int]:
    """Return the processes below a process."""
    children: dict[int, list[int]] = defaultdict(list)
    for pid, parent in _parents():
        children[parent].append(pid)
    found, remaining = [], [root]
    while remaining:
        below = children.get(remaining.pop(), [])
        found += below
        remaining += below
    return found


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                # The name of the program, in brackets, may hold spaces and brackets.
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if not _has_ended(state=fields[0], threads=int(fields[17])):
                    yield int(entry.name), int(fields[1])


def _has_ended(state: str, threads: int) -> bool:
    """Whether all of a process has ended. Its state is that of its first thread; other threads may run on."""
    return state in "ZX" and threads <= 1


def end_descendants(keep: Collection[int] = ()) -> int:
    """Kill every process below this one, except those to keep; return how many they were.

    They are stopped first, because a process that starts others while it is being searched could get ahead for ever.
    """
    stopped: set[int] = set()
    for _ in range(_PASSES):
        new = [pid for pid in list_descendants(os.getpid()) if pid not in keep and pid not in stopped]
        if not new:
            break
        for pid in new:
            _signal(pid, signal.SIGSTOP)
        stopped.update(new)
    for pid in stopped:
        _signal(pid, signal.SIGKILL)
    if stopped:
        _wait_for(stopped)
    return len(stopped)


def _wait_for(killed: Collection[int]) -> None:
    """Wait a limited time until they are gone: a process in the middle of a disk access ends a little later."""
    for _ in range(_PASSES):
        if not set(list_descendants(os.getpid())).intersection(killed):
            return
        time.sleep(_WAIT_S)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
