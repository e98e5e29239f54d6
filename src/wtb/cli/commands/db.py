"""`wtb db`: create, upgrade and downgrade the database schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from wtb.cli.output import as_json, confirm, example, show, url
from wtb.domain.errors import InvalidInput
from wtb.settings import load_settings
from wtb.storage_bootstrap import open_database

if TYPE_CHECKING:
    from wtb.infrastructure.sql.database import Database


@click.group()
def db() -> None:
    """Create, upgrade and inspect the database."""


@contextmanager
def _database(address: str | None) -> Iterator[Database]:
    settings = load_settings(url=address)
    if settings.url == "memory://":
        raise InvalidInput("memory:// has no schema; give --url, or unset WTB_URL and the testing preset")
    database = open_database(settings)
    try:
        yield database
    finally:
        database.close()


@db.command()
@url
@click.option("--to", "revision", metavar="REVISION", default="head", show_default=True, help="Revision to stop at.")
@as_json
@example("wtb db upgrade --url postgresql://wtb@localhost/wtb")
def upgrade(url: str | None, revision: str, as_json: bool) -> None:
    """Create or upgrade the database schema for this version of wtb.

    It is safe to run this again, and from several processes at once.
    """
    from wtb.infrastructure.sql import schema

    with _database(url) as database:
        before = schema.current(database)
        schema.upgrade(database, revision)
        after = schema.current(database)
        text = (
            f"The database is already at {after}."
            if before == after
            else f"Upgraded from {before or 'empty'} to {after}."
        )
        show({"before": before, "after": after}, text, as_json=as_json)


@db.command()
@click.argument("revision")
@url
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
@example("wtb db downgrade 0001 --url sqlite:///bench.db")
def downgrade(revision: str, url: str | None, yes: bool, as_json: bool) -> None:
    """Downgrade the database schema to REVISION.

    `base` removes all tables. The data in newer tables is lost.
    """
    from wtb.infrastructure.sql import schema

    with _database(url) as database:
        before = schema.current(database)
        if not yes:
            question = f"Downgrade {database.where} from {before or 'empty'} to {revision}? Data may be lost."
            confirm(question)
        schema.downgrade(database, revision)
        after = schema.current(database)
        text = f"Downgraded from {before or 'empty'} to {after or 'empty'}."
        show({"before": before, "after": after}, text, as_json=as_json)


@db.command()
@url
@as_json
@example("wtb db current")
def current(url: str | None, as_json: bool) -> None:
    """Show the schema revision of the database.

    You also see the revision that this wtb needs, and what to do if they differ.
    """
    from wtb.infrastructure.sql import schema

    with _database(url) as database:
        found = schema.current(database)
        known = schema.revisions()
        advice = "run `wtb db upgrade`" if found is None or found in known else "a newer wtb made it; install that one"
        advice = "up to date" if found == schema.HEAD else advice
        text = f"The database is at {found or 'empty'}, this wtb needs {schema.HEAD}: {advice}."
        show({"current": found, "head": schema.HEAD, "known": known}, text, as_json=as_json)
