"""Names of files and variables that a database could not hold are observed all the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import wtb

CASES = [{"id": "1", "input": {}}]


def test_a_file_whose_name_is_no_utf_8_is_noticed_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prompt = Path(os.fsdecode(b"caf\xe9.txt"))
    prompt.write_text("Be kind.")

    def node(state: Any) -> dict[str, Any]:
        os.environ.get("\0", os.environ.get("\udce9"))
        return {"answer": prompt.read_text()}

    flow = wtb.Workflow("names")
    flow.add_node("answer", node, start=True)
    with wtb.Bench(folder=tmp_path / ".wtb") as bench:
        assert bench.batch(flow, cases=CASES, evaluators=[wtb.Steps()]).status == "completed"
        assert bench.plan(flow, cases=CASES, evaluators=[wtb.Steps()]).kept == 1
    other = tmp_path / "other"
    other.write_text("Be brief.")
    other.rename(prompt.absolute())
    with wtb.Bench(folder=tmp_path / ".wtb") as bench:
        assert bench.plan(flow, cases=CASES, evaluators=[wtb.Steps()]).kept == 0
