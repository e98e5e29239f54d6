"""The feed of events: on Postgres an event says which transaction recorded it, so that late commits are not missed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    # Two steps: with the default in the first, every old event would get the number of this transaction.
    op.add_column("wtb_events", sa.Column("xid", sa.BigInteger, nullable=False, server_default="0"))
    op.execute("ALTER TABLE wtb_events ALTER COLUMN xid SET DEFAULT pg_current_xact_id()::text::bigint")
    op.create_index("wtb_events_feed", "wtb_events", ["xid", "position"])


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.drop_index("wtb_events_feed", "wtb_events")
        op.drop_column("wtb_events", "xid")
