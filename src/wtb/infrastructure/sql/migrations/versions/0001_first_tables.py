"""The first tables: workflows, executions, branches, checkpoints, node runs, events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "wtb_workflows",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("definition", sa.Text, nullable=False),
    )
    op.create_index("wtb_workflows_name", "wtb_workflows", ["name"])
    op.create_table(
        "wtb_executions",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workflow_id", sa.Text, nullable=False),
        sa.Column("workflow_name", sa.Text, nullable=False),
        sa.Column("workflow_source", sa.Text),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("branch_id", sa.Text, nullable=False),
        sa.Column("lease_owner", sa.Text),
        sa.Column("lease_token", sa.BigInteger, nullable=False),
        sa.Column("lease_expires_at_us", sa.BigInteger),
        sa.Column("failure", sa.Text),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("created_by", sa.Text),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("updated_at_us", sa.BigInteger, nullable=False),
    )
    op.create_index("wtb_executions_created", "wtb_executions", ["created_at_us"])
    op.create_index("wtb_executions_workflow", "wtb_executions", ["workflow_name", "created_at_us"])
    op.create_index("wtb_executions_status", "wtb_executions", ["status", "created_at_us"])
    op.create_table(
        "wtb_branches",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("execution_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("head_id", sa.Text),
        sa.Column("forked_from_id", sa.Text),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("execution_id", "name", name="wtb_branches_name"),
    )
    op.create_index("wtb_branches_head", "wtb_branches", ["head_id"])
    op.create_table(
        "wtb_checkpoints",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("execution_id", sa.Text, nullable=False),
        sa.Column("branch_id", sa.Text, nullable=False),
        sa.Column("parent_id", sa.Text),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("node", sa.Text),
        sa.Column("visit", sa.BigInteger),
        sa.Column("node_run_id", sa.Text),
        sa.Column("cause", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("next_nodes", sa.Text, nullable=False),
        sa.Column("joins", sa.Text, nullable=False),
        sa.Column("file_commit", sa.Text),
        sa.Column("agent", sa.Text),
        sa.Column("restore_point", sa.Integer, nullable=False),
        sa.Column("created_by", sa.Text),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("state_hash", sa.LargeBinary, nullable=False),
        sa.Column("returned_hash", sa.LargeBinary, nullable=False),
        sa.Column("parent_hash", sa.LargeBinary, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("format", sa.Integer, nullable=False),
        sa.Column("deleted", sa.Integer, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
    )
    op.create_index("wtb_checkpoints_step", "wtb_checkpoints", ["execution_id", "step"])
    op.create_index("wtb_checkpoints_parent", "wtb_checkpoints", ["parent_id"])
    op.create_index(
        "wtb_checkpoints_name",
        "wtb_checkpoints",
        ["execution_id", "name"],
        unique=True,
        sqlite_where=sa.text("name IS NOT NULL AND deleted = 0"),
        postgresql_where=sa.text("name IS NOT NULL AND deleted = 0"),
    )
    op.create_table(
        "wtb_keyframes",
        sa.Column("checkpoint_id", sa.Text, primary_key=True),
        sa.Column("payload", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "wtb_blobs",
        sa.Column("address", sa.LargeBinary, primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("touched_at_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "wtb_node_runs",
        sa.Column("execution_id", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("branch_id", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("visit", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("input_id", sa.Text),
        sa.Column("first_id", sa.Text),
        sa.Column("last_id", sa.Text),
        sa.Column("checkpoint_count", sa.BigInteger, nullable=False),
        sa.Column("tool_count", sa.BigInteger, nullable=False),
        sa.Column("failure", sa.Text),
        sa.Column("started_at_us", sa.BigInteger, nullable=False),
        sa.Column("ended_at_us", sa.BigInteger),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "wtb_node_boundaries",
        sa.Column("execution_id", sa.Text, primary_key=True),
        sa.Column("node_run_id", sa.Text, primary_key=True),
        sa.Column("branch_id", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("visit", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("first_id", sa.Text),
        sa.Column("last_id", sa.Text),
        sa.Column("checkpoint_count", sa.BigInteger, nullable=False),
        sa.Column("tool_count", sa.BigInteger, nullable=False),
        sa.Column("started_at_us", sa.BigInteger, nullable=False),
        sa.Column("ended_at_us", sa.BigInteger),
        sa.Column("error", sa.Text),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "wtb_events",
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("stream", sa.Text, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("severity", sa.Text, nullable=False),
        sa.Column("at_us", sa.BigInteger, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("stream", "sequence", name="wtb_events_sequence"),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    for table in (
        "wtb_events",
        "wtb_node_boundaries",
        "wtb_node_runs",
        "wtb_blobs",
        "wtb_keyframes",
        "wtb_checkpoints",
        "wtb_branches",
        "wtb_executions",
        "wtb_workflows",
    ):
        op.drop_table(table)
