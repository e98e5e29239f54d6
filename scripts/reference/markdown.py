"""What both pages are written with."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable


def wrapped(text: str) -> str:
    """Return a paragraph in lines, so that a change of it is easy to see."""
    return textwrap.fill(" ".join(text.split()), 130, break_long_words=False, break_on_hyphens=False)


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of two columns without headings."""
    return "\n".join(["| | |", "|---|---|", *(f"| {left} | {right} |" for left, right in rows)])


def code(text: str) -> str:
    """Return code for a cell of a table, in which a bar would end the cell."""
    return f"<code>{text.replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def anchor(heading: str) -> str:
    """Return where a link to a heading leads, in MkDocs and on GitHub."""
    return "".join(char for char in heading.lower().replace(" ", "-") if char.isalnum() or char in "-_")
