"""Starts `wtb` commands and scripts as forks of itself, since they spend most of their time importing what all import.

`tests/shell.py` starts it with `python -c`, so that a command finds nothing of the tests on its path. Each connection
to its socket is one command: a line of JSON comes in; the process id and, at the end, the exit status go out. It ends
when its stdin closes, which happens even if the tests are killed.
"""

import gc
import json
import os
import runpy
import select
import socket
import sys
import time
from pathlib import Path
from typing import Any

import alembic.command  # noqa: F401

import wtb.cli
import wtb.infrastructure.sql.sqlite
import wtb.infrastructure.sql.unit_of_work  # noqa: F401


def next_command(listener: socket.socket) -> dict[str, Any]:
    """Return once for every connection, each time in a process of its own."""
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [], 1)
        if sys.stdin in ready:
            os._exit(0)
        if listener in ready:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                return fork_command(connection)
            connection.close()
        reap()


def fork_command(connection: socket.socket) -> dict[str, Any]:
    """Return in a fork, and report how it ended: so the server can start the next command meanwhile."""
    with connection, connection.makefile("rw") as stream:
        command: dict[str, Any] = json.loads(stream.readline())
        pid = os.fork()
        if pid:
            stream.write(f"{pid}\n")
            stream.flush()
            _, status = os.waitpid(pid, 0)
            stream.write(f"{os.waitstatus_to_exitcode(status)}\n")
            stream.flush()
            os._exit(0)
    return command


def reap() -> None:
    """Forget the processes that have reported."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def become(command: dict[str, Any]) -> None:
    """Take over the folder, the variables, the arguments and the output of a command."""
    for number, path in enumerate(("/dev/null", command["stdout"], command["stderr"])):
        opened = os.open(path, os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(command["folder"])
    os.environ.clear()
    os.environ.update(command["variables"])
    time.tzset()
    sys.argv = [command["script"] or "wtb", *command["arguments"]]


with socket.socket(socket.AF_UNIX) as server:
    server.bind(sys.argv[1])
    server.listen()
    os.write(1, b"ready\n")
    gc.freeze()  # so that a collection in a fork does not copy all that was imported
    command = next_command(server)
    become(command)
if command["script"] is None:
    runpy.run_module("wtb", run_name="__main__", alter_sys=True)
else:
    sys.path.insert(0, str(Path(command["script"]).parent))
    runpy.run_path(command["script"], run_name="__main__")
