"""`wtb report`: what a batch found, as a file to look at or to pass on."""

from __future__ import annotations

import re
from pathlib import Path

import click

from wtb.bench import Bench
from wtb.cli.output import as_json, example, show, url


@click.command()
@click.argument("batch", metavar="BATCH")
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), help="Where to write it; report-BATCH.html.")
@click.option("--format", "format", type=click.Choice(["html", "md"]), help="Otherwise what FILE ends with says it.")
@url
@as_json
@example("wtb report support_qa", "wtb report support_qa --out comment.md")
def report(*, batch: str, out: Path | None, format: str | None, url: str | None, as_json: bool) -> None:
    """Write what a batch found as one file: the answer, the matrix with verdicts, plots, cases and failures.

    BATCH is the name or the id of a batch. The HTML needs nothing else to be seen, no network and no program; the
    Markdown (.md) is fit for a comment on a pull request.
    """
    from wtb.reporting import write_report  # statistics take half a second to load

    with Bench(url) as bench:
        result = bench.get_batch(batch)
        path = out or Path(f"report-{_file_name(result.batch.name)}.{format or 'html'}")
        write_report(result, path, format)
    text = f"Wrote {path}."
    if (format or path.suffix[1:].lower()) == "html":
        text += f" Open it in a browser: {path.absolute().as_uri()}"
    show({"batch": result.id, "report": str(path)}, text, as_json=as_json)


def _file_name(name: str) -> str:
    """Return a name of which a file can be called, in this folder."""
    return re.sub(r"[^\w.-]+", "-", name)[:100]
