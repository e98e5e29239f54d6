"""File commits: trees of workspaces."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "wtb_file_commits",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("base_id", sa.Text),
        sa.Column("format", sa.Integer, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("pending", sa.BigInteger, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("wtb_file_commits")
