"""How the command line writes times, sizes and states."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import pytest
from rich.live import Live
from rich.table import Table
from rich.text import Text

from wtb.cli.output import Terminal, duration, echo, print_table, print_with_texts, shown, size, text_of, to_json
from wtb.domain.display import counted
from wtb.domain.printable import printable


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "<1 ms"),
        (0.0006, "1 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (3599.4, "59 min 59 s"),
        (3600, "1 h 00 min"),
        (90_000, "25 h 00 min"),
    ],
)
def test_a_time_has_as_many_digits_as_anybody_reads(seconds: float, text: str) -> None:
    assert duration(seconds) == duration(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (123_456, "123 kB"), (2_500_000, "2.5 MB"), (10**13, "10.0 TB")],
)
def test_a_size_has_a_unit(size_bytes: int, text: str) -> None:
    assert size(size_bytes) == text


def test_numbers_agree_with_their_nouns() -> None:
    assert [counted(number, "file") for number in (0, 1, 1200)] == ["0 files", "1 file", "1,200 files"]


def test_what_json_does_not_know_is_written_as_text() -> None:
    value = {("a", 1): {1: b"x"}, "t": (datetime(2026, 1, 1, tzinfo=UTC), timedelta(seconds=2))}
    assert json.loads(to_json(value)) == {"('a', 1)": {"1": "b'x'"}, "t": ["2026-01-01T00:00:00+00:00", 2.0]}


ROW = {"combination": "greet=polite, recognise=first", "cases": 1_234_567, "checkpoint": "01a1e10f-553f-7000"}


@pytest.mark.parametrize(
    ("columns", "combination"),
    [
        (20, ["greet=polite,   ", "recognise=first "]),  # the terminal breaks the lines
        (45, ["greet=polite,   ", "recognise=first "]),
        (60, ["greet=polite, recognise=first "]),
        (200, ["greet=polite, recognise=first "]),
    ],
)
def test_on_a_narrow_screen_text_is_broken_between_words_and_numbers_stay_whole(
    columns: int, combination: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")  # a dumb one has 80 columns, whatever is said
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_table([ROW])
    heading, first, *rest = click.unstyle(capsys.readouterr().out).splitlines()
    assert heading.split() == list(ROW)
    assert first.split()[-2:] == ["1234567", "01a1e10f-553f-7000"]
    assert [line[: len(combination[0])] for line in (first, *rest)] == combination


@pytest.mark.parametrize(("columns", "tables"), [("50", 2), ("80", 1)])
def test_on_a_narrow_screen_texts_follow_in_a_table_of_their_own(
    columns: str, tables: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    rows: list[dict[str, Any]] = [
        {"combination": "greet=polite", "p": "0.250", "needed": "14–29", "why": "only 3 cases differ: too few to tell"},
        {"combination": "greet=brief", "p": "0.001", "needed": "", "why": None},
    ]
    print_with_texts(rows, "why", ("combination", "metric"))
    lines = click.unstyle(capsys.readouterr().out).splitlines()
    assert [line.split()[0] for line in lines if "why" in line or "needed" in line] == ["combination"] * tables
    assert max(map(len, lines)) <= int(columns)
    assert sum("greet=brief" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("text", "legible"),
    [
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b31m \x7f", "\\x9b31m \\x7f"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("a\rb\bc\nd", "a\\rb\\x08c\\nd"),
        ("\ud800", "\\ud800"),
        ("größe\u00a0中文\t👩\u200d💻", "größe\u00a0中文\t👩\u200d💻"),
    ],
)
def test_a_text_does_nothing_to_a_terminal(text: str, legible: str) -> None:
    assert printable(text) == legible


def test_what_is_shown_keeps_its_lines_and_loses_its_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown("one\ntwo \x1b[0m password=hunter2") == "one\ntwo \\x1b[0m password=***"
    echo("one\n\x1b[1mtwo\udcff")
    assert capsys.readouterr().out == "one\n\\x1b[1mtwo\\udcff\n"


def test_a_live_display_obeys_only_itself() -> None:
    file = io.StringIO()
    terminal = Terminal(file=file, force_terminal=True, color_system="standard", width=200)
    table = Table("\x1b]0;heading\x07")
    table.add_row(Text("\x1b[2Jcell \u202e", "red"))
    with Live(table, console=terminal, transient=True):
        terminal.print(Text("\x9b2J said\x7f"))
    written = file.getvalue()
    assert "\x1b[31m" in written  # rich's own
    for foreign in ("\x1b]0;", "\x07", "\x1b[2Jcell", "\u202e", "\x9b", "\x7f"):
        assert foreign not in written
    assert "\\x1b[2J" in written


def test_json_holds_no_numbers_that_its_readers_refuse() -> None:
    huge = 10**5_000
    value = {"nan": float("nan"), "inf": [float("inf"), -float("inf")], "huge": {huge: (huge, True, 10**400)}}
    found = json.loads(to_json(value), parse_constant=pytest.fail)
    assert found == {"nan": None, "inf": [None, None], "huge": {hex(huge): [hex(huge), True, 10**400]}}
    assert text_of([huge, 1.5]) == f"['{hex(huge)}', 1.5]"
