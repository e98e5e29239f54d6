"""Rows that decide something carry a checksum; those that are there have none until they are written again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

_SEALS = (
    ("wtb_executions", "seal"),
    ("wtb_branches", "seal"),
    ("wtb_branches", "head_seal"),
    ("wtb_node_runs", "seal"),
    ("wtb_tool_calls", "seal"),
    ("wtb_rollbacks", "seal"),
    ("wtb_batches", "seal"),
    ("wtb_batch_jobs", "seal"),
    ("wtb_baselines", "seal"),
    ("wtb_observations", "seal"),
    ("wtb_pending_writes", "seal"),
)


def upgrade() -> None:
    for table, column in _SEALS:
        op.add_column(table, sa.Column(column, sa.LargeBinary))


def downgrade() -> None:
    for table, column in reversed(_SEALS):
        op.drop_column(table, column)
