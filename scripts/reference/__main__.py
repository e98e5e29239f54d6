"""Writes docs/commands.md, docs/api.md and docs/events.md: `python -m scripts.reference`."""

from pathlib import Path

from scripts.reference import api, commands, events

DOCS = Path(__file__).parents[2] / "docs"

if __name__ == "__main__":
    (DOCS / "commands.md").write_text(commands.page())
    (DOCS / "api.md").write_text(api.page())
    (DOCS / "events.md").write_text(events.page())
