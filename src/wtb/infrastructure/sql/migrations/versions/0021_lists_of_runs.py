"""Lists of runs: a run says which batch made it, so that a page of runs with or without batches is found at once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"

# Metadata is JSON with sorted keys and without spaces, and ids of batches need no escapes. Text functions, since those
# of JSON refuse the whole table if one row is damaged.
_START = len('{"batch":"') + 1


def upgrade() -> None:
    op.add_column("wtb_executions", sa.Column("batch_id", sa.Text))
    position = "strpos" if op.get_bind().dialect.name == "postgresql" else "instr"
    rest = f"substr(metadata, {_START})"
    is_whole = f"""{position}({rest}, '"') > 1"""
    made_by_a_batch = """metadata LIKE '{"batch":"%' AND metadata NOT LIKE '%,"fork":true,%'"""
    op.execute(
        sa.text(
            f"""UPDATE wtb_executions SET batch_id = substr(metadata, {_START}, {position}({rest}, '"') - 1) """
            f"WHERE {made_by_a_batch} AND {is_whole}".replace(":", "\\:")
        )
    )
    _create_partial("wtb_executions_batch", ["batch_id", "created_at_us"], "batch_id IS NOT NULL")
    _create_partial("wtb_executions_alone", ["created_at_us"], "batch_id IS NULL")
    op.create_index("wtb_executions_creator", "wtb_executions", ["created_by", "created_at_us"])


def _create_partial(name: str, columns: list[str], where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, "wtb_executions", columns, sqlite_where=condition, postgresql_where=condition)


def downgrade() -> None:
    op.drop_index("wtb_executions_creator", "wtb_executions")
    op.drop_index("wtb_executions_alone", "wtb_executions")
    op.drop_index("wtb_executions_batch", "wtb_executions")
    op.drop_column("wtb_executions", "batch_id")
