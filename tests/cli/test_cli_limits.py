"""Limits as a person types them: set for one command, refused if they make no sense, and shown by `status`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shell import Shell

BATCH = """
import wtb

flow = wtb.Workflow("asking")


@wtb.tool(effects="none", limit="service")
def ask():
    raise ConnectionError("away")


@flow.node(start=True)
def work(state, ctx):
    return {"answer": ctx.tool(ask)}


cases = [{"id": str(n), "input": {"n": n}} for n in range(4)]
limits = {"service": wtb.Limit(8, break_after=2, cool_down_s=3600), "model": 3}
batch = wtb.BatchTest(flow, cases=cases, evaluators=["steps"], limits=limits, workers=1)
"""


@pytest.fixture
def shell(empty_folder: Path) -> Shell:
    return Shell(empty_folder, batch=BATCH)


def test_a_limit_is_set_for_a_command_and_keeps_its_breaker(shell: Shell) -> None:
    done = shell.json("batch", "run", "batch.py", "--limit", "service=5", "--limit", "other=adaptive", code=3)
    errors = sorted(failure["error"].partition(":")[0] for failure in done["failures"])
    assert errors == ["CircuitOpen", "CircuitOpen", "ConnectionError", "ConnectionError"]
    model, other, service = shell.json("batch", "status", "asking")["limits"]
    assert (service["name"], service["width"], service["held"], service["breaker"]) == ("service", 5, 0, "open")
    assert (model["name"], model["width"], model["breaker"]) == ("model", 3, None)
    assert (other["name"], other["adaptive"], other["width"]) == ("other", True, 4)
    shown = shell.wtb("batch", "status", "asking").stdout
    assert "Limit service (5): 0 calls running, 0 waiting. Its circuit breaker is open; a call is tried from " in shown
    assert "Limit other (adaptive, now 4): 0 calls running, 0 waiting.\n" in shown


@pytest.mark.parametrize("given", ["service", "service=", "service=0", "service=many", "=3"])
def test_a_limit_that_says_no_number_is_refused(shell: Shell, given: str) -> None:
    refused = shell.wtb("batch", "run", "batch.py", "--limit", given, code=2)
    assert (
        refused.stderr
        == f"wtb: --limit {given!r} needs a number of at least 1; write NAME=N, as openai=20, or NAME=adaptive\n"
    )
