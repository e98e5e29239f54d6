"""Batch tests: batches, their jobs, baselines, and the results of node runs that they share."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "wtb_node_cache",
        sa.Column("key", sa.LargeBinary, primary_key=True),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("attempt", sa.Text, nullable=False),
        sa.Column("expires_at_us", sa.BigInteger, nullable=False),
        sa.Column("value", sa.LargeBinary),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "wtb_batches",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("workflow_name", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("updated_at_us", sa.BigInteger, nullable=False),
    )
    op.create_index("wtb_batches_name", "wtb_batches", ["name", "created_at_us"])
    op.create_table(
        "wtb_batch_jobs",
        sa.Column("batch_id", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("combination", sa.Text, nullable=False),
        sa.Column("case_id", sa.Text, nullable=False),
        sa.Column("repeat", sa.Integer, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("execution_id", sa.Text),
        sa.Column("result", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "wtb_baselines",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("batch_id", sa.Text, nullable=False),
        sa.Column("combination", sa.Text, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    for table in ("wtb_baselines", "wtb_batch_jobs", "wtb_batches", "wtb_node_cache"):
        op.drop_table(table)
