"""The reference pages are true: what is committed is what the code says now."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.reference import commands

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("columns", ["40", "200"])
def test_the_page_of_the_commands_is_made_of_their_help(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert commands.page() == (DOCS / "commands.md").read_text(), "run `make reference`"
