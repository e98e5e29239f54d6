"""Display: shows a result to a person, as text (`print`) and as small HTML (in a notebook).

The HTML is plain: every text is escaped, there are no scripts, and it takes its colours from the page around it, so
that it fits light and dark ones.
"""

from __future__ import annotations

import html
import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wtb.domain.printable import printable, printable_lines
from wtb.domain.secrets import Masker
from wtb.domain.values import legible

_LONGEST = 200
_MOST_ROWS = 100
_SHORT_CELL = 26
"""A cell of up to this many characters stays on one line: a finding, an interval."""
_LINE = "1px solid rgba(128,128,128,.35)"
_CELL = f"text-align:left;vertical-align:top;padding:2px 10px 2px 0;border-bottom:{_LINE};white-space:pre-wrap"
_BOX = "max-width:100%;overflow-x:auto;color:inherit;font-size:13px"
_MASKER = Masker()


@dataclass(frozen=True, slots=True)
class DisplayTable:
    """Rows of texts under headings."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> DisplayTable:
        """Return a table of any values, each as a short text; empty columns are left out."""
        written = [tuple(map(short, row)) for row in rows]
        kept = [at for at in range(len(headings)) if not written or any(row[at] for row in written)]
        return cls(tuple(headings[at] for at in kept), tuple(tuple(row[at] for at in kept) for row in written))


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """A title, then tables, then lines of text."""

    title: str
    tables: tuple[DisplayTable, ...] = ()
    lines: tuple[str, ...] = ()

    def text(self) -> str:
        """Return it as text, with columns of equal width."""
        return "\n".join([self.title, *(line for table in self.tables for line in _text_rows(table)), *self.lines])

    def html(self) -> str:
        """Return it as HTML."""
        title = f"<div><b>{_escaped(self.title)}</b></div>"
        lines = f"<pre>{_escaped(chr(10).join(self.lines))}</pre>" if self.lines else ""
        return f'<div style="{_BOX}">{title}{"".join(map(_html_table, self.tables))}{lines}</div>'


class Displayed:
    """A base class that derives `__str__` and `_repr_html_` from `_display`."""

    __slots__ = ()

    @abstractmethod
    def _display(self) -> Display:
        """Return the view for people."""

    def __str__(self) -> str:
        return self._display().text()

    def _repr_html_(self) -> str:
        return self._display().html()


def short(value: Any) -> str:
    """Return a value as a short text without secrets: a string without quotes, an empty text for None."""
    if value is None:
        return ""
    try:
        text = value if type(value) is str else repr(legible(value))
    except Exception as error:  # noqa: BLE001 a repr of the user's own may raise anything
        text = f"{type(value).__name__} ({type(error).__name__} in its repr)"
    text = _MASKER.text(text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"


def masked(key: str, value: Any) -> Any:
    """Return a value, or the mask if it is the text of a secret key."""
    return _MASKER.data({key: value})[key] if type(value) is str else value


def state_table(state: Mapping[str, Any]) -> DisplayTable:
    """Return the keys and values of a state; the value of a secret key is masked."""
    return DisplayTable.of(("key", "value"), [(key, masked(key, value)) for key, value in state.items()])


def figure(value: float | None) -> str:
    """Return a figure for people, with few digits; an empty text for None."""
    if value is None:
        return ""
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.3f}" if abs(value) >= 0.01 or value == 0 else small_number(value)


def figure_or_dash(value: float | None) -> str:
    """Return a figure for people, with few digits; a dash for None."""
    return "–" if value is None else figure(value)


def signed_figure(value: float | None) -> str:
    """Return a difference for people, with its sign."""
    return f"+{figure(value)}" if value is not None and value > 0 else figure(value)


def small_number(value: float) -> str:
    """Return a number below 0.01 with three significant digits, without an exponent unless it is tiny."""
    if abs(value) < 1e-7:
        return f"{value:.3g}"
    return f"{value:.{2 - math.floor(math.log10(abs(value)))}f}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}{'es' if noun.endswith('ch') else 's'}"


def _text_rows(table: DisplayTable) -> Iterable[str]:
    rows = [table.headings, *(tuple(map(printable, row)) for row in table.rows[:_MOST_ROWS])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield ""
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    yield from _rest(table)


def _html_table(table: DisplayTable) -> str:
    head = "".join(f'<th style="{_CELL}">{_escaped(text)}</th>' for text in table.headings)
    rows = "".join("<tr>" + "".join(map(_html_cell, row)) + "</tr>" for row in table.rows[:_MOST_ROWS])
    rest = "".join(f"<div>{_escaped(line)}</div>" for line in _rest(table))
    return f'<table style="border-collapse:collapse;margin:6px 0"><tr>{head}</tr>{rows}</table>{rest}'


def _html_cell(text: str) -> str:
    style = f"{_CELL};white-space:nowrap" if len(text) <= _SHORT_CELL and "\n" not in text else _CELL
    return f'<td style="{style}">{_escaped(text)}</td>'


def _rest(table: DisplayTable) -> list[str]:
    left = len(table.rows) - _MOST_ROWS
    return [f"… and {left:,} more"] if left > 0 else []


def _escaped(text: str) -> str:
    return html.escape(printable_lines(text))
