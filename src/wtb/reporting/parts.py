"""Parts that several sections of the HTML report have in common: sections, tables, names of combinations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wtb.domain.display import counted
from wtb.reporting.markup import Markup, element, joined


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page, with its name in the table of contents."""

    id: str
    name: str
    title: str
    parts: Sequence[Any]

    def markup(self) -> Markup:
        """Return the part as markup."""
        return element("section", element("h2", self.title), *self.parts, id=self.id)


def scrolling_table(title: str, heads: Sequence[Markup], rows: Sequence[Markup], id: str | None = None) -> Markup:
    """Return a table that scrolls if it is too wide, also by keyboard."""
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *rows), id=id)
    return element("div", table, class_="wide", tabindex=0, role="region", aria_label=title)


def folded(title: str, *parts: Any) -> Markup:
    """Return parts that a click on the title opens."""
    return element("details", element("summary", title), *parts)


def combination_name(combination: str) -> Markup:
    """Return a combination that breaks only between its parts, with variants that stand out from nodes."""
    parts = combination.split(", ")
    marked = [
        element("span", *_part(part), "," if at < len(parts) - 1 else "", class_="part")
        for at, part in enumerate(parts)
    ]
    return joined(*(piece for part in marked for piece in (part, " ")))


def _part(part: str) -> tuple[Any, ...]:
    node, equals, variant = part.partition("=")
    return (element("span", node + equals, class_="node"), variant) if equals else (part,)


def not_shown_note(number: int, noun: str) -> list[Markup]:
    """Say how many more there are than the page shows; nothing if it shows all."""
    return [element("p", f"{counted(number, noun)} more not shown.", class_="note")] if number > 0 else []
