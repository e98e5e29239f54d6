"""Pending writes: what tasks of LangGraph wrote after a checkpoint; large values are blobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "wtb_pending_writes",
        sa.Column("execution_id", sa.Text, primary_key=True),
        sa.Column("checkpoint_id", sa.Text, primary_key=True),
        sa.Column("task_id", sa.Text, primary_key=True),
        sa.Column("idx", sa.Integer, primary_key=True),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("address", sa.LargeBinary, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("wtb_pending_writes")
