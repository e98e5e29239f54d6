"""ProcessOwners: processes by machine, PID namespace, pid and start time, so that none is mistaken for another."""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from pathlib import Path

UNKNOWN = "unknown"
"""The namespace in a name if the PID namespace of the process is not known."""


class ProcessOwners:
    """Names this process as `host-boot:namespace/pid/start`, and checks whether another process still lives.

    Containers of one machine may share its host name, and a pid means a different process in each of them. This process
    cannot see into another namespace: only the lease decides then. Names without a namespace, from earlier versions
    (`host-boot/pid/start`), are looked up in this namespace.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc

    def me(self) -> str:
        return _name(self._proc, os.getpid())

    def is_gone(self, owner: str) -> bool | None:
        place, _, process = owner.partition("/")
        pid, _, started = process.partition("/")
        here, _, mine = self.me().partition("/")
        machine, _, namespace = here.rpartition(":")
        if place not in (machine, here) or namespace == UNKNOWN or not pid.isdigit():
            return None  # another machine or namespace, or a system that does not show its processes
        if f"{pid}/{started}" == mine:
            return False
        found = _started(self._proc / pid)
        if found is None and _exists(int(pid)):
            return None  # hidden, as with hidepid: it may be this process, or a later one with the same pid
        return found != started


@lru_cache(maxsize=16)
def _name(proc: Path, pid: int) -> str:
    """Return the name of this process; the pid is an argument because a forked process has another name."""
    started = _started(proc / "self") or ""
    return f"{_machine(proc)}:{_namespace(proc, pid) if started else UNKNOWN}/{pid}/{started}"


def _machine(proc: Path) -> str:
    """Return a name of this machine that is unique even among machines with the same host name."""
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text()[:8]
    except OSError:
        boot = ""
    return f"{socket.gethostname().replace('/', '-')}-{boot}"


def _namespace(proc: Path, pid: int) -> str:
    """Return the PID namespace that this process and `proc` share; unknown if `proc` shows another one."""
    try:
        shown = (proc / "self/stat").read_text().partition(" ")[0]
        link = str((proc / "self/ns/pid").readlink())  # pid:[4026531836]
    except OSError:
        return UNKNOWN
    return link.partition("[")[2].rstrip("]") if shown == str(pid) else UNKNOWN


def _started(process: Path) -> str | None:
    """Return the start of a process, in ticks since boot; empty if it has ended, None if it is not visible."""
    try:
        stat = (process / "stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    state, threads, started = fields[0], int(fields[17]), fields[19]
    # A zombie no longer writes, unless only its first thread has ended: another one may still be inside a write.
    return "" if state == "Z" and threads <= 1 else started


def _exists(pid: int) -> bool:
    """Whether there is such a process in this namespace, visible or not."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
