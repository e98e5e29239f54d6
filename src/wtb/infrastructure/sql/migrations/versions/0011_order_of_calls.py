"""Calls and rollbacks know their order by steps and numbers, so that a wrong clock does not change it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_CALL_COLUMNS = ("started_step", "started_number", "ended_step")

# The checksum before a result (20 bytes) covers these columns; a result without one is read as it is.
_WITHOUT_SEAL = "UPDATE wtb_tool_calls SET result = substr(result, 21) WHERE started_step IS NOT NULL"


def upgrade() -> None:
    for name in _CALL_COLUMNS:
        op.add_column("wtb_tool_calls", sa.Column(name, sa.BigInteger))
    op.add_column("wtb_rollbacks", sa.Column("number", sa.BigInteger))


def downgrade() -> None:
    op.execute(_WITHOUT_SEAL)
    op.drop_column("wtb_rollbacks", "number")
    for name in reversed(_CALL_COLUMNS):
        op.drop_column("wtb_tool_calls", name)
