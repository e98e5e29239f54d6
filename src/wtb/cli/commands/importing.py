"""`wtb import`: copy data from other tools."""

from __future__ import annotations

import click

from wtb.bench import Bench
from wtb.cli.output import as_json, example, show, url
from wtb.domain.display import counted


@click.group("import")
def import_group() -> None:
    """Import data from other tools."""


@import_group.command("langgraph")
@click.argument("database", metavar="DATABASE")
@url
@as_json
@example("wtb import langgraph checkpoints.sqlite", "wtb import langgraph postgresql://me@localhost/agents")
def import_langgraph(*, database: str, url: str | None, as_json: bool) -> None:
    """Import all threads of a LangGraph checkpointer.

    DATABASE is the file of a SqliteSaver, or the database address of a PostgresSaver. WTB only reads it, and copies the
    threads with their checkpoints, branches and writes.

    Run the command again to import what is new, and what an interrupted import left out. Threads that have gone on in
    WTB stay as they are.
    """
    from wtb.langgraph import Saver, import_threads

    with Bench(url) as bench:
        done = import_threads(database, Saver(bench))
    text = f"Imported {counted(done.threads, 'thread')} with {counted(done.checkpoints, 'checkpoint')}."
    if done.present:
        text += f" Not changed: {', '.join(done.present[:5])}{', …' if done.present[5:] else ''}."
    facts = {"threads": done.threads, "checkpoints": done.checkpoints, "present": list(done.present)}
    show(facts, text, as_json=as_json)
