"""One batch, with or without looking on at what its nodes read; prints processor seconds a job.

The hook of a process cannot be removed: `benchmarks.batch` starts this in turns, `python -m benchmarks.observing on`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import wtb
from wtb.infrastructure.observation import ProcessObserver

_JOBS = 400


def workflow(prompt: Path) -> wtb.Workflow:
    """Return a workflow whose nodes do nothing but read: one a file, one a variable, one nothing."""
    flow = wtb.Workflow("observed")

    @flow.node(start=True)
    def retrieve(state: Any) -> dict[str, Any]:
        return {"docs": prompt.read_text()}

    @flow.node()
    def rank(state: Any) -> dict[str, Any]:
        return {"model": os.environ.get("WTB_BENCHMARK_MODEL", "small")}

    @flow.node()
    def answer(state: Any) -> dict[str, Any]:
        return {"answer": state["docs"]}

    flow.edge("retrieve", "rank")
    flow.edge("rank", "answer")
    return flow


def main() -> None:
    """Run the batch, and print what a job took."""
    if sys.argv[1] == "off":
        ProcessObserver.start = lambda self: None  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory(prefix="wtb-observing-") as folder:
        os.chdir(folder)
        prompt = Path(folder) / "prompt.txt"
        prompt.write_text("Be kind.")
        cases = [{"id": str(number), "input": {"question": number}} for number in range(_JOBS)]
        with wtb.Bench(folder=Path(folder) / ".wtb") as bench:
            flow = workflow(prompt)
            bench.batch(flow, name="warm", cases=cases[:5], evaluators=[wtb.Steps()], workers=1)
            began = time.process_time()
            bench.batch(flow, cases=cases, evaluators=[wtb.Steps()], workers=1)
            print((time.process_time() - began) / _JOBS)


if __name__ == "__main__":
    main()
