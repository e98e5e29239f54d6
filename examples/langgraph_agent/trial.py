"""Two prompts × two tools over 24 questions: `wtb batch run examples/langgraph_agent/trial.py`."""

from __future__ import annotations

from pathlib import Path

from agent import flow

import wtb

batch = wtb.BatchTest(
    flow,
    name="crockery",
    cases=Path(__file__).parent / "cases.jsonl",
    variants="all",
    baseline={},
    evaluators=[wtb.ExactMatch("total"), wtb.Tokens(), wtb.Steps()],
)
