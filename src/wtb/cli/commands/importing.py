"""`wtb import`: bring what other tools have recorded."""

from __future__ import annotations

import click

from wtb.bench import Bench
from wtb.cli.output import as_json, counted, example, show, url


@click.group("import")
def import_group() -> None:
    """Bring in what other tools have recorded."""


@import_group.command("langgraph")
@click.argument("database", metavar="DATABASE")
@url
@as_json
@example("wtb import langgraph checkpoints.sqlite", "wtb import langgraph postgresql://me@localhost/agents")
def import_langgraph(*, database: str, url: str | None, as_json: bool) -> None:
    """Copy all threads of LangGraph's SqliteSaver or PostgresSaver, with their checkpoints, branches and writes.

    DATABASE is the file of a SqliteSaver, or the address of the database of a PostgresSaver; it is only read. Done
    again it brings what came since, and what an interrupted one left out; threads that went on here stay as they are.
    """
    from wtb.langgraph import Saver, import_threads

    with Bench(url) as bench:
        done = import_threads(database, Saver(bench))
    text = f"Imported {counted(done.threads, 'thread')} with {counted(done.checkpoints, 'checkpoint')}."
    if done.present:
        text += f" Left as they are: {', '.join(done.present[:5])}{', …' if done.present[5:] else ''}."
    facts = {"threads": done.threads, "checkpoints": done.checkpoints, "present": list(done.present)}
    show(facts, text, as_json=as_json)
