"""`wtb report`: the results of a batch as one file."""

from __future__ import annotations

import re
from pathlib import Path

import click

from wtb.bench import Bench
from wtb.cli.output import as_json, example, show, url


@click.command()
@click.argument("batch", metavar="BATCH")
@click.option(
    "--out", metavar="FILE", type=click.Path(path_type=Path), help="File to write. Default: report-BATCH.html."
)
@click.option(
    "--format",
    "format",
    type=click.Choice(["html", "md"]),
    help="Format of the report. Default: the ending of FILE, else html.",
)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Use only cases with this tag; repeatable.")
@url
@as_json
@example("wtb report support_qa", "wtb report support_qa --out comment.md")
def report(
    *, batch: str, out: Path | None, format: str | None, tags: tuple[str, ...], url: str | None, as_json: bool
) -> None:
    """Write the results of a batch to one HTML or Markdown file.

    BATCH is the name or id of a batch. The report has the answer, the scores with verdicts, plots, cases and failures.
    The HTML file opens in any browser, without a network. The Markdown file (.md) fits into a pull request comment.
    """
    from wtb.reporting import write_report  # statistics take half a second to load

    with Bench(url) as bench:
        result = bench.get_batch(batch)
        if tags:
            result = result.tagged(*tags)
        path = out or Path(f"report-{_file_name(result.batch.name)}.{format or 'html'}")
        write_report(result, path, format)
    text = f"Wrote {path}."
    if (format or path.suffix[1:].lower()) == "html":
        text += f" Open it in a browser: {path.absolute().as_uri()}"
    show({"batch": result.id, "report": str(path)}, text, as_json=as_json)


def _file_name(name: str) -> str:
    """Return a name that is safe as a file name in this folder."""
    return re.sub(r"[^\w.-]+", "-", name)[:100]
