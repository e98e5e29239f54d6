"""Makes a notebook from a script whose cells begin with `# %%` and a sentence about the cell."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parents[2] / "examples" / "first_agent"


def page(script: Path = EXAMPLE / "delivery_agent.py") -> str:
    """Return the notebook of a script as JSON, without outputs."""
    source = script.read_text(encoding="utf-8")
    cells = [_cell("title", "markdown", ast.get_docstring(ast.parse(source)) or "")]
    for number, (said, code) in enumerate(re.findall(r"^# %% (.*)\n((?:(?!# %%).*\n)*)", source, re.MULTILINE), 1):
        cells += [_cell(f"text-{number}", "markdown", said), _cell(f"code-{number}", "code", code.strip())]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return f"{json.dumps(notebook, indent=1, ensure_ascii=False)}\n"


def _cell(id: str, kind: str, text: str) -> dict[str, Any]:
    ran: dict[str, Any] = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "id": id, "metadata": {}, **ran, "source": text.splitlines(keepends=True)}
