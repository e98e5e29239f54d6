"""A project with a batch that has everything: verdicts, failures, flaky repeats, tags, and names that hurt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import wtb

NASTY = "<script>window.caught=1</script><img/src=x/onerror=window.caught=2>"
"""Names of variants have no white space; a slash is allowed in the id of a case only."""

PROJECT = """
import time
from pathlib import Path

import wtb

HERE = Path(__file__).parent
flow = wtb.Workflow("answering")


@wtb.tool(effects="external", idempotent=True)
def look_up(question):
    if question == "q7":
        raise ValueError("nothing is known of q7")
    return question


@flow.node(start=True)
def search(state, ctx):
    while (HERE / "gate").exists():
        time.sleep(0.02)
    return {"found": state["question"]}


@flow.node
def answer(state, ctx):
    return {"answer": "the answer is no"}


@flow.variant("answer", "good")
def good(state, ctx):
    return {"answer": state["expected"]}


@flow.variant("answer", "bad")
def bad(state, ctx):
    if state["question"] == "q0" and not (HERE / "mended").exists():
        raise ValueError("no <b>idea</b> about q0")
    return {"answer": "the reply is no"}


flow.edge("search", "answer")
CASES = [
    {"id": f"c{n}", "input": {"question": f"q{n}", "expected": f"the answer is {n}"},
     "expected": {"answer": f"the answer is {n}"}, "tags": ["even"] if n % 2 == 0 else ["odd"]}
    for n in range(8)
]
batch = wtb.BatchTest(flow, name="checks", cases=CASES, evaluators=[wtb.ExactMatch("answer"), wtb.Latency()], workers=2)
"""

INLINE = "\n".join(
    f'{{"id": "i{n}", "input": {{"question": "q{n}", "expected": "{n}"}}, "expected": {{"answer": "{n}"}}}}'
    for n in range(1, 7)
)


def write_project(folder: Path) -> str:
    """Write the project, and return the reference that a server takes."""
    (folder / "checks.py").write_text(PROJECT)
    return "checks.py:batch"


class Refuses:
    """An evaluator that cannot score some answers."""

    name = "polite"

    def evaluate(self, context: Any) -> float:
        if context.state["number"] == 3:
            raise ValueError(f"{NASTY} is not polite")
        return 1.0


def hostile_batch(bench: wtb.Bench) -> str:
    """Run a batch whose every text is markup, with failures, flaky repeats and an evaluator that fails."""
    flow, runs = wtb.Workflow(f"flow {NASTY}"), iter(range(10_000))

    @flow.node(start=True, cache=False)
    def answer(state: Any) -> dict[str, Any]:
        return {"answer": f"{NASTY} {state['number']}"}

    def moody(state: Any) -> dict[str, Any]:
        turn = next(runs)
        if state["number"] == 1:
            raise ValueError(f"{NASTY} failed")
        return {"answer": f"{NASTY} {state['number'] if turn % 2 else 'else'}"}

    flow.add_variant("answer", NASTY.replace("/", "_"), moody)
    cases = [
        {
            "id": f"{NASTY} {n}" if n != 3 else "c3",
            "input": {"number": n, "text": NASTY},
            "expected": {"answer": f"{NASTY} {n}"},
            "tags": [NASTY],
        }
        for n in range(4)
    ]
    made = bench.batch(
        flow,
        name=f"batch {NASTY}",
        cases=cases,
        repeats=3,
        workers=1,
        share=False,
        evaluators=[wtb.ExactMatch("answer"), Refuses()],
    )
    return made.id
