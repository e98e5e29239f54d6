"""A quiz whose cases a workflow can get wrong, and a batch of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import wtb
from wtb.bench import Bench
from wtb.flow import Workflow

CASES = [{"id": f"c{number}", "input": {"q": number}, "expected": {"answer": number}} for number in range(12)]


def quiz(*, wrong: int = 0, raising: int = 0) -> Workflow:
    """A workflow that gets the first cases wrong, or raises on them."""
    flow = Workflow("quiz")

    def answer(state: Any) -> dict[str, Any]:
        if state["q"] < raising:
            raise ValueError("no answer")
        return {"answer": -1 if state["q"] < wrong else state["q"]}

    flow.add_node("answer", answer, start=True, cache=False)
    return flow


@dataclass(frozen=True)
class Right:
    """A judge that declares no scale; without a key it raises."""

    has_key: bool = True
    name: str = "right"

    def evaluate(self, context: Any) -> bool:
        if not self.has_key:
            raise RuntimeError("no API key")
        return bool(context.state["answer"] == context.expected["answer"])


def batch(bench: Bench, flow: Workflow, *, name: str = "quiz", has_key: bool = True, **options: Any) -> Any:
    evaluators = [wtb.ExactMatch("answer"), Right(has_key)]
    return bench.batch(flow, name=name, cases=options.pop("cases", CASES), evaluators=evaluators, **options)
