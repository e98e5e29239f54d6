"""Texts that come from users, made safe to show: in a terminal, in a notebook, in a report."""

from __future__ import annotations

import unicodedata

_HARMLESS = "\t\u200c\u200d"
"""Python calls these unprintable, but texts need them: tabs, and the joiners of letters and emoji."""


def printable(text: str) -> str:
    """Return a text that cannot affect a terminal: control characters and invalid text become escapes."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in _HARMLESS or unicodedata.category(char) == "Zs" else ascii(char)[1:-1]
        for char in text
    )


def printable_lines(text: str) -> str:
    """Return a text as `printable` does, but keep its line breaks."""
    return "\n".join(map(printable, text.split("\n")))
