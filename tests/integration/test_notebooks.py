"""Use in a notebook: an event loop that runs already, and workflows that no file holds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

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
