"""A trivial job against a sample of Inspect AI, in processor time: the same two steps and one score, stored."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from benchmarks.report import Figure

TURNS = 5
ROOT = Path(__file__).parents[1]
INSPECT = Path(sys.prefix) / "inspect" / "bin" / "python"
"""It has an environment of its own, since it needs an older fsspec than the rest."""


def against_inspect() -> list[Figure]:
    """Run trivial jobs of WTB and of Inspect AI, in processes that take turns; the fastest of each counts."""
    if not INSPECT.exists():
        print("No figures of Inspect AI: `make .venv/inspect/.ready` installs it.")
        return []
    taken_us: dict[str, list[float]] = defaultdict(list)
    for _ in range(TURNS):
        for python, peer in ((sys.executable, "wtb"), (str(INSPECT), "inspect")):
            command = [python, "-m", "benchmarks.trivial_jobs", peer]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            taken_us[peer].append(float(done.stdout.splitlines()[-1]))
    ours, theirs = min(taken_us["wtb"]), min(taken_us["inspect"])
    return [
        Figure(
            name="trivial job ÷ a sample of Inspect AI, processor time, one thread, SQLite",
            value=ours / theirs,
            unit="×",
            bar=0.25,
            detail=f"{ours / 1e3:.2f} and {theirs / 1e3:.2f} ms; two nodes and one score each",
            raw={"wtb_us": ours, "inspect_us": theirs},
        )
    ]
