"""A throw-away S3: moto's server on the loopback interface. It keeps everything in memory."""

from __future__ import annotations

import contextlib
import itertools
import socket
import subprocess
import sys
import time
import urllib.request
from types import TracebackType
from typing import Self

from tests.services import HOST, free_port

_START_TIMEOUT_S = 60.0
_numbers = itertools.count(1)


class S3Server:
    """One server of its own; it ends with the thread that starts it."""

    def __init__(self) -> None:
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def variables(self) -> dict[str, str]:
        """What a program needs to use it."""
        return {
            "AWS_ENDPOINT_URL": f"http://{HOST}:{self.port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }

    def create_bucket(self, name: str | None = None) -> str:
        """Create a bucket and return its name."""
        name = name or f"bucket-{next(_numbers)}"
        self._send("PUT", f"/{name}")
        return name

    def delete_bucket(self, name: str) -> None:
        """Delete an empty bucket."""
        self._send("DELETE", f"/{name}")

    def start(self) -> None:
        """Start the server, again after `stop()`, and return when it answers."""
        self.port = self.port or free_port()
        command = [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(self.port)]
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + _START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("moto's server did not start; is it installed? Run `make setup`.")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it; its buckets are gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), timeout=1):
            return True
        return False

    def _send(self, method: str, path: str) -> None:
        request = urllib.request.Request(f"http://{HOST}:{self.port}{path}", method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()
