"""On SQLite a checkpoint lies whole in its page: a table without rowids moves what is above a kilobyte to another."""

from __future__ import annotations

from importlib import import_module

from alembic import op

revision = "0008"
down_revision = "0007"

_rebuild = import_module("wtb.infrastructure.sql.migrations.versions.0004_lean_steps")._rebuild


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        _rebuild("wtb_checkpoints", lambda text: text.removesuffix(" WITHOUT ROWID"))


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        _rebuild("wtb_checkpoints", lambda text: f"{text} WITHOUT ROWID")
