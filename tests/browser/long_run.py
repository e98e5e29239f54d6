"""Stores a run of very many small steps, for tests and measurements of the page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wtb


def counting(limit: int) -> wtb.Workflow:
    """Return a workflow that counts to a limit, one step a number."""
    flow = wtb.Workflow("counting")

    def count(state: Mapping[str, Any]) -> dict[str, Any]:
        return {"count": state.get("count", 0) + 1}

    flow.add_node("count", count, start=True)
    flow.edge("count", "count", when=f"count < {limit}")
    flow.edge("count", wtb.END, otherwise=True)
    return flow


def store_long_run(folder: Path, run_id: str, *, steps: int) -> None:
    """Run the counting workflow in the bench of a folder."""
    with wtb.Bench(folder=folder / ".wtb") as bench:
        run = bench.run(counting(steps), {}, run_id=run_id, max_steps=steps + 1)
        assert run.status == "completed"
