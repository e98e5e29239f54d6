"""The reference pages are true: what is committed is what the code says now."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import wtb
import wtb.langgraph
from scripts.reference import api, commands, events, notebook
from scripts.reference.layout import SECTIONS

DOCS = Path(__file__).parents[2] / "docs"
API = (DOCS / "api.md").read_text()


@pytest.mark.parametrize("columns", ["40", "200"])
def test_the_page_of_the_commands_is_made_of_their_help(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert commands.page() == (DOCS / "commands.md").read_text(), "run `make reference`"


def test_the_page_of_the_python_api_is_made_of_signatures_and_docstrings() -> None:
    assert api.page() == API, "run `make reference`"


def test_the_page_of_the_events_is_made_of_the_catalogue() -> None:
    assert events.page() == (DOCS / "events.md").read_text(), "run `make reference`"


def test_the_notebook_of_the_first_agent_is_made_of_its_script() -> None:
    assert notebook.page() == (notebook.EXAMPLE / "delivery_agent.ipynb").read_text(), "run `make reference`"


@pytest.mark.parametrize("module", [wtb, wtb.langgraph])
def test_every_public_name_has_a_place(module: Any) -> None:
    names = [f"{module.__name__}.{name}" for name in module.__all__]
    assert [name for name in names if not re.search(rf"(`|^### ){re.escape(name)}\b", API, re.MULTILINE)] == []


def test_everything_that_a_user_holds_is_described_with_all_that_it_has() -> None:
    flow = wtb.Workflow("held")
    seen: list[wtb.Context] = []
    flow.add_node("look", lambda state, ctx: seen.append(ctx), start=True)
    with wtb.Bench("memory://") as bench:
        run = bench.run(flow)
        result = bench.batch(flow, cases=[{"id": "1", "input": {}}], evaluators=[wtb.Steps()])
        held = {"flow": flow, "bench": bench, "run": run, "ctx": seen[0], "result": result, "run.history": run.history}
        for name, value in held.items():
            (part,) = re.findall(rf"(?s)\n### (?:wtb\.{type(value).__name__}|{name})\n(.*?)(?=\n##? |\n### |\Z)", API)
            members = {each for each in dir(value) if not each.startswith("_")}
            told = set(re.findall(r"(?:`|^##### )(?:[\w.]+\.)?(\w+)", part, re.MULTILINE))
            inner = {name for section in SECTIONS for each in section.classes for name in each.beside}
            assert members - told - inner <= {"active_branch_id", "complete", "execution_id"}, name
