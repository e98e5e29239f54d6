"""The journal of rollbacks, where branches left from, and which node runs have not ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "wtb_rollbacks",
        sa.Column("execution_id", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("branch_id", sa.Text, nullable=False),
        sa.Column("direction", sa.Text, nullable=False),
        sa.Column("head_id", sa.Text, nullable=False),
        sa.Column("target_id", sa.Text, nullable=False),
        sa.Column("safety_id", sa.Text, nullable=False),
        sa.Column("calls", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("created_by", sa.Text),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("ended_at_us", sa.BigInteger),
    )
    op.create_index("wtb_branches_forked_from", "wtb_branches", ["forked_from_id"])
    unended = sa.text("last_id IS NULL")
    op.create_index(
        "wtb_node_runs_unended", "wtb_node_runs", ["execution_id"], sqlite_where=unended, postgresql_where=unended
    )


def downgrade() -> None:
    op.drop_index("wtb_node_runs_unended", "wtb_node_runs")
    op.drop_index("wtb_branches_forked_from", "wtb_branches")
    op.drop_table("wtb_rollbacks")
