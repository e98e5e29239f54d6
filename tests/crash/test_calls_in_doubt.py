"""A batch was killed in the middle of an external call: what `confirm` reads to find out is no reason to call again."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.shell import Shell

BATCH = """
import json, os, signal
from functools import cache
from pathlib import Path

import wtb

HERE = Path(__file__).parent


@cache
def settings():
    return json.loads((HERE / "settings.json").read_text())


def sent():
    return (HERE / "world.txt").read_text().split()


{confirm}
    settings()
    return "sent" if call.arguments["what"] in {looked_up} else None


@wtb.tool(confirm=happened)
def send(what):
    settings()
    os.system(f"echo {{what}} >> {{HERE / 'world.txt'}}")
    if not (HERE / "killed").exists():
        (HERE / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "sent"


flow = wtb.Workflow("mail")


@flow.node(start=True)
def post(state, ctx):
    return {{"answer": ctx.tool(send, what=state["to"])}}


cases = [{{"id": name, "input": {{"to": name}}, "expected": {{"answer": "sent"}}}} for name in ("ada", "bob")]
batch = wtb.BatchTest(flow, cases=cases, evaluators=[wtb.ExactMatch("answer")], external="run", workers=1)
"""


@pytest.mark.parametrize("confirm", ["def happened(call):", "async def happened(call):"])
@pytest.mark.parametrize("looked_up", ['(HERE / "world.txt").read_text().split()', "sent()"], ids=["itself", "helper"])
def test_what_confirm_reads_about_a_call_in_doubt_is_no_reason_to_make_the_call_again(
    tmp_path: Path, confirm: str, looked_up: str
) -> None:
    shell = Shell(tmp_path, batch=BATCH.format(confirm=confirm, looked_up=looked_up))
    (tmp_path / "settings.json").write_text(json.dumps({"from": "wtb"}))
    world = tmp_path / "world.txt"
    shell.wtb("batch", "run", "batch.py", code=-signal.SIGKILL)
    (first,) = world.read_text().split()
    shell.wtb("batch", "run", "batch.py")
    assert sorted(world.read_text().split()) == ["ada", "bob"]
    with world.open("a") as file:
        file.write("somebody else wrote this\n")
    again = shell.json("batch", "plan", "batch.py")
    assert again["jobs"]["kept"] == 2, (first, again)

    (tmp_path / "settings.json").write_text(json.dumps({"from": "ada"}))  # the tool itself depends on these
    edited = shell.json("batch", "plan", "batch.py")
    assert edited["jobs"]["kept"] == 0, edited
