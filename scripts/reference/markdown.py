"""Markdown that the reference pages are written with: paragraphs, lists, tables, links."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable


def wrapped(text: str) -> str:
    """Return a paragraph, or a list of `- ` items, in short lines, so that changes are easy to see."""
    if text.startswith("- "):
        return "\n".join(_filled(f"- {item}", indent="  ") for item in text[2:].split("\n- "))
    return _filled(text)


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(
        " ".join(text.split()), 130, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of two columns without headings."""
    return "\n".join(["| | |", "|---|---|", *(f"| {left} | {right} |" for left, right in rows)])


def code(text: str) -> str:
    """Return code for a table cell; a plain `|` would end the cell."""
    return f"<code>{text.replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as MkDocs and GitHub make it."""
    return "".join(char for char in heading.lower().replace(" ", "-") if char.isalnum() or char in "-_")
