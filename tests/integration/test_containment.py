"""What environments contain and what not: a program with harmful nodes is run, and looked at from outside.

Each row of the table in docs/environments.md has a test here.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wtb.infrastructure.environments.grpc_server import EnvironmentServer, ServerOptions

ROOT = Path(__file__).parents[2]
KINDS = ("in_process", "subprocess", "grpc")


class Outcome:
    """What the program noted with one kind of environment, and the folder that it worked in."""

    def __init__(self, kind: str, folder: Path, address: str | None) -> None:
        self.is_contained = kind != "in_process"
        self.folder = folder
        assert run_program(kind, folder, *([] if address is None else [address])) == 0
        self.found = found_in(folder)
        self.children = [int(each.name) for each in (folder / "children").iterdir()]
        self.left = [pid for pid in self.children if is_alive(pid)]
        for pid in self.left:
            os.kill(pid, signal.SIGKILL)


def run_program(kind: str, folder: Path, *more: str) -> int:
    command = [sys.executable, "-m", "tests.integration.containment_program", kind, str(folder), *more]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=240, check=False).returncode


def found_in(folder: Path) -> Any:
    return json.loads((folder / "found.json").read_text())


@pytest.fixture(scope="module", params=KINDS)
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param != "grpc":
        return Outcome(request.param, folder, None)
    server = EnvironmentServer(ServerOptions(listen="127.0.0.1:0"))
    try:
        return Outcome(request.param, folder, f"127.0.0.1:{server.start()}")
    finally:
        server.close()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


_ROWS: dict[str, Callable[..., None]] = {}
"""The tests by the rows of the table that they are about."""


def about(row: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def noted(test: Callable[..., None]) -> Callable[..., None]:
        _ROWS[row] = test
        return test

    return noted


@about("a node that takes too long")
def test_a_node_that_loops_for_ever_is_killed_or_given_up(outcome: Outcome) -> None:
    kind, message = outcome.found["loop_for_ever"]["error"]
    assert kind == "NodeTimeout"
    assert "node 'work' took longer than its 0.5 s" in message
    first, *later = outcome.found["beats"]
    if outcome.is_contained:
        assert not is_alive(first[0])
    else:
        assert later[0][0] == first[0]
        assert later[0][1] != first[1]  # the thread went on after the node had failed


@about("processes that it started, even with `setsid`")
def test_children_that_leave_the_session_are_killed_with_the_node_or_stay(outcome: Outcome) -> None:
    assert outcome.found["start_children"]["status"] == "completed"
    assert len(outcome.children) == 50
    assert len(outcome.left) == (0 if outcome.is_contained else 50)


@about("memory")
def test_a_greedy_process_is_ended_but_many_may_take_more_together(outcome: Outcome) -> None:
    if outcome.is_contained:
        kind, message = outcome.found["take_memory"]["error"]
        assert (kind, message) == ("OutOfMemory", "node 'work' was ended: it took more than 0.4 GB")
    else:
        assert outcome.found["take_memory"]["status"] == "completed"
    assert outcome.found["share_memory"]["state"]["ended"] == [0, 0, 0]


@about("a crash of the interpreter")
def test_a_crash_fails_the_node(outcome: Outcome, tmp_path: Path) -> None:
    if outcome.is_contained:
        assert outcome.found["crash"]["error"] == [
            "EnvironmentFailed",
            "node 'work' was ended: its process was ended by signal SIGABRT",
        ]
        return
    assert run_program("crash", tmp_path) == -signal.SIGABRT
    assert run_program("crash", tmp_path) == 0
    assert found_in(tmp_path) == "the crash"


@about("variables of this process")
def test_only_declared_variables_pass(outcome: Outcome) -> None:
    seen = outcome.found["look_around"]["state"]["variables"]
    assert ("MY_SECRET" in seen) != outcome.is_contained
    if outcome.is_contained:
        assert set(seen) <= {"PATH", "HOME", "LANG", "LC_CTYPE"}  # Python itself sets the last one


@about("files of your user, including secrets in your home")
def test_files_of_the_user_can_be_read(outcome: Outcome) -> None:
    assert outcome.found["look_around"]["state"]["secret"] == "readable"


@about("writing outside its workspace")
def test_a_node_can_write_outside_its_workspace(outcome: Outcome) -> None:
    workspace = Path((outcome.folder / "outside.txt").read_text())
    assert not outcome.folder.is_relative_to(workspace)


@about("network")
def test_the_network_is_open(outcome: Outcome) -> None:
    assert outcome.found["look_around"]["state"]["heard"] == "hello"


@about("processor time")
def test_all_processors_are_shared(outcome: Outcome) -> None:
    assert outcome.found["look_around"]["state"]["processors"] == sorted(os.sched_getaffinity(0))


def test_each_row_of_the_documented_table_has_a_test() -> None:
    text = (ROOT / "docs" / "environments.md").read_text().partition("## What holds, and what does not")[2]
    table = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("|")]
    rows = [re.split(r"\s*\|\s*", line)[1] for line in table[2:]]
    assert rows == list(_ROWS)
