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


def shown(folder: Path, *cells: str) -> list[Any]:
    """Run cells in a kernel of their own; return the last value of each cell, as text."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    client = NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    outputs = [each.outputs for each in client.execute().cells]
    return [
        [output["data"]["text/plain"] for output in each if output["output_type"] == "execute_result"]
        for each in outputs
    ]


def test_the_cells_of_a_notebook_run_on_ray_and_a_changed_cell_gives_new_results(
    empty_folder: Path, ray_cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", ray_cluster)
    again = RUN.replace('"letters"', '"again"')
    *_, first, _, second = shown(empty_folder, DEFINE, NODES, RUN, 'GREETING = "hello"', again)
    assert first == ["('completed', [('dear ada', 1.0), ('dear bob', 1.0)], {True}, 4)"]
    assert second == ["('completed', [('hello ada', 1.0), ('hello bob', 1.0)], {True}, 4)"]
    stored = b"".join(file.read_bytes() for file in (empty_folder / ".wtb").rglob("*") if file.is_file())
    assert b"cloudpickle" not in stored
