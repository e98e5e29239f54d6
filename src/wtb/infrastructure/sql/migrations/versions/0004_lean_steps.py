"""Fewer pages a step: boundaries become a view, and on SQLite tables lose what only cost; runs can be degraded."""

from __future__ import annotations

import json
from collections.abc import Callable

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_FIELDS = (
    "execution_id, id AS node_run_id, branch_id, node, visit, status, first_id, last_id, checkpoint_count, "
    "tool_count, started_at_us, ended_at_us"
)
_VIEW = f"CREATE VIEW wtb_node_boundaries AS SELECT {_FIELDS}, failure FROM wtb_node_runs"


def upgrade() -> None:
    op.add_column("wtb_executions", sa.Column("degraded", sa.Text))
    op.drop_index("wtb_branches_head", "wtb_branches")
    op.drop_table("wtb_node_boundaries")
    if op.get_bind().dialect.name == "sqlite":
        _rebuild("wtb_checkpoints", lambda text: f"{text} WITHOUT ROWID")
        _rebuild("wtb_events", lambda text: text.replace(" AUTOINCREMENT", ""))
    op.execute(_VIEW)


def downgrade() -> None:
    op.execute("DROP VIEW wtb_node_boundaries")
    if op.get_bind().dialect.name == "sqlite":
        _rebuild("wtb_events", lambda text: text.replace("PRIMARY KEY", "PRIMARY KEY AUTOINCREMENT", 1))
        _rebuild("wtb_checkpoints", lambda text: text.removesuffix(" WITHOUT ROWID"))
    _restore_boundaries()
    op.create_index("wtb_branches_head", "wtb_branches", ["head_id"])
    op.drop_column("wtb_executions", "degraded")


def _rebuild(table: str, change: Callable[[str], str]) -> None:
    """Make a table of SQLite anew with another definition, its rows and indexes as they were."""
    connection = op.get_bind()
    texts = connection.execute(
        sa.text("SELECT type, name, sql FROM sqlite_master WHERE tbl_name = :table AND sql IS NOT NULL"),
        {"table": table},
    ).all()
    for kind, name, _ in texts:
        if kind == "index":
            op.drop_index(name, table)
    op.rename_table(table, f"{table}_before")
    op.execute(next(change(text) for kind, _, text in texts if kind == "table"))
    op.execute(f"INSERT INTO {table} SELECT * FROM {table}_before")
    op.drop_table(f"{table}_before")
    for kind, _, text in texts:
        if kind == "index":
            op.execute(text)


def _restore_boundaries() -> None:
    connection = op.get_bind()
    op.create_table(
        "wtb_node_boundaries",
        sa.Column("execution_id", sa.Text, primary_key=True),
        sa.Column("node_run_id", sa.Text, primary_key=True),
        sa.Column("branch_id", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("visit", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("first_id", sa.Text),
        sa.Column("last_id", sa.Text),
        sa.Column("checkpoint_count", sa.BigInteger, nullable=False),
        sa.Column("tool_count", sa.BigInteger, nullable=False),
        sa.Column("started_at_us", sa.BigInteger, nullable=False),
        sa.Column("ended_at_us", sa.BigInteger),
        sa.Column("error", sa.Text),
        sqlite_with_rowid=False,
    )
    op.execute(f"INSERT INTO wtb_node_boundaries SELECT {_FIELDS}, NULL FROM wtb_node_runs")
    failed = connection.execute(
        sa.text("SELECT execution_id, id, failure FROM wtb_node_runs WHERE failure IS NOT NULL")
    )
    for execution_id, node_run_id, failure in failed.all():
        told = json.loads(failure)
        connection.execute(
            sa.text("UPDATE wtb_node_boundaries SET error = :error WHERE execution_id = :run AND node_run_id = :id"),
            {"error": json.dumps(f"{told['type']}: {told['message']}"), "run": execution_id, "id": node_run_id},
        )
