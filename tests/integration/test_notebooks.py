"""Use in a notebook: an event loop that runs already, and workflows that no file holds."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import wtb
from wtb.domain.errors import InvalidInput

CELL = """
import asyncio
import wtb

flow = wtb.Workflow("cell")


@flow.node(start=True)
async def fetch(state):
    await asyncio.sleep(0)
    return {"docs": 3}


@flow.node()
def answer(state, ctx):
    return {"answer": ctx.ask("Go on?") + str(state["docs"])}


flow.edge("fetch", "answer")
flow.edge("answer", wtb.END)
"""


def cell() -> Any:
    """Run a cell as a notebook does: in a namespace that is no module of a file."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(CELL, "<ipython-input-1>", "exec"), namespace)  # noqa: S102  this is what a notebook does
    return namespace["flow"]


def test_async_nodes_run_inside_a_loop_that_runs_already(tmp_path: Path) -> None:
    async def main() -> str:
        beating = asyncio.create_task(asyncio.sleep(0, "alive"))
        with wtb.Bench(folder=tmp_path / "wtb") as bench:
            run = bench.run(cell(), {})
            assert run.status == "paused"
            assert run.resume(answer="yes").state["answer"] == "yes3"
        return await beating

    assert asyncio.run(main()) == "alive"


def test_a_workflow_of_a_notebook_is_passed_again_in_the_next_session(tmp_path: Path) -> None:
    with wtb.Bench(folder=tmp_path / "wtb") as bench:
        id = bench.run(cell(), {}).id
    with wtb.Bench(folder=tmp_path / "wtb") as bench:
        with pytest.raises(InvalidInput, match=rf"pass it: bench\.resume\('{id}', flow\)"):
            bench.resume(id)
        assert bench.resume(id[:13], cell(), answer="yes").state["answer"] == "yes3"


def test_a_bench_knows_the_workflow_of_a_run_that_it_began(tmp_path: Path) -> None:
    with wtb.Bench(folder=tmp_path / "wtb") as bench:
        id = bench.run(cell(), {}).id
        assert bench.get(id).resume(answer="yes").state["answer"] == "yes3"


def executed(folder: Path, *cells: str) -> list[Any]:
    """Run cells in a kernel of their own, and return what each displayed."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    client = NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    return [each.outputs for each in client.execute().cells]


FLOW = """
@flow.node(start=True)
def double(state):
    return {"n": state["n"] * 2, "text": "<script>alert(1)</script>"}
flow.edge("double", wtb.END)
"""


def test_a_notebook_shows_results_and_a_cell_that_runs_again_replaces_its_node(tmp_path: Path) -> None:
    outputs = executed(
        tmp_path,
        "import wtb\nflow = wtb.Workflow('nb')\nbench = wtb.Bench('memory://')",
        FLOW,
        "run = bench.run(flow, {'n': 1}); run",
        FLOW.replace("* 2", "* 10"),
        "bench.run(flow, {'n': 1}).state['n']",
        "run.history",
        "run.diff(0)",
        "run.summary()",
        "print(bench.get(run.id))",
        "def exact(ctx):\n    return float(ctx.state['n'] == ctx.expected)\n"
        "flow.add_variant('double', 'none', lambda state: {'n': 0})\n"
        "result = bench.batch(flow, name='b', cases=[{'id': 'a', 'input': {'n': 1}, 'expected': 10}], "
        "evaluators=[wtb.evaluator(exact)])",
        "result",
        "result.compare()",
        "run.tree()",
    )
    shown = outputs[2][0]["data"]["text/html"]
    assert "of nb: completed, step 1" in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert outputs[4][0]["data"]["text/plain"] == "10"
    pages = [outputs[at][0]["data"]["text/html"] for at in (5, 6, 7, 10, 11, 12)]
    assert all("<script" not in page for page in pages)
    for page, text in zip(pages, ("double#1", "state.n", "1 step,", "baseline", "no evidence", "Run "), strict=True):
        assert text in page
    assert "of nb: completed, step 1" in outputs[8][0]["text"]
    assert "Batch b: 2 of 2 jobs" in outputs[9][0]["data"]["text/html"]


def test_outside_a_notebook_a_second_node_of_a_name_is_a_mistake() -> None:
    flow = cell()
    flow.add_node("fetch", lambda state: {})
    with wtb.Bench("memory://") as bench, pytest.raises(wtb.InvalidWorkflow, match="fetch"):
        bench.run(flow, {})


def test_the_page_about_notebooks_runs_as_a_notebook(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "notebooks.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    outputs = executed(tmp_path, *re.split(r"^# %%.*\n", code, flags=re.MULTILINE)[1:])
    assert "of double: completed" in outputs[2][0]["data"]["text/html"]
    assert "Batch doubles: 10 of 10 jobs" in outputs[5][0]["data"]["text/html"]
    assert "baseline" in outputs[6][0]["text"]


def test_what_a_run_shows_of_secrets_is_masked() -> None:
    flow = wtb.Workflow("secret")
    flow.add_node("a", lambda state: {"api_key": "sk-1", "nested": {"password": "hush"}}, start=True)
    flow.edge("a", wtb.END)
    with wtb.Bench("memory://") as bench:
        run = bench.run(flow, {})
        shown = f"{run}{run.diff(0)}{run._repr_html_()}{run.diff(0)._repr_html_()}"
    assert "***" in shown
    assert "sk-1" not in shown
    assert "hush" not in shown
