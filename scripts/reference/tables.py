"""Writes the statements that make a new SQLite database: those that a database holds after all migrations."""

import tempfile
from pathlib import Path

from wtb.infrastructure.sql import schema
from wtb.infrastructure.sql.sqlite import SqliteDatabase


def statements() -> str:
    """Return the statements, read from a database that went through every migration."""
    with tempfile.TemporaryDirectory() as folder:
        database = SqliteDatabase(Path(folder) / "wtb.db", synchronous="NORMAL", busy_timeout_s=30)
        schema.upgrade(database, schema.HEAD)
        with database.engine.connect() as connection:
            # Tables first: an index or a view needs its table.
            text = "SELECT sql FROM sqlite_master WHERE name LIKE 'wtb%' ORDER BY type != 'table', type, name"
            found = [row[0] for row in connection.exec_driver_sql(text)]
        database.close()
    return ";\n".join(found)
