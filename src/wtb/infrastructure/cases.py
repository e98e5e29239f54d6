"""Cases from files: JSONL with one case per line, or CSV; each knows its line, for messages."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from wtb.domain.cases import Case, cases_of
from wtb.domain.errors import InvalidInput
from wtb.infrastructure.json_text import read_json


def read_cases(source: Any) -> tuple[Case, ...]:
    """Read cases from a JSONL file, a CSV file or a list.

    The columns of CSV are id, input.KEY, expected or expected.KEY, tags and cluster.
    """
    if not isinstance(source, str | Path):
        if isinstance(source, Mapping) or not isinstance(source, Iterable):
            raise InvalidInput(f"cases must be a list, or a JSONL or CSV file, not {source!r}")
        return cases_of((f"case {number}", row) for number, row in enumerate(source, 1))
    path = Path(source)
    if not path.exists():
        raise InvalidInput(f"there is no file {path.absolute()} with cases")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the cases {path} cannot be read: {error}") from error
    return cases_of(_csv_rows(path.name, text) if path.suffix == ".csv" else _json_rows(path.name, text))


def _json_rows(name: str, text: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{name} line {number}", read_json(line, f"{name} line {number}")


def _csv_rows(name: str, text: str) -> Iterator[tuple[str, Any]]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    columns = reader.fieldnames or ()
    unknown = [column for column in columns if not _is_column(column)]
    if unknown:
        raise InvalidInput(
            f"{name} line 1 has an unknown column {unknown[0]!r}; "
            "the columns are id, input.KEY, expected or expected.KEY, tags and cluster"
        )
    for row in reader:
        place = f"{name} line {reader.line_num}"
        if None in row or None in row.values():
            raise InvalidInput(f"{place} has not as many fields as line 1: {len(columns)}")
        yield place, _from_csv(row)


def _is_column(column: str) -> bool:
    kind, dot, key = column.partition(".")
    return column in ("id", "expected", "tags", "cluster") or (kind in ("input", "expected") and bool(dot and key))


def _from_csv(row: Mapping[str, str]) -> dict[str, Any]:
    """Return a case; an empty expected field counts as missing."""
    parts: dict[str, dict[str, str]] = {"input": {}, "expected": {}}
    for column, value in row.items():
        kind, dot, key = column.partition(".")
        if dot and (value or kind == "input"):
            parts[kind][key] = value
    expected = parts["expected"] or row.get("expected") or None
    return {
        "id": row.get("id"),
        "input": parts["input"],
        "expected": expected,
        "tags": (row.get("tags") or "").split(),
        "cluster": row.get("cluster") or None,
    }
