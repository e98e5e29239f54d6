"""`wtb` as a person types it: one real process a command, in a folder of its own."""

from __future__ import annotations

import atexit
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

WTB = (sys.executable, "-P", "-m", "wtb")
"""As the installed command: -m alone would make Python look for modules in the folder."""

SERVERS = 2
"""They differ in how Python hashes strings, and so do two commands in a row: an order by chance is seen."""

TIMEOUT_S = 120


class CommandServer:
    """A process that has imported `wtb` and forks itself for each command (see command_server.py)."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="wtb-commands-"))
        source = Path(__file__).with_name("command_server.py").read_text()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", source, self._folder / "socket"],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n", "the server of commands did not start"

    def run(
        self, arguments: tuple[str, ...], folder: Path, variables: Mapping[str, str], script: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, or a script instead, to its end and return what it printed, as subprocess.run does."""
        with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
            files = {"stdout": out.name, "stderr": err.name}
            what = {"script": None if script is None else str(script), "arguments": arguments}
            job = {**what, "folder": str(folder), "variables": dict(variables), **files}
            code = self._run(json.dumps(job))
            return subprocess.CompletedProcess([str(script or "wtb"), *arguments], code, out.read(), err.read())

    def _run(self, job: str) -> int:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT_S)
            connection.connect(str(self._folder / "socket"))
            with connection.makefile("rw") as stream:
                stream.write(f"{job}\n")
                stream.flush()
                pid = int(stream.readline())
                try:
                    return int(stream.readline())
                except TimeoutError:
                    os.kill(pid, signal.SIGKILL)
                    raise

    def close(self) -> None:
        """Let the server end."""
        self._process.communicate()
        shutil.rmtree(self._folder)


@cache
def _servers() -> Iterator[CommandServer]:
    servers = [CommandServer() for _ in range(SERVERS)]
    for server in servers:
        atexit.register(server.close)
    return cycle(servers)


def run_wtb(*arguments: str, folder: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run one command in a process of its own, with these environment variables."""
    return next(_servers()).run(arguments, folder, variables)


def run_script(script: Path) -> subprocess.CompletedProcess[str]:
    """Run a Python script in its folder, in a process of its own."""
    return next(_servers()).run((), script.parent, environment(), script)


class Shell:
    """A folder, and `wtb` in it."""

    def __init__(self, folder: Path, **files: str) -> None:
        self.folder = folder
        for name, text in files.items():
            (folder / f"{name}.py").write_text(text)

    def wtb(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = run_wtb(*arguments, folder=self.folder, variables=environment())
        assert done.returncode == code, done.stderr
        return done

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.wtb(*arguments, "--json", code=code).stdout)

    def start(self, *arguments: str, **streams: Any) -> subprocess.Popen[str]:
        """Start a command and return while it runs.

        It takes Ctrl-C as in a terminal: what a shell starts in the background ignores it, and passes that on. `env`
        changes this, since a `preexec_fn` would let gRPC's fork handlers run in the child, which abort it at times.
        """
        return subprocess.Popen(
            ["env", "--default-signal=INT", *WTB, *arguments],
            cwd=self.folder,
            env=environment(),
            text=True,
            **streams,
        )


class Terminal:
    """A terminal that a process writes to, and everything that it has shown."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()
        self.shown = ""

    def wait_for(self, pattern: str) -> None:
        """Read on until something is shown; a terminal that nobody reads would stop the process."""
        until = time.monotonic() + 60
        while not re.search(pattern, self.shown):
            ready, _, _ = select.select([self.ours], [], [], until - time.monotonic())
            assert ready, f"{pattern!r} was not shown, but: {self.shown!r}"
            self.shown += os.read(self.ours, 4096).decode(errors="replace")

    def interrupt(self, process: subprocess.Popen[str], pattern: str) -> None:
        """Press Ctrl-C until something is shown: Python does not hear one between its question and its read."""
        for _ in range(20):
            process.send_signal(signal.SIGINT)
            if select.select([self.ours], [], [], 3)[0]:
                break
        self.wait_for(pattern)

    def type(self, text: str) -> None:
        """Type something; Ctrl-D on a line of its own is the end of the input."""
        os.write(self.ours, text.encode())

    def close(self) -> None:
        os.close(self.ours)
        os.close(self.theirs)


def environment() -> dict[str, str]:
    """Return the environment without settings of wtb."""
    return {name: value for name, value in os.environ.items() if not name.startswith("WTB_")}
