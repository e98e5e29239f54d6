"""One order: run, break, look, go back with its files and effects, and try again with other tools. `python story.py`"""

from __future__ import annotations

from agent import flow
from shop import ASIDE

import wtb

QUESTION = "Please put aside 2 mugs and a teapto. What do they cost?"

with wtb.Bench() as bench:
    run = bench.run(flow, {"messages": [("user", QUESTION)]}, variants={"model": "careful"}, break_before=["tools"])
    asked = [call["args"]["product"] for call in run.state["messages"][-1].tool_calls]
    print(f"paused: {run.waiting.reason if run.waiting else ''}; the model asks for {', '.join(asked)}")

    run.resume(break_before=())
    print("answer:", run.state["messages"][-1].content)
    print("put aside:", sorted(ASIDE.read_text().splitlines()))
    print("files:", sorted(path.name for path in run.workspace.iterdir()))

    plan = run.rollback("model#1")
    print(f"back after the first answer of the model: {len(plan.reverse)} call taken back")
    print("put aside:", sorted(ASIDE.read_text().splitlines()))
    print("files:", sorted(path.name for path in run.workspace.iterdir()))

    other = run.fork(variants={"tools": "tolerant"}).resume()
    print("answer:", other.state["messages"][-1].content)
    print("put aside:", sorted(ASIDE.read_text().splitlines()))
    print("files:", sorted(path.name for path in other.workspace.iterdir()))
