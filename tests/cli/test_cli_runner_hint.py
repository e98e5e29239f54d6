"""A batch on threads says when processes would be quicker, also on a machine that others keep busy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from os import cpu_count
from pathlib import Path

import pytest

from tests.shell import Shell

BATCHES = """
import time

import wtb


def compute(state):
    until = time.monotonic() + 7
    while time.monotonic() < until:
        sum(range(1_000))
    return {}


def wait(state):
    time.sleep(7)
    return {}


def batch_of(name, node):
    flow = wtb.Workflow(name)
    flow.add_node("only", node, start=True)
    cases = [{"id": str(number), "input": {}} for number in range(4)]
    return wtb.BatchTest(flow, cases=cases, evaluators=["steps"], workers=4)


computing, waiting = batch_of("computing", compute), batch_of("waiting", wait)
"""

HINT = "`--runner processes` would be up to"


@pytest.fixture
def busy_machine() -> Iterator[None]:
    """Twice as many other programs as cores, so that a batch gets a small part of one."""
    with ExitStack() as programs:
        for _ in range(2 * (cpu_count() or 1)):
            program = programs.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            programs.callback(program.kill)
        yield


@pytest.mark.usefixtures("busy_machine")
def test_threads_that_compute_say_so_on_a_busy_machine_and_threads_that_wait_do_not(empty_folder: Path) -> None:
    shell = Shell(empty_folder, batches=BATCHES)
    batches = "computing", "waiting"
    started = [shell.start("batch", "run", f"batches.py:{name}", stdout=subprocess.PIPE) for name in batches]
    said = [command.communicate(timeout=100)[0] for command in started]
    assert [command.returncode for command in started] == [0, 0], said
    assert [HINT in text for text in said] == [(cpu_count() or 1) > 1, False], said
