"""A batch with verdicts, failures, flaky cases and tags, which the tests of batch routes look at."""

from __future__ import annotations

from typing import Any

import wtb
from wtb.bench import Bench


def answering() -> wtb.Workflow:
    """Return a workflow whose variant `good` answers right, and whose variant `bad` fails on one case."""
    flow = wtb.Workflow("answering")

    @flow.node(start=True)
    def answer(state: Any) -> dict[str, Any]:
        return {"answer": "no"}

    @flow.variant("answer", "good")
    def good(state: Any) -> dict[str, Any]:
        return {"answer": state["question"]}

    @flow.variant("answer", "bad")
    def bad(state: Any) -> dict[str, Any]:
        if state["question"] == "q0":
            raise ValueError("no idea")
        return {"answer": "bad"}

    flow.edge("answer", wtb.END)
    return flow


CASES = [
    {
        "id": f"c{n}",
        "input": {"question": f"q{n}"},
        "expected": {"answer": f"q{n}"},
        "tags": ["even"] if n % 2 == 0 else [],
    }
    for n in range(8)
]


def run_batch(bench: Bench, name: str = "qa") -> str:
    """Run the batch and return its id."""
    return bench.batch(
        answering(),
        name=name,
        cases=CASES,
        evaluators=[wtb.ExactMatch("answer")],
        repeats=1,
        runner="threads",
        workers=2,
    ).id
