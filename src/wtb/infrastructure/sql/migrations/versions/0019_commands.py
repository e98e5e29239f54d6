"""Commands that a server has accepted, and the requests that must not be carried out twice."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.create_table(
        "wtb_commands",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text),
        sa.Column("arguments", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("started_at_us", sa.BigInteger),
        sa.Column("ended_at_us", sa.BigInteger),
        sa.Column("owner", sa.Text),
        sa.Column("expires_at_us", sa.BigInteger),
        sa.Column("attempts", sa.BigInteger, nullable=False),
        sa.Column("losses", sa.BigInteger, nullable=False),
        sa.Column("result", sa.Text),
        sa.Column("error", sa.Text),
        sqlite_with_rowid=False,
    )
    op.create_index("wtb_commands_status", "wtb_commands", ["status", "created_at_us"])
    op.create_index("wtb_commands_created", "wtb_commands", ["created_at_us", "id"])
    op.create_table(
        "wtb_requests",
        sa.Column("caller", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("command_id", sa.Text, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("wtb_requests")
    op.drop_table("wtb_commands")
