"""What a server does in the background: which process does it, webhooks, and their deliveries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    op.create_table(
        "wtb_background_jobs",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("registered_at_us", sa.BigInteger, nullable=False),
        sa.Column("owner", sa.Text),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("expires_at_us", sa.BigInteger),
        sa.Column("requested_by", sa.Text),
        sa.Column("last_started_at_us", sa.BigInteger),
        sa.Column("last_ended_at_us", sa.BigInteger),
        sa.Column("last_error", sa.Text),
        sa.Column("figures", sa.Text, nullable=False),
        sa.Column("notes", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "wtb_webhooks",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("secret", sa.Text, nullable=False),
        sa.Column("types", sa.Text, nullable=False),
        sa.Column("cursor", sa.Text),
        sa.Column("created_by", sa.Text),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "wtb_deliveries",
        sa.Column("webhook_id", sa.Text, primary_key=True),
        sa.Column("position", sa.BigInteger, primary_key=True),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("attempts", sa.BigInteger, nullable=False),
        sa.Column("next_at_us", sa.BigInteger),
        sa.Column("error", sa.Text),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("ended_at_us", sa.BigInteger),
        sqlite_with_rowid=False,
    )
    op.create_index("wtb_deliveries_due", "wtb_deliveries", ["webhook_id", "status", "next_at_us"])


def downgrade() -> None:
    op.drop_table("wtb_deliveries")
    op.drop_table("wtb_webhooks")
    op.drop_table("wtb_background_jobs")
