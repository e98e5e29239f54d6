"""The report of a batch: one HTML file that needs nothing else, or Markdown for a pull request."""

from __future__ import annotations

from pathlib import Path

from wtb.batch_results import BatchResult
from wtb.domain.errors import InvalidInput
from wtb.reporting.content import Report
from wtb.reporting.html import to_html
from wtb.reporting.markdown import to_markdown

FORMATS = {"html": to_html, "md": to_markdown}


def write_report(result: BatchResult, path: Path, format: str | None = None) -> None:
    """Write the report of a batch, in `format` or else in the format of the path's ending."""
    chosen = format or path.suffix.removeprefix(".").lower()
    if chosen not in FORMATS:
        raise InvalidInput(f"{str(path)!r}: a report is written as .html or .md; give a name that ends so, or a format")
    text = FORMATS[chosen](Report.of(result))
    try:
        # The error of a node may hold invalid text, and must be shown all the same.
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise InvalidInput(f"the report {str(path)!r} cannot be written: {error.strerror}") from error
