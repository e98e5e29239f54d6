"""Shared by all commands: the options --json and --url, and functions that print results.

Every output to the terminal goes through this module: `echo`, `confirm`, `print_table`, `print_json` or a `Terminal`.
Names, values, errors and questions come from users, so this module masks secrets and escapes control characters.
"""

from __future__ import annotations

import inspect
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, TypeVar

import click
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from wtb.cli.json_stdout import json_stdout
from wtb.domain.display import small_number
from wtb.domain.printable import printable_lines
from wtb.domain.secrets import Masker
from wtb.domain.values import Legible

Command = TypeVar("Command", bound=Callable[..., Any])

_STDOUT = "wtb.stdout"

_MASKER = Masker()

_LARGE_INT_BITS = 14_000
"""Python refuses to write integers of more than 4,300 decimal digits."""


def _keep_apart(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
    """Send the output of nodes to stderr: a program that reads stdout must find only JSON there."""
    if value:
        context.meta[_STDOUT] = context.with_resource(json_stdout())
    return value


as_json = click.option(
    "--json",
    "as_json",
    is_flag=True,
    callback=_keep_apart,
    help="Print JSON instead of text. Output of nodes goes to stderr.",
)
url = click.option(
    "--url",
    metavar="ADDRESS",
    help="Database to use: sqlite:///path or postgresql://user@host/database. Default: WTB_URL, else wtb.toml, else "
    ".wtb in this folder.",
)

_WIDE = ("combination", "data", "difference", "error", "name", "output", "path", "state", "why")
"""Columns whose text may wrap."""

_LONGEST_WORD = 20
"""Longer words are broken."""

_NARROWEST_TEXT = 30
"""A column of sentences in fewer characters would be one word a line."""

_GAP = 2
"""Spaces between two columns."""

_LONGEST_TEXT = 2_000
"""Longest text of a state, in characters, that people see."""

_MOST_ITEMS = 100
"""The number of items of a list or mapping in a state that people see: the first and the last of a list."""

_NUMBERS = ("size", "count", "visits", "calls", "failures", "retries", "total", "mean")


def show(result: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Print the result as JSON, or the text for people."""
    if as_json:
        print_json(result)
    else:
        echo(text)


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text for people; control characters in it cannot affect the terminal."""
    click.echo(shown(text), err=err, nl=nl)


def echo_secret(secret: str) -> None:
    """Print a secret that its owner asked for, unmasked and alone on standard output."""
    click.echo(secret)


def echo_facts(facts: Mapping[str, str]) -> None:
    """Print one fact per line, with its name in bold."""
    width = max(map(len, facts))
    for name, value in facts.items():
        click.echo(f"{click.style(shown(name.ljust(width)), bold=True)}  {shown(value)}")


def echo_state(state: Mapping[str, Any]) -> None:
    """Print a state for people as JSON. With --json, values of secret keys are not masked, and nothing is cut."""
    click.echo(printable_lines(to_json(_bounded(_MASKER.data(_plain(state))), indent=2)))


def _bounded(value: Any) -> Any:
    """Return plain data whose long texts, lists and mappings are cut, with a note: a state can be megabytes."""
    match value:
        case None | bool() | int() | float():
            return value
        case dict():
            kept = {key: _bounded(item) for key, item in islice(value.items(), _MOST_ITEMS)}
            return {**kept, "…": _left_out(value)} if len(value) > _MOST_ITEMS else kept
        case list() if len(value) > _MOST_ITEMS:
            half = _MOST_ITEMS // 2
            return [*map(_bounded, value[:half]), f"… {_left_out(value)}", *map(_bounded, value[-half:])]
        case list():
            return list(map(_bounded, value))
    return cut(str(value), _LONGEST_TEXT)


def _left_out(value: Sized) -> str:
    return f"{len(value) - _MOST_ITEMS:,} more; --json has all"


def confirm(question: str) -> None:
    """Ask on stderr. Abort the command unless the answer is yes."""
    click.confirm(shown(question), abort=True, err=True)


class Terminal(Console):
    """A console that escapes control characters, except those that rich itself writes."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable_lines(segment.text), segment.style)

    @classmethod
    def whole_lines(cls, *, soft_wrap: bool = False) -> Terminal:
        """Return a terminal for stdout; in a pipe, lines do not wrap because they need not fit a screen."""
        return cls(highlight=False, soft_wrap=soft_wrap, width=None if sys.stdout.isatty() else 1_000)


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output."""
    context = click.get_current_context(silent=True)
    click.echo(to_json(value), file=None if context is None else context.meta.get(_STDOUT))


def print_json_rows(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print rows as one JSON array, one by one, so that few are in memory at a time."""
    context = click.get_current_context(silent=True)
    file = None if context is None else context.meta.get(_STDOUT)
    before = "["
    for row in rows:
        click.echo(f"{before}{to_json(row)}", file=file, nl=False)
        before = ", "
    click.echo("]" if before == ", " else "[]", file=file)


def show_rows(rows: Sequence[Mapping[str, Any]], *, as_json: bool, empty: str) -> None:
    """Print rows as JSON or as a table; if there are none, print `empty` for people."""
    if as_json:
        print_json(rows)
    elif rows:
        print_table(rows)
    else:
        echo(empty)


def print_table(rows: Sequence[Mapping[str, Any]], *, has_header: bool = True) -> None:
    """Print rows as a table; the keys of the first row are the headings."""
    table = Table(box=None, header_style="bold", pad_edge=False, show_header=has_header)
    cells = _cells(rows)
    console = Terminal.whole_lines()
    widths = _widths(_columns(rows[0], cells), console.width)
    for heading, width in widths.items():
        table.add_column(
            shown(heading), overflow="fold", width=width, justify="right" if heading in _NUMBERS else "left"
        )
    for row in cells:
        table.add_row(*map(Text, row))  # as Text: output of nodes must not be read as markup
    console.width = max(console.width, _total(widths))
    console.print(table)


def print_with_texts(rows: Sequence[Mapping[str, Any]], text: str, names: Sequence[str]) -> None:
    """Print rows as a table; if too little room is left for the column `text`, print it in a second table.

    The columns `names` say in the second table which row a text belongs to.
    """
    others = [{name: value for name, value in row.items() if name != text} for row in rows]
    width = Terminal.whole_lines().width
    left = width - _total(_widths(_columns(others[0], _cells(others)), width)) - _GAP
    if left >= min(_NARROWEST_TEXT, _longest([shown(str(row[text] or "")) for row in rows], str.splitlines)):
        print_table(rows)
        return
    print_table(others)
    texts = [{name: row[name] for name in (*names, text) if name in row} for row in rows if row[text]]
    if texts:
        echo()
        print_table(texts)


def _cells(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    return [[_cell(heading, value) for heading, value in row.items()] for row in rows]


def _columns(headings: Iterable[str], cells: Sequence[Sequence[str]]) -> dict[str, tuple[str, ...]]:
    return {
        heading: (shown(heading), *column) for heading, column in zip(headings, zip(*cells, strict=True), strict=True)
    }


def _widths(columns: Mapping[str, Sequence[str]], room: int) -> dict[str, int]:
    """Return the width of each column; if they do not fit, the terminal breaks the lines.

    Only text columns wrap, between words. A number is never cut: half a number is a wrong number.
    """
    widest = {heading: _longest(cells, str.splitlines) for heading, cells in columns.items()}
    widths = {
        heading: min(_longest(cells, str.split), _LONGEST_WORD) if heading in _WIDE else widest[heading]
        for heading, cells in columns.items()
    }
    spare = room - _total(widths)
    for heading, width in widths.items():
        more = min(widest[heading] - width, max(spare, 0))
        widths[heading] += more
        spare -= more
    return widths


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + _GAP * (len(widths) - 1)


def _longest(cells: Sequence[str], parts: Callable[[str], list[str]]) -> int:
    return max(cell_len(part) for cell in cells for part in parts(cell) or [""])


def _cell(heading: str, value: Any) -> str:
    """Return a value as people read it: times are local, and a checkpoint id is cut to its distinctive start."""
    match value:
        case datetime():
            return moment(value)
        case timedelta():
            return duration(value)
        case int() if heading == "size":
            return size(value)
    return shown(value[:18] if heading == "checkpoint" else text_of(value, str))


def to_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON: times in ISO 8601, durations in seconds, unknown types as text.

    An infinite number or NaN becomes null. An integer that is too long for decimal digits becomes a hexadecimal text.
    """
    text = json.dumps(_plain(value), indent=indent, default=str, ensure_ascii=indent is None, allow_nan=False)
    return text.replace("\x7f", "\\u007f")  # the one control character that json does not escape


def text_of(value: Any, write: Callable[[Any], str] = repr) -> str:
    """Return a value as Python writes it, even if it holds an integer that is too long for decimal digits."""
    try:
        return write(value)
    except ValueError:
        return write(_plain(value))


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return {key if isinstance(key, str) else text_of(key, str): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Legible():
            return _plain(value.legible())
    return _model(value) if hasattr(value, "model_dump") else _number(value)


def _number(value: Any) -> Any:
    """Return a number that every JSON reader accepts; return other values unchanged."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return hex(value) if isinstance(value, int) and value.bit_length() > _LARGE_INT_BITS else value


def _model(value: Any) -> dict[str, Any]:
    """Return a message or another model as data, without its empty fields."""
    return {key: _plain(item) for key, item in value.model_dump().items() if item not in (None, "", [], {})}


def moment(time: datetime) -> str:
    """Return a local time; the year appears only if it is not this year."""
    local = time.astimezone()
    return local.strftime("%m-%d %H:%M:%S" if local.year == datetime.now().astimezone().year else "%Y-%m-%d %H:%M")


def duration(time: timedelta | float) -> str:
    """Return a time span for people, with few digits; a plain number is in seconds."""
    seconds = time.total_seconds() if isinstance(time, timedelta) else time
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.0005 else "<1 ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def dollars(usd: float) -> str:
    """Return an amount of money; a small one keeps three digits that count."""
    return f"${usd:.4f}" if usd >= 0.01 or usd == 0 else f"${small_number(usd)}"


def size(size_bytes: int) -> str:
    """Return a number of bytes with a unit."""
    number = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 999.5:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 99.5 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def shown(text: str) -> str:
    """Return a text for people: secrets are masked, and control characters except newlines become escapes."""
    return printable_lines(_MASKER.text(text))


def cut(text: str, longest: int) -> str:
    """Return a text, cut to `longest` characters with a note if it is longer."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters; --json has all)"


def example(*lines: str) -> Callable[[Command], Command]:
    """Add examples to the help of a command."""

    def add(command: Command) -> Command:
        text = inspect.cleandoc(command.__doc__ or "")
        command.__doc__ = "\n".join((text, "", "\b", "Example:", *(f"  {line}" for line in lines)))
        return command

    return add
