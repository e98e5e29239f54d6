"""The example of a LangGraph agent does what its README.md says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import wtb

EXAMPLE = Path(__file__).parents[2] / "examples" / "langgraph_agent"


def ran(folder: Path, *command: str) -> str:
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_story_of_an_order(tmp_path: Path) -> None:
    assert ran(tmp_path, str(EXAMPLE / "story.py")).splitlines() == [
        "paused: break before tools; the model asks for mug, teapto",
        "answer: Sorry, there is no teapto. Total: unknown",
        "put aside: ['2 × mug']",
        "files: ['quote.md']",
        "back after the first answer of the model: 1 call taken back",
        "put aside: []",
        "files: []",
        "answer: Here you are. Total: 40.5",
        "put aside: ['1 × teapto', '2 × mug']",
        "files: ['quote.md']",
    ]


def test_the_trial_of_prompts_and_tools(tmp_path: Path) -> None:
    said = ran(tmp_path, "-m", "wtb", "batch", "run", str(EXAMPLE / "trial.py"))
    assert "268 node runs executed, 116 shared." in said
    assert "not shared" not in said
    with wtb.Bench(folder=tmp_path / ".wtb") as bench:
        result = bench.get_batch("crockery")
        findings = {each.comparison.candidate: each.finding for each in result.compare("exact_match")}
        means = {row.combination: round(row.summaries["exact_match"].mean or 0, 2) for row in result.matrix}
    assert findings == {
        "tools=tolerant": "no evidence",
        "model=careful": "better",
        "model=careful, tools=tolerant": "better",
    }
    assert means == {
        "baseline": 0.33,
        "tools=tolerant": 0.5,
        "model=careful": 0.67,
        "model=careful, tools=tolerant": 1.0,
    }
