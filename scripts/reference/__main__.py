"""Writes docs/commands.md, api.md, events.md, the example notebook and new tables: `python -m scripts.reference`."""

from pathlib import Path

from scripts.reference import api, commands, events, notebook, tables
from wtb.infrastructure.sql import schema

DOCS = Path(__file__).parents[2] / "docs"

if __name__ == "__main__":
    (DOCS / "commands.md").write_text(commands.page())
    (DOCS / "api.md").write_text(api.page())
    (DOCS / "events.md").write_text(events.page())
    (notebook.EXAMPLE / "delivery_agent.ipynb").write_text(notebook.page())
    schema.NEWEST_TABLES.write_text(tables.statements())
