"""Schema: the version of a database, and migrations to another version."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from wtb.domain.errors import InvalidInput, SchemaOutdated, SchemaTooNew
from wtb.infrastructure.sql.database import Database

HEAD = "0021"
"""The newest revision; kept here so that opening an up-to-date database need not load Alembic."""

NEWEST = "head"
"""Alembic's name for the newest revision."""

VERSION_TABLE = "wtb_schema"
_LOCK = "wtb schema"


def current(database: Database) -> str | None:
    """Return the revision of a database; None when it holds no wtb tables."""
    with closing(database.begin(readonly=True)) as transaction:
        if not database.has_table(transaction, VERSION_TABLE):
            return None
        found = transaction.row(f"SELECT version_num FROM {VERSION_TABLE}")
        return None if found is None else str(found[0])


def check(database: Database) -> None:
    """Raise unless the database is at HEAD."""
    found = current(database)
    if found == HEAD:
        return
    where = database.where
    if found is None:
        raise SchemaOutdated(f"{where} has no wtb tables yet; run `wtb db upgrade`")
    if found in revisions():
        raise SchemaOutdated(f"{where} is at schema {found}, this wtb needs {HEAD}; run `wtb db upgrade`")
    raise SchemaTooNew(
        f"{where} is at schema {found}, which this wtb does not know (it knows up to {HEAD}); "
        "install the newer wtb that wrote it, or point to another database"
    )


def upgrade(database: Database, revision: str = NEWEST) -> None:
    """Upgrade a database to a revision; wait for other processes that do the same.

    A new SQLite file gets the newest tables at once: all migrations in a row make the same ones in ten times the time.
    """
    found = current(database)
    if found is None and revision == NEWEST and database.dialect == "sqlite" and _create(database):
        return
    if found is not None and found not in revisions():
        check(database)
    _run(database, "upgrade", revision)


def downgrade(database: Database, revision: str) -> None:
    """Downgrade a database to a revision (`base`: no tables); data in newer tables is lost."""
    _run(database, "downgrade", revision)


def revisions() -> list[str]:
    """Return all revisions that this version knows, oldest first."""
    from alembic.script import ScriptDirectory

    return [script.revision for script in ScriptDirectory(str(_FOLDER)).walk_revisions()][::-1]


_FOLDER = Path(__file__).parent / "migrations"
NEWEST_TABLES = Path(__file__).parent / "newest_tables.sql"
"""The statements that make the tables of a SQLite file at HEAD, to the letter as the migrations leave them, because
later migrations may change the text of a table. `make reference` writes it."""


def _create(database: Database) -> bool:
    """Create all tables of a SQLite file as they are at HEAD; return False if one of them is there already."""
    with closing(database.begin()) as transaction:  # one writer at a time: another process may have made them by now
        if transaction.row("SELECT 1 FROM sqlite_master WHERE name LIKE 'wtb%'") is not None:
            return False
        for statement in NEWEST_TABLES.read_text().split(";\n"):
            transaction.run(statement)
        transaction.run(f"INSERT INTO {VERSION_TABLE} VALUES ('{HEAD}')")
        transaction.commit()
    return True


def _run(database: Database, direction: str, revision: str) -> None:
    import sqlalchemy as sa
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    if not revision.strip():
        raise InvalidInput(f"cannot {direction} to an empty revision; the revisions are {', '.join(revisions())}")
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    try:
        with database.engine.connect() as connection:
            # Serialises processes that open a new database at the same moment.
            if database.dialect == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            else:
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": _LOCK})
            config.attributes["connection"] = connection
            {"upgrade": command.upgrade, "downgrade": command.downgrade}[direction](config, revision)
            connection.commit()
    except sa.exc.DBAPIError as error:
        raise database.translated(error) from error
    except CommandError as error:
        raise InvalidInput(
            f"cannot {direction} to {revision!r}: {error}; known are {', '.join(revisions())}"
        ) from error
