"""A worker process, from both sides: how it is started and killed, and how it ends with the process that started it."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import NoReturn

from wtb.infrastructure.runners.channel import Channel
from wtb.infrastructure.runners.process_family import kill_started

# The side that starts it


def where_prints_go() -> int | None:
    """Return the descriptor that prints of this process go to: with --json that is stderr. None if there is none."""
    try:
        return sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # in a notebook
        return None


def started(module: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start `python -m MODULE FD`; return the process and our end of the socket FD."""
    here, there = socket.socketpair()
    with there:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(there.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=where_prints_go(),
            pass_fds=[there.fileno()],
            # In its own session it does not get the Ctrl-C of the terminal, and can be ended with its children.
            start_new_session=True,
        )
    return process, here


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a worker's session: its children would continue what another worker gets."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


def how_it_ended(code: int) -> str:
    """Say how a process ended."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by signal {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


# The worker itself


def print_at_once() -> None:
    """Let every line that the user's code prints appear at once, also in a file, so that a kill does not lose it."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


def channel_to_parent() -> Channel:
    """Return the channel of this worker to the process that started it, over the socket that the command line names."""
    number = int(sys.argv[1])
    os.set_inheritable(number, False)
    parent = os.getppid()
    return Channel(socket.socket(fileno=number), lambda: os.getppid() == parent)


def end_at_once() -> NoReturn:
    """Kill this process and what it started, also in other sessions; daemons, whose parents have ended, are not found.

    The store survives that, as it survives a crash.
    """
    kill_started(os.getpid())
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
