"""What the commands share: --json, --url, and how results are printed.

Everything that reaches the terminal goes through here: `echo`, `confirm`, `print_table`, `print_json` or a `Terminal`.
Names, values, errors and questions are not ours; they are shown without control characters, and masked.
"""

from __future__ import annotations

import inspect
import json
import math
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from wtb.domain.secrets import Masker
from wtb.domain.values import Legible

Command = TypeVar("Command", bound=Callable[..., Any])

_STDOUT = "wtb.stdout"

_MASKER = Masker()

_HARMLESS = "\t\u200c\u200d"
"""Not printable to Python, but parts of texts: tabs, and what joins letters and emoji."""

_LARGE_INT_BITS = 14_000
"""Python refuses to write integers of more than 4,300 digits in decimals."""


def _keep_apart(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
    """Send what nodes print to stderr: a program that reads JSON is to find nothing else."""
    if value:
        context.meta[_STDOUT] = sys.stdout
        context.with_resource(redirect_stdout(sys.stderr))
    return value


as_json = click.option(
    "--json",
    "as_json",
    is_flag=True,
    callback=_keep_apart,
    help="Print JSON for programs instead of text for people; what nodes print goes to stderr.",
)
url = click.option(
    "--url",
    metavar="ADDRESS",
    help="sqlite:///path or postgresql://user@host/database; otherwise WTB_URL, wtb.toml or .wtb in this folder.",
)

_WIDE = ("combination", "data", "difference", "error", "name", "path", "state")
"""Columns whose text may be broken into lines."""

_LONGEST_WORD = 20
"""Longer ones are broken too."""

_GAP = 2
"""Between two columns."""

_NUMBERS = ("size", "count", "visits", "calls", "failures", "retries", "total", "mean")


def show(result: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Print the result for a program or for a person."""
    if as_json:
        print_json(result)
    else:
        echo(text)


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text for people; whatever it quotes does nothing to the terminal."""
    click.echo(shown(text), err=err, nl=nl)


def echo_facts(facts: Mapping[str, str]) -> None:
    """Print facts, one a line, with their names in bold."""
    width = max(map(len, facts))
    for name, value in facts.items():
        click.echo(f"{click.style(shown(name.ljust(width)), bold=True)}  {shown(value)}")


def echo_state(state: Mapping[str, Any]) -> None:
    """Print a state for people, as JSON; the values of secret keys are masked here, and in --json they are not."""
    click.echo(_lines(to_json(_MASKER.data(_plain(state)), indent=2)))


def confirm(question: str) -> None:
    """Ask on stderr, and abort the command unless the answer is yes."""
    click.confirm(shown(question), abort=True, err=True)


class Terminal(Console):
    """A console that shows control characters instead of obeying them, unless rich itself has made them."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(_lines(segment.text), segment.style)

    @classmethod
    def whole_lines(cls, *, soft_wrap: bool = False) -> Terminal:
        """Return one for stdout; through a pipe the lines stay whole: there is no screen that they must fit."""
        return cls(highlight=False, soft_wrap=soft_wrap, width=None if sys.stdout.isatty() else 1_000)


def print_json(value: Any) -> None:
    """Print a value for a program that reads standard output."""
    context = click.get_current_context(silent=True)
    click.echo(to_json(value), file=None if context is None else context.meta.get(_STDOUT))


def print_json_rows(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print rows as one JSON array, each as it comes, so that few are held at a time."""
    context = click.get_current_context(silent=True)
    file = None if context is None else context.meta.get(_STDOUT)
    before = "["
    for row in rows:
        click.echo(f"{before}{to_json(row)}", file=file, nl=False)
        before = ", "
    click.echo("]" if before == ", " else "[]", file=file)


def show_rows(rows: Sequence[Mapping[str, Any]], *, as_json: bool, empty: str) -> None:
    """Print rows as JSON, or as a table; `empty` is said when there are none."""
    if as_json:
        print_json(rows)
    elif rows:
        print_table(rows)
    else:
        echo(empty)


def print_table(rows: Sequence[Mapping[str, Any]], *, has_header: bool = True) -> None:
    """Print rows with the headings that the first one has."""
    table = Table(box=None, header_style="bold", pad_edge=False, show_header=has_header)
    cells = [[_cell(heading, value) for heading, value in row.items()] for row in rows]
    columns = {
        heading: (shown(heading), *column) for heading, column in zip(rows[0], zip(*cells, strict=True), strict=True)
    }
    console = Terminal.whole_lines()
    widths = _widths(columns, console.width)
    for heading, width in widths.items():
        table.add_column(
            shown(heading), overflow="fold", width=width, justify="right" if heading in _NUMBERS else "left"
        )
    for row in cells:
        table.add_row(*map(Text, row))  # as Text: what a node said is never markup
    console.width = max(console.width, _total(widths))
    console.print(table)


def _widths(columns: Mapping[str, Sequence[str]], room: int) -> dict[str, int]:
    """Return how wide the columns are; where the room is too small the terminal breaks the lines.

    Only text is broken before that, into its words: a number that is cut is another number.
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
    """Return a value as a person reads it: local time, the part of a checkpoint's id that tells it from others."""
    match value:
        case datetime():
            return moment(value)
        case timedelta():
            return duration(value)
        case int() if heading == "size":
            return size(value)
    return shown(value[:18] if heading == "checkpoint" else text_of(value, str))


def to_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON; what JSON does not know is written as text, times in ISO 8601, durations in seconds.

    A number that is not finite is null. An integer that is too long for decimals is a text, in hexadecimals.
    """
    text = json.dumps(_plain(value), indent=indent, default=str, ensure_ascii=indent is None, allow_nan=False)
    return text.replace("\x7f", "\\u007f")  # the one control character that json leaves as it is


def text_of(value: Any, write: Callable[[Any], str] = repr) -> str:
    """Return a value as Python writes it, even when it holds an integer that is too long for decimals."""
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
    """Return a number as every reader of JSON takes it, and all else as it is."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return hex(value) if isinstance(value, int) and value.bit_length() > _LARGE_INT_BITS else value


def _model(value: Any) -> dict[str, Any]:
    """Return a message or another model as data; what is empty in it says nothing."""
    return {key: _plain(item) for key, item in value.model_dump().items() if item not in (None, "", [], {})}


def moment(time: datetime) -> str:
    """Return a time as the clock on the wall shows it, with the year when it is another one."""
    local = time.astimezone()
    return local.strftime("%m-%d %H:%M:%S" if local.year == datetime.now().astimezone().year else "%Y-%m-%d %H:%M")


def duration(time: timedelta | float) -> str:
    """Return a time span, in seconds when it is a number, with as many digits as anybody reads."""
    seconds = time.total_seconds() if isinstance(time, timedelta) else time
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.0005 else "<1 ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def size(size_bytes: int) -> str:
    """Return a number of bytes with a unit."""
    number = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 999.5:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 99.5 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def printable(text: str) -> str:
    """Return a text that does nothing to a terminal: control characters, and what is no valid text, as escapes."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in _HARMLESS or unicodedata.category(char) == "Zs" else ascii(char)[1:-1]
        for char in text
    )


def shown(text: str) -> str:
    """Return a text as people may see it: masked, and without control characters but the ends of its lines."""
    return _lines(_MASKER.text(text))


def _lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def cut(text: str, longest: int) -> str:
    """Return a text that fits, with a note when it does not."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters; --json has all)"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}{'es' if noun.endswith('ch') else 's'}"


def example(*lines: str) -> Callable[[Command], Command]:
    """Add examples to the help of a command."""

    def add(command: Command) -> Command:
        text = inspect.cleandoc(command.__doc__ or "")
        command.__doc__ = "\n".join((text, "", "\b", "Example:", *(f"  {line}" for line in lines)))
        return command

    return add
