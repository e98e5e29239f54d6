"""Batch drivers: a batch says which process runs it, and when that process last reported."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.add_column("wtb_batches", sa.Column("driver", sa.Text))
    op.add_column("wtb_batches", sa.Column("driver_seen_at_us", sa.BigInteger))


def downgrade() -> None:
    op.drop_column("wtb_batches", "driver_seen_at_us")
    op.drop_column("wtb_batches", "driver")
