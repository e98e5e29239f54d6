"""Limits of concurrent calls: their state, and the slots that processes hold."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "wtb_limits",
        sa.Column("scope", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("width", sa.BigInteger, nullable=False),
        sa.Column("successes", sa.BigInteger, nullable=False),
        sa.Column("failures", sa.BigInteger, nullable=False),
        sa.Column("breaker", sa.Text, nullable=False),
        sa.Column("until_us", sa.BigInteger),
        sa.Column("narrowed_at_us", sa.BigInteger),
        sa.Column("told_width", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "wtb_limit_slots",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("since_us", sa.BigInteger, nullable=False),
        sa.Column("expires_at_us", sa.BigInteger, nullable=False),
        sa.Column("waiting", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("wtb_limit_slots_limit", "wtb_limit_slots", ["scope", "name"])


def downgrade() -> None:
    op.drop_table("wtb_limit_slots")
    op.drop_table("wtb_limits")
