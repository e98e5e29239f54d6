"""Figures belong to node runs and calls, which keep what they used; a batch keeps its seconds while it runs."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_US = 1_000_000


def upgrade() -> None:
    op.add_column("wtb_node_runs", sa.Column("figures", sa.Text))
    op.add_column("wtb_tool_calls", sa.Column("figures", sa.Text))
    op.add_column("wtb_batches", sa.Column("spent_us", sa.BigInteger, nullable=False, server_default="0"))
    for batch_id, plan, _ in _batches():
        spent_s = plan.pop("spent_s", 0.0)
        _save(batch_id, plan, round(spent_s * _US))


def downgrade() -> None:
    for batch_id, plan, spent_us in _batches():
        _save(batch_id, {**plan, "spent_s": spent_us / _US}, spent_us)
    op.drop_column("wtb_batches", "spent_us")
    op.drop_column("wtb_tool_calls", "figures")
    op.drop_column("wtb_node_runs", "figures")


def _batches() -> list[tuple[str, dict[str, Any], int]]:
    rows = op.get_bind().execute(sa.text("SELECT id, plan, spent_us FROM wtb_batches")).all()
    return [(id, json.loads(plan), spent_us) for id, plan, spent_us in rows]


def _save(batch_id: str, plan: dict[str, Any], spent_us: int) -> None:
    text = json.dumps(plan, sort_keys=True, separators=(",", ":"))
    statement = sa.text("UPDATE wtb_batches SET plan = :plan, spent_us = :spent WHERE id = :id")
    op.get_bind().execute(statement, {"plan": text, "spent": spent_us, "id": batch_id})
