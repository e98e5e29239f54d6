"""What observing costs: one process runs trivial jobs and tells the processor time of each, observed or not.

The hook of a process cannot be taken off, so `benchmarks/batch.py` starts this file again and again, in turns.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import wtb
from wtb.domain.observation import Observation, ObservedSource

CASES = 150
ROUNDS = 3


class BlindObserver:
    """An observer that sees nothing."""

    def __init__(self, **options: Any) -> None:
        """Take what the real one takes."""

    def start(self) -> None:
        """Set no hook."""

    def count(self) -> int:
        """Return that there is nothing."""
        return 0

    def seen(self, since: int = 0) -> Sequence[Observation]:
        """Return nothing."""
        return ()

    def digest(self, source: ObservedSource) -> str:
        """Return nothing."""
        return ""


def nothing(state: Mapping[str, Any]) -> dict[str, Any]:
    """Do nothing."""
    return {"way": 1}


def reading(state: Mapping[str, Any]) -> dict[str, Any]:
    """Read a prompt and a variable, as nodes do."""
    return {"way": Path("prompt.txt").read_text() + os.environ.get("MODEL", "")}


def job_us(node: Any) -> float:
    """Return the processor time of a job of three nodes, in the fastest round."""
    flow = wtb.Workflow("observed")
    for name in "abc":
        flow.add_node(name, node, start=name == "a")
    flow.edge("a", "b").edge("b", "c").edge("c", wtb.END)
    cases = [{"id": str(number), "input": {}} for number in range(CASES)]
    found = []
    with wtb.Bench(folder=Path(".wtb")) as bench:
        for number in range(ROUNDS + 1):
            test = wtb.BatchTest(flow, name=str(number), cases=cases, evaluators=[wtb.Steps()], workers=1, share=False)
            began = time.process_time()
            bench.batch(test)
            found.append((time.process_time() - began) / CASES * 1e6)
    return min(found[1:])


def main() -> None:
    """Print the processor time of a job, for a node and an observer by name."""
    node, observer = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="wtb-observing-") as folder:
        os.chdir(folder)
        Path("prompt.txt").write_text("Be kind.")
        if observer == "blind":
            with mock.patch("wtb.bootstrap.ProcessObserver", BlindObserver):
                print(job_us(globals()[node]))
        else:
            print(job_us(globals()[node]))


if __name__ == "__main__":
    main()
