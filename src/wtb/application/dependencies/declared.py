"""Reads the dependencies that a node declares: files by pattern, variables as `env:NAME`, and values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from wtb.application.dependencies.own_code import place
from wtb.application.dependencies.source_digests import SourceDigests
from wtb.domain.observation import ObservedSource, SourceKind

_VARIABLE = "env:"


def declared(depends_on: Iterable[Any], digests: SourceDigests) -> dict[str, Any]:
    """Return the current digests of the declared dependencies, by name."""
    return dict(pair for number, each in enumerate(depends_on, 1) for pair in _resolved(number, each, digests))


def _resolved(number: int, entry: Any, digests: SourceDigests) -> Iterator[tuple[str, Any]]:
    if not isinstance(entry, str):
        yield f"depends_on, value {number}", entry
    elif entry.startswith(_VARIABLE):
        source = ObservedSource(SourceKind.VARIABLE, entry.removeprefix(_VARIABLE))
        yield str(source), digests.now(source)
    else:
        files = [place(path) for path in sorted(_matching(entry)) if path.is_file()]
        yield f"the files that fit {entry}", files
        yield from ((name, digests.now(ObservedSource(SourceKind.FILE, name))) for name in files)


def _matching(pattern: str) -> Iterator[Path]:
    path = Path(pattern)
    if path.is_absolute():
        return Path(path.anchor).glob(str(path.relative_to(path.anchor)))
    return Path.cwd().glob(pattern)
