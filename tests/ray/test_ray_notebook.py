"""A notebook that defines a workflow in its cells and runs it on Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

DEFINE = """
import dataclasses

import wtb

GREETING = "dear"


@wtb.serialisable
@dataclasses.dataclass
class Letter:
    to: str


def greeted(name):
    return f"{GREETING} {name}"


flow = wtb.Workflow("letters")
"""
NODES = """
@flow.node(start=True)
def write(state):
    return {"text": greeted(state["to"]), "letter": Letter(state["to"])}


@flow.node()
def sign(state, ctx):
    (ctx.workspace / "letter.txt").write_text(state["text"])
    return {"signed": state["letter"].to}


flow.edge("write", "sign")


@wtb.evaluator(worst=0, best=1)
def is_greeted(context):
    return context.state["text"] == greeted(context.state["signed"])
"""
RUN = """
cases = [{"id": name, "input": {"to": name}} for name in ("ada", "bob")]
with wtb.Bench() as bench:
    result = bench.batch(flow, name="letters", cases=cases, evaluators=[is_greeted], runner="ray", workers=1)
    texts = [(job.run.state["text"], job.scores["is_greeted"]) for job in result.results]
    hosts = {job.ray is not None for job in result.results}
(result.status, texts, hosts, result.sharing["executed"])
"""


LOCKED = """
import threading

lock = threading.Lock()
locked = wtb.Workflow("locked")


@locked.node(start=True)
def wait(state):
    with lock:
        return {}


with wtb.Bench() as bench:
    try:
        bench.batch(locked, cases=cases, evaluators=["steps"], runner="ray", workers=1)
    except wtb.InvalidInput as error:
        said = str(error)
said
"""


def shown(folder: Path, *cells: str) -> list[list[str]]:
    """Run cells in a kernel of their own; return what each cell printed and its last value, as text."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    outputs = [each.outputs for each in client.execute().cells]
    return [[_text(output) for output in each if output["output_type"] != "display_data"] for each in outputs]


def _text(output: Any) -> str:
    return str(output["data"]["text/plain"] if "data" in output else output["text"])


def test_the_cells_of_a_notebook_run_on_ray_and_a_changed_cell_gives_new_results(
    empty_folder: Path, ray_cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", ray_cluster)
    again = RUN.replace('"letters"', '"again"')
    *_, first, _, second, [refused] = shown(empty_folder, DEFINE, NODES, RUN, 'GREETING = "hello"', again, LOCKED)
    assert first == ["('completed', [('dear ada', 1.0), ('dear bob', 1.0)], {True}, 4)"]
    assert second == ["('completed', [('hello ada', 1.0), ('hello bob', 1.0)], {True}, 4)"]
    stored = b"".join(file.read_bytes() for file in (empty_folder / ".wtb").rglob("*") if file.is_file())
    assert b"cloudpickle" not in stored
    assert "cannot pickle '_thread.lock' object. One of its functions uses something" in refused
    assert "make it inside the function" in refused
