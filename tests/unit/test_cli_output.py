"""How the command line writes times, sizes and states."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import click
import pytest

from wtb.cli.output import counted, duration, print_table, size, to_json


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
