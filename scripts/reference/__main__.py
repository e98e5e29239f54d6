"""Writes docs/commands.md and docs/api.md: `python -m scripts.reference`."""

from pathlib import Path

from scripts.reference import api, commands

DOCS = Path(__file__).parents[2] / "docs"

if __name__ == "__main__":
    (DOCS / "commands.md").write_text(commands.page())
    (DOCS / "api.md").write_text(api.page())
