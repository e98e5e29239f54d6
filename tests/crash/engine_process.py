"""EngineProcess: a worker as a test sees it, which is given jobs and killed doing them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

import wtb
from tests.services import PostgresServer

ROOT = Path(__file__).parents[2]

Point = tuple[str, int]
"""A name, and which passing of it."""


class EngineProcess:
    """The process of a worker that forks a child for every job, over one database."""

    def __init__(self, home: Path, url: str | None, worker: str = "engine_worker") -> None:
        self.home = home
        self.url = url
        command = [sys.executable, "-W", "error", "-c", f"from tests.crash import {worker}; {worker}.serve()"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, bufsize=1
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def effects(self, run: str) -> Path:
        return self.home / f"effects of {run}"

    def go_on(
        self, run: str, *, answer: str | None = None, die_at: Point | None = None, kill_after_s: float | None = None
    ) -> dict[str, Any] | None:
        """Begin a run or go on with it; return what the worker said, None when it was killed."""
        self.send(run, answer=answer, die_at=die_at, kill_after_s=kill_after_s)
        return self.receive()

    def send(self, run: str, **facts: Any) -> None:
        """Give the worker a job."""
        job = {"folder": str(self.home / "wtb"), "url": self.url, "run": run, "effects": str(self.effects(run))}
        assert self._process.stdin is not None
        print(json.dumps({**job, **facts}), file=self._process.stdin)

    def receive(self) -> dict[str, Any] | None:
        """Return what the worker said of its job, None when it was killed."""
        said: dict[str, Any] | None = None
        while (line := self._read())[0] != "ended":
            said = json.loads(line[1])
        assert line[1] in ("0", "-9"), line
        return None if line[1] == "-9" else said

    def _read(self) -> tuple[str, str]:
        assert self._process.stdout is not None
        verb, _, rest = self._process.stdout.readline().strip().partition(" ")
        assert verb, "the process of the workers ended"
        return verb, rest

    def bench(self) -> wtb.Bench:
        return wtb.Bench(self.url, folder=self.home / "wtb")


def prepared_database(request: pytest.FixtureRequest, home: Path, sqlite_template: Path) -> str | None:
    """Get a database ready and return its url, None for the one in the folder."""
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.url(request.getfixturevalue("migrated_database"))
    (home / "wtb").mkdir(mode=0o700)
    shutil.copyfile(sqlite_template, home / "wtb" / "wtb.db")
    return None
