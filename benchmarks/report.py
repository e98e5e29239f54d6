"""Figures: what was measured, against what, and whether it reached its bar."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One line of the table; `value` must be at most `bar`, where there is one."""

    name: str
    value: float
    unit: str
    bar: float | None = None
    detail: str = ""
    raw: dict[str, float] = field(default_factory=dict)

    @property
    def reached(self) -> bool | None:
        """Whether the bar is met; None of a figure that is for information."""
        return None if self.bar is None else self.value <= self.bar


def timed(action: Callable[..., object], *args: object) -> float:
    """Return the seconds that the action took."""
    began = perf_counter()
    action(*args)
    return perf_counter() - began


Part = tuple[str, Callable[[], Sequence[Figure]]]
"""Something to measure, and what it is called meanwhile."""


def measure(title: str, path: Path, parts: Sequence[Part]) -> None:
    """Measure one part after the other, saying which, and show all figures."""
    console = Console()
    figures: list[Figure] = []
    for label, part in parts:
        with console.status(label):
            figures += part()
    show(title, figures, path)


def show(title: str, figures: Sequence[Figure], path: Path) -> None:
    """Print the figures as a table and write them as JSON."""
    table = Table(title=title)
    for heading in ("figure", "measured", "bar", ""):
        table.add_column(heading, justify="left" if heading in ("figure", "") else "right")
    for figure in figures:
        mark = {True: "reached", False: "MISSED", None: ""}[figure.reached]
        measured = f"{figure.value:,.3g} {figure.unit}"
        bar = "" if figure.bar is None else f"≤ {figure.bar:g} {figure.unit}"
        name = f"{figure.name}\n  [dim]{figure.detail}[/dim]" if figure.detail else figure.name
        table.add_row(name, measured, bar, mark)
    Console(width=max(100, Console().width)).print(table)
    path.parent.mkdir(parents=True, exist_ok=True)
    machine = {
        "python": sys.version.split()[0],
        "sqlite": sqlite3.sqlite_version,
        "system": platform.platform(),
        "cores": os.cpu_count(),
    }
    rows = [{**asdict(figure), "reached": figure.reached} for figure in figures]
    path.write_text(json.dumps({"title": title, "machine": machine, "figures": rows}, indent=2) + "\n")
    Console().print(f"Written to {path}")
