"""A server as a person starts it: `wtb serve` in a process of its own, which a test kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from wtb.settings import Settings


def wait_until(check: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    """Wait until something holds that another process brings about."""
    until = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < until, what
        time.sleep(0.02)


class ServerProcess:
    """One `wtb serve`; its workers end with it."""

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        token: str,
        *,
        references: Sequence[str] = ("agent.py:flow",),
        port: int = 0,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._token = token
        url = {} if settings.url is None else {"WTB_URL": settings.url}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "wtb", "serve", *references, "--port", str(port)],
            cwd=folder,
            env={**os.environ, **url, **(variables or {}), "WTB_FOLDER": str(settings.folder)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.url = line.partition(" at ")[2].partition(". ")[0]
        wait_until(self._answers, line)

    def _answers(self) -> bool:
        try:
            return bool(urllib.request.urlopen(f"{self.url}/readyz", timeout=5).status == 200)
        except OSError:
            return False

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, Mapping[str, str]]:
        """Send a request; return the status, the answer and its headers."""
        request = urllib.request.Request(
            f"{self.url}/api/v1{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json", **headers},
        )
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                return answer.status, json.load(answer), dict(answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error), dict(error.headers)

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


def worker_of(owner: str | None) -> int:
    """Return the process id of the worker that a command belongs to."""
    assert owner is not None
    return int(owner.split("/")[1])
