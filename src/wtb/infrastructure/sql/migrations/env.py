"""Runs migrations on the connection and inside the transaction that `wtb.infrastructure.sql.schema` opened."""

from __future__ import annotations

from alembic import context

from wtb.infrastructure.sql.schema import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
context.run_migrations()
