"""`wtb` as a person types it: one real process a command, in a folder of its own."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WTB = (sys.executable, "-P", "-m", "wtb")
"""As the installed command: -m alone would make Python look for modules in the folder."""


class Shell:
    """A folder, and `wtb` in it."""

    def __init__(self, folder: Path, **files: str) -> None:
        self.folder = folder
        for name, text in files.items():
            (folder / f"{name}.py").write_text(text)

    def wtb(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*WTB, *arguments],
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == code, done.stderr
        return done

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.wtb(*arguments, "--json", code=code).stdout)

    def start(self, *arguments: str, **streams: Any) -> subprocess.Popen[str]:
        """Start a command and return while it runs."""
        return subprocess.Popen(
            [*WTB, *arguments],
            cwd=self.folder,
            env=environment(),
            text=True,
            preexec_fn=_hear_interrupts,  # noqa: PLW1509  nothing else runs in the child before it
            **streams,
        )


def _hear_interrupts() -> None:
    """Take Ctrl-C as in a terminal: what a shell starts in the background ignores it, and passes that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


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
