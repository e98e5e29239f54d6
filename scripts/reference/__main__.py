"""Writes docs/commands.md, docs/api.md, docs/events.md and the example notebook: `python -m scripts.reference`."""

from pathlib import Path

from scripts.reference import api, commands, events, notebook

DOCS = Path(__file__).parents[2] / "docs"

if __name__ == "__main__":
    (DOCS / "commands.md").write_text(commands.page())
    (DOCS / "api.md").write_text(api.page())
    (DOCS / "events.md").write_text(events.page())
    (notebook.EXAMPLE / "delivery_agent.ipynb").write_text(notebook.page())
