"""ProcessGuard: the process between a run and its node. It starts the node's process and ends all that came of it.

The guard runs no code of the user's, so it always answers. It imports WTB once; the processes for nodes are forked from
it, so that a new one takes milliseconds. If the process of the run ends, in whatever way, the guard ends everything.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from wtb.infrastructure.environments.descendants import adopt_orphans, end_descendants, is_alone
from wtb.infrastructure.runners.worker_process import how_it_ended

_LOOK_S = 1.0
"""How often the guard checks that the process of the run is alive: a forked child may keep its socket open."""

HostNodes = Callable[[socket.socket, Mapping[str, Any]], None]
"""Runs nodes over a socket, with the facts that the process of the run has sent."""


class ProcessGuard:
    """Obeys the messages on a control socket: start, clean, kill."""

    def __init__(self, control: socket.socket, host_nodes: HostNodes) -> None:
        self._control = control
        self._host_nodes = host_nodes
        self._parent = os.getppid()
        self._child: int | None = None
        self._how = "had not started"
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self, ready: Mapping[str, Any]) -> None:
        """Say that the guard is ready, and obey until the process of the run is gone."""
        adopt_orphans()
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        self._send(ready)
        while os.getppid() == self._parent:
            heard, _, _ = select.select([self._control.fileno(), self._woken], [], [], _LOOK_S)
            with suppress(BlockingIOError):
                os.read(self._woken, 4096)
            self._reap()
            if self._control.fileno() in heard and not self._obey():
                break
        end_descendants()

    def _obey(self) -> bool:
        try:
            data, sockets, _, _ = socket.recv_fds(self._control, 65_536, 1)
        except OSError:
            return False
        if not data:
            return False
        message = json.loads(data)
        if "start" in message:
            self._start(sockets[0], message["start"])
            self._send({"started": self._child})
        elif "clean" in message:
            known = () if self._child is None else (self._child,)
            self._send({"cleaned": 0 if is_alone(*known) else end_descendants(known)})
        else:
            end_descendants()
            self._reap()
            self._send({"killed": self._how})
        return True

    def _send(self, message: Mapping[str, Any]) -> None:
        with suppress(OSError):  # the process of the run is gone; the guard notices that next
            self._control.send(json.dumps(message).encode())

    def _reap(self) -> None:
        """Collect processes that have ended. When the node's process has ended, end what it started, too."""
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == self._child:
                    self._child, self._how = None, how_it_ended(os.waitstatus_to_exitcode(found[1]))
                    end_descendants()

    def _start(self, number: int, facts: Mapping[str, Any]) -> None:
        """Fork a process for nodes. It leads a session of its own, away from the terminal's Ctrl-C."""
        sys.stdout.flush()
        sys.stderr.flush()
        self._how = "was killed, but has not ended yet"
        self._child = os.fork()
        if self._child:
            os.close(number)
            return
        code = 1
        try:
            self._become_host(facts)
            self._host_nodes(socket.socket(fileno=number), facts)
            code = 0
        except BaseException:  # noqa: BLE001  nothing of the guard may run on in this process
            traceback.print_exc()
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _become_host(self, facts: Mapping[str, Any]) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._control.close()
        os.setsid()
        if facts["memory_bytes"] is not None:
            most = _address_space() + facts["memory_bytes"]
            resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _address_space() -> int:
    """Return how much address space this process has mapped: what an empty interpreter needs is not the node's."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
