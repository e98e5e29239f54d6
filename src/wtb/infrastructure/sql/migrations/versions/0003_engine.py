"""What the engine keeps: options, requests and pauses of runs, results that wait, and calls of tools."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("wtb_executions", sa.Column("pause", sa.Text))
    op.add_column("wtb_executions", sa.Column("options", sa.Text, nullable=False, server_default="{}"))
    op.add_column("wtb_executions", sa.Column("request", sa.Text))
    op.add_column("wtb_node_runs", sa.Column("pending", sa.LargeBinary))
    op.create_table(
        "wtb_tool_calls",
        sa.Column("execution_id", sa.Text, primary_key=True),
        sa.Column("node_run_id", sa.Text, primary_key=True),
        sa.Column("identity", sa.Text, primary_key=True),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("tool", sa.Text, nullable=False),
        sa.Column("effects", sa.Text, nullable=False),
        sa.Column("arguments", sa.LargeBinary, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("result", sa.LargeBinary, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("started_at_us", sa.BigInteger, nullable=False),
        sa.Column("ended_at_us", sa.BigInteger),
    )


def downgrade() -> None:
    op.drop_table("wtb_tool_calls")
    op.drop_column("wtb_node_runs", "pending")
    for column in ("request", "options", "pause"):
        op.drop_column("wtb_executions", column)
