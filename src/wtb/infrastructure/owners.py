"""ProcessOwners: processes by machine, pid and start time, so that a pid that was given again is not mistaken."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path


class ProcessOwners:
    """Names this process as `host/pid/start`, and looks whether another one of this machine still lives."""

    def me(self) -> str:
        return _process(os.getpid())

    def is_gone(self, owner: str) -> bool | None:
        machine, _, process = owner.partition("/")
        pid, _, started = process.partition("/")
        if machine != _machine() or not pid.isdigit() or not _started(os.getpid()):
            return None  # another machine, or one that does not tell when processes began
        return _started(int(pid)) != started


@cache
def _process(pid: int) -> str:
    return f"{_machine()}/{pid}/{_started(pid)}"


@cache
def _machine() -> str:
    """Return a name of this machine that differs between containers with the same host name."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    except OSError:
        boot = ""
    return f"{socket.gethostname().replace('/', '-')}-{boot}"


def _started(pid: int) -> str:
    """Return when a process began, in ticks since boot; empty when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]  # a zombie writes nothing any more
