"""Print the processor time of a trivial job in µs: two nodes that do nothing and one score, stored.

`python -m benchmarks.trivial_jobs wtb|inspect`. Each runs in its own process, because Inspect AI loads thousands of
modules, and WTB looks through the modules of its process. Imports, opening the store and a warm-up are not
counted.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

JOBS = 300
WARM = 20


def of_wtb(folder: Path) -> Callable[[int], None]:
    """Return a function that runs so many jobs of WTB, on one thread and SQLite."""
    import wtb

    def first(state: dict[str, Any]) -> dict[str, Any]:
        return {"text": state["text"] + "a"}

    def second(state: dict[str, Any]) -> dict[str, Any]:
        return {"text": state["text"] + "b"}

    flow = wtb.Workflow("trivial")
    flow.add_node("first", first, start=True)
    flow.add_node("second", second)
    flow.edge("first", "second")

    bench = wtb.Bench(folder=folder)

    def run(jobs: int) -> None:
        cases = [{"id": f"c{each}", "input": {"text": ""}, "expected": "ab"} for each in range(jobs)]
        scores = [wtb.ExactMatch("text")]
        found = bench.batch(wtb.BatchTest(flow, name=f"{jobs} jobs", cases=cases, evaluators=scores, workers=1))
        assert {job.scores["exact_match"] for job in found.results} == {1.0}

    return run


def of_inspect(folder: Path) -> Callable[[int], None]:
    """Return a function that runs so many samples of Inspect AI, with its log in a file."""
    import inspect_ai
    from inspect_ai.dataset import Sample
    from inspect_ai.scorer import Score, accuracy, scorer
    from inspect_ai.solver import solver

    def first() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            state.output.completion = "a"
            return state

        return solve

    def second() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            state.output.completion += "b"
            return state

        return solve

    def exact() -> Any:
        async def score(state: Any, target: Any) -> Any:
            return Score(value=int(state.output.completion == target.text))

        return score

    def run(jobs: int) -> None:
        samples = [Sample(id=f"c{each}", input="", target="ab") for each in range(jobs)]
        scored = scorer(metrics=[accuracy()])(exact)()
        task = inspect_ai.Task(dataset=samples, solver=[solver(first)(), solver(second)()], scorer=scored)
        (log,) = inspect_ai.eval(task, model="mockllm/model", display="none", log_dir=str(folder))
        assert log.results is not None
        assert log.results.scores[0].metrics["accuracy"].value == 1.0

    return run


def main() -> None:
    """Measure one of the two."""
    with tempfile.TemporaryDirectory(prefix="wtb-bench-") as name:
        run = {"wtb": of_wtb, "inspect": of_inspect}[sys.argv[1]](Path(name))
        run(WARM)
        began = time.process_time()
        run(JOBS)
        print((time.process_time() - began) / JOBS * 1e6)


if __name__ == "__main__":
    main()
