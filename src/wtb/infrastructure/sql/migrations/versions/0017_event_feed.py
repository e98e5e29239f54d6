"""The feed of events: on Postgres an event has a number of its transaction, so that late commits are not missed.

On SQLite writers take turns, so positions are in the order of commits: the number is always 0, and its index is empty.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.add_column("wtb_events", sa.Column("xid", sa.BigInteger, nullable=False, server_default="0"))
    if op.get_bind().dialect.name == "postgresql":
        # A second step: with this default in the first, every old event would get the number of this transaction.
        op.execute(
            "ALTER TABLE wtb_events ALTER COLUMN xid SET DEFAULT GREATEST(pg_current_xact_id()::text::bigint, "
            "pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)"
        )
    op.create_index("wtb_events_feed", "wtb_events", ["xid", "position"], sqlite_where=sa.text("xid > 0"))


def downgrade() -> None:
    op.drop_index("wtb_events_feed", "wtb_events")
    op.drop_column("wtb_events", "xid")
