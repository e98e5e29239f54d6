"""The tables. Migrations create them; this is their required result.

On SQLite, checkpoints and node runs are stored in the order of their keys, without a rowid: this saves a page per step
for each. The boundaries of visits are a view over the node runs. Times are microseconds since 1970 in UTC (`…_us`);
`data`, `failure`, `metadata` and the like are JSON text. A `seal` is a checksum of its row (see seals.py); rows written
before seals existed have none until they are written again.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    DDL,
    BigInteger,
    Column,
    ColumnElement,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    event,
    text,
)
from sqlalchemy.ext.compiler import compiles

metadata = MetaData()


class _RecordingTransaction(ColumnElement[int]):
    """The number of the transaction that inserts a row, or of the newest that has ended; on SQLite, 0."""

    inherit_cache = True


@compiles(_RecordingTransaction, "sqlite")
def _none_is_needed(*_args: Any, **_options: Any) -> str:
    return "'0'"


@compiles(_RecordingTransaction, "postgresql")
def _current_transaction(*_args: Any, **_options: Any) -> str:
    return "GREATEST(pg_current_xact_id()::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)"


workflows = Table(
    "wtb_workflows",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("definition", Text, nullable=False),
    Index("wtb_workflows_name", "name"),
)

executions = Table(
    "wtb_executions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workflow_id", Text, nullable=False),
    Column("workflow_name", Text, nullable=False),
    Column("workflow_source", Text),
    Column("status", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("branch_id", Text, nullable=False),
    Column("lease_owner", Text),
    Column("lease_token", BigInteger, nullable=False),
    Column("lease_expires_at_us", BigInteger),
    Column("failure", Text),
    Column("metadata", Text, nullable=False),
    Column("created_by", Text),
    Column("created_at_us", BigInteger, nullable=False),
    Column("updated_at_us", BigInteger, nullable=False),
    Column("pause", Text),
    Column("options", Text, nullable=False, server_default="{}"),
    Column("request", Text),
    Column("degraded", Text),
    Column("seal", LargeBinary),
    Column("batch_id", Text),
    Index("wtb_executions_created", "created_at_us"),
    Index("wtb_executions_workflow", "workflow_name", "created_at_us"),
    Index("wtb_executions_status", "status", "created_at_us"),
    # Each run is in one of the next two: Postgres finds the newest runs without a batch only through their own index.
    Index(
        "wtb_executions_batch",
        "batch_id",
        "created_at_us",
        sqlite_where=text("batch_id IS NOT NULL"),
        postgresql_where=text("batch_id IS NOT NULL"),
    ),
    Index(
        "wtb_executions_alone",
        "created_at_us",
        sqlite_where=text("batch_id IS NULL"),
        postgresql_where=text("batch_id IS NULL"),
    ),
    Index("wtb_executions_creator", "created_by", "created_at_us"),
)

branches = Table(
    "wtb_branches",
    metadata,
    Column("id", Text, primary_key=True),
    Column("execution_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("head_id", Text),
    Column("forked_from_id", Text),
    Column("created_at_us", BigInteger, nullable=False),
    Column("seal", LargeBinary),
    Column("head_seal", LargeBinary),
    UniqueConstraint("execution_id", "name", name="wtb_branches_name"),
    Index("wtb_branches_forked_from", "forked_from_id"),
)

checkpoints = Table(
    "wtb_checkpoints",
    metadata,
    Column("id", Text, primary_key=True),
    Column("execution_id", Text, nullable=False),
    Column("branch_id", Text, nullable=False),
    Column("parent_id", Text),
    Column("step", BigInteger, nullable=False),
    Column("node", Text),
    Column("visit", BigInteger),
    Column("node_run_id", Text),
    Column("cause", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("name", Text),
    Column("description", Text, nullable=False),
    Column("next_nodes", Text, nullable=False),
    Column("joins", Text, nullable=False),
    Column("file_commit", Text),
    Column("agent", Text),
    Column("restore_point", Integer, nullable=False),
    Column("created_by", Text),
    Column("created_at_us", BigInteger, nullable=False),
    Column("state_hash", LargeBinary, nullable=False),
    Column("returned_hash", LargeBinary, nullable=False),
    Column("parent_hash", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("format", Integer, nullable=False),
    Column("deleted", Integer, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Index("wtb_checkpoints_step", "execution_id", "step"),
    Index("wtb_checkpoints_parent", "parent_id"),
    Index(
        "wtb_checkpoints_name",
        "execution_id",
        "name",
        unique=True,
        sqlite_where=text("name IS NOT NULL AND deleted = 0"),
        postgresql_where=text("name IS NOT NULL AND deleted = 0"),
    ),
)

keyframes = Table(
    "wtb_keyframes",
    metadata,
    Column("checkpoint_id", Text, primary_key=True),
    Column("payload", LargeBinary, nullable=False),
)

blobs = Table(
    "wtb_blobs",
    metadata,
    Column("address", LargeBinary, primary_key=True),
    Column("data", LargeBinary, nullable=False),
    Column("touched_at_us", BigInteger, nullable=False),
)

objects = Table(
    "wtb_objects",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("place", Text),
    Column("touched_at_us", BigInteger, nullable=False),
)
"""Contents of large files. Without a place, the content is in the next table; else it lies there in S3 or the like."""

object_contents = Table(
    "wtb_object_contents",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)
"""Apart from their rows, because SQLite writes a whole row again when one of its columns changes."""

node_runs = Table(
    "wtb_node_runs",
    metadata,
    Column("execution_id", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("branch_id", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("visit", BigInteger, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("status", Text, nullable=False),
    Column("input_id", Text),
    Column("first_id", Text),
    Column("last_id", Text),
    Column("checkpoint_count", BigInteger, nullable=False),
    Column("tool_count", BigInteger, nullable=False),
    Column("failure", Text),
    Column("started_at_us", BigInteger, nullable=False),
    Column("ended_at_us", BigInteger),
    Column("pending", LargeBinary),
    Column("figures", Text),
    Column("seal", LargeBinary),
    Index(
        "wtb_node_runs_unended",
        "execution_id",
        sqlite_where=text("last_id IS NULL"),
        postgresql_where=text("last_id IS NULL"),
    ),
    sqlite_with_rowid=False,
)

node_boundaries = DDL(  # type: ignore[no-untyped-call]
    "CREATE VIEW wtb_node_boundaries AS SELECT execution_id, id AS node_run_id, branch_id, node, visit, status, "
    "first_id, last_id, checkpoint_count, tool_count, started_at_us, ended_at_us, failure FROM wtb_node_runs"
)
"""The beginning and end of each node visit, for dashboards and other readers of SQL."""

event.listen(node_runs, "after_create", node_boundaries)

tool_calls = Table(
    "wtb_tool_calls",
    metadata,
    Column("execution_id", Text, primary_key=True),
    Column("node_run_id", Text, primary_key=True),
    Column("identity", Text, primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("effects", Text, nullable=False),
    Column("arguments", LargeBinary, nullable=False),
    Column("status", Text, nullable=False),
    Column("result", LargeBinary, nullable=False),
    Column("error", Text),
    Column("started_at_us", BigInteger, nullable=False),
    Column("ended_at_us", BigInteger),
    Column("figures", Text),
    Column("started_step", BigInteger),
    Column("started_number", BigInteger),
    Column("ended_step", BigInteger),
    Column("seal", LargeBinary),
)

events = Table(
    "wtb_events",
    metadata,
    Column("position", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("stream", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column("data", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("xid", BigInteger, nullable=False, server_default=_RecordingTransaction()),
    UniqueConstraint("stream", "sequence", name="wtb_events_sequence"),
    Index("wtb_events_feed", "xid", "position", sqlite_where=text("xid > 0")),
)
"""The feed follows `xid` on Postgres (see event_feed.py). On SQLite it is 0, and its index stays empty."""

rollbacks = Table(
    "wtb_rollbacks",
    metadata,
    Column("execution_id", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("branch_id", Text, nullable=False),
    Column("direction", Text, nullable=False),
    Column("head_id", Text, nullable=False),
    Column("target_id", Text, nullable=False),
    Column("safety_id", Text, nullable=False),
    Column("calls", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("error", Text),
    Column("created_by", Text),
    Column("created_at_us", BigInteger, nullable=False),
    Column("ended_at_us", BigInteger),
    Column("number", BigInteger),
    Column("seal", LargeBinary),
)

file_commits = Table(
    "wtb_file_commits",
    metadata,
    Column("id", Text, primary_key=True),
    Column("base_id", Text),
    Column("format", Integer, nullable=False),
    Column("created_at_us", BigInteger, nullable=False),
    Column("pending", BigInteger, nullable=False),
    Column("payload", LargeBinary, nullable=False),
)

node_cache = Table(
    "wtb_node_cache",
    metadata,
    Column("key", LargeBinary, primary_key=True),
    Column("status", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("attempt", Text, nullable=False),
    Column("expires_at_us", BigInteger, nullable=False),
    Column("value", LargeBinary),
    sqlite_with_rowid=False,
)

batches = Table(
    "wtb_batches",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("workflow_name", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("plan", Text, nullable=False),
    Column("created_at_us", BigInteger, nullable=False),
    Column("updated_at_us", BigInteger, nullable=False),
    Column("spent_us", BigInteger, nullable=False, server_default="0"),
    Column("seal", LargeBinary),
    Column("driver", Text),
    Column("driver_seen_at_us", BigInteger),
    Index("wtb_batches_name", "name", "created_at_us"),
)


def _job_columns() -> list[Column[Any]]:
    """Return the columns of a job; a baseline keeps its results in the same form."""
    return [
        Column("batch_id", Text, primary_key=True),
        Column("number", BigInteger, primary_key=True),
        Column("combination", Text, nullable=False),
        Column("case_id", Text, nullable=False),
        Column("repeat", Integer, nullable=False),
        Column("fingerprint", Text, nullable=False),
        Column("status", Text, nullable=False),
        Column("execution_id", Text),
        Column("result", Text, nullable=False),
        Column("seal", LargeBinary),
    ]


batch_jobs = Table("wtb_batch_jobs", metadata, *_job_columns(), sqlite_with_rowid=False)

baselines = Table(
    "wtb_baselines",
    metadata,
    Column("name", Text, primary_key=True),
    Column("batch_id", Text, nullable=False),
    Column("workflow_name", Text, nullable=False),
    Column("combination", Text, nullable=False),
    Column("record", Text, nullable=False),
    Column("results", BigInteger, nullable=False),
    Column("created_at_us", BigInteger, nullable=False),
    Column("seal", LargeBinary),
)

baseline_results = Table("wtb_baseline_results", metadata, *_job_columns(), sqlite_with_rowid=False)

evaluations = Table(
    "wtb_evaluations",
    metadata,
    Column("execution_id", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("checkpoint_id", Text, nullable=False),
    Column("metric", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("score", Text),
    Column("error", Text),
    Column("created_by", Text),
    Column("created_at_us", BigInteger, nullable=False),
    Column("seal", LargeBinary),
    sqlite_with_rowid=False,
)

observations = Table(
    "wtb_observations",
    metadata,
    Column("trace_id", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("reader", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("seal", LargeBinary),
    sqlite_with_rowid=False,
)

pending_writes = Table(
    "wtb_pending_writes",
    metadata,
    Column("execution_id", Text, primary_key=True),
    Column("checkpoint_id", Text, primary_key=True),
    Column("task_id", Text, primary_key=True),
    Column("idx", Integer, primary_key=True),
    Column("path", Text, nullable=False),
    Column("channel", Text, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("address", LargeBinary, nullable=False),
    Column("created_at_us", BigInteger, nullable=False),
    Column("seal", LargeBinary),
)

limits = Table(
    "wtb_limits",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("width", BigInteger, nullable=False),
    Column("successes", BigInteger, nullable=False),
    Column("failures", BigInteger, nullable=False),
    Column("breaker", Text, nullable=False),
    Column("until_us", BigInteger),
    Column("narrowed_at_us", BigInteger),
    Column("told_width", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

limit_slots = Table(
    "wtb_limit_slots",
    metadata,
    Column("id", Text, primary_key=True),
    Column("scope", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("since_us", BigInteger, nullable=False),
    Column("expires_at_us", BigInteger, nullable=False),
    Column("waiting", BigInteger, nullable=False),
    Index("wtb_limit_slots_limit", "scope", "name"),
    sqlite_with_rowid=False,
)

tokens = Table(
    "wtb_tokens",
    metadata,
    Column("name", Text, primary_key=True),
    Column("role", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("created_by", Text, nullable=False),
    Column("created_at_us", BigInteger, nullable=False),
    Column("expires_at_us", BigInteger),
    Column("revoked_at_us", BigInteger),
    sqlite_with_rowid=False,
)

sign_ins = Table(
    "wtb_sign_ins",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("created_at_us", BigInteger, nullable=False),
    Column("expires_at_us", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

commands = Table(
    "wtb_commands",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("subject", Text),
    Column("arguments", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at_us", BigInteger, nullable=False),
    Column("started_at_us", BigInteger),
    Column("ended_at_us", BigInteger),
    Column("owner", Text),
    Column("expires_at_us", BigInteger),
    Column("attempts", BigInteger, nullable=False),
    Column("losses", BigInteger, nullable=False),
    Column("result", Text),
    Column("error", Text),
    Index("wtb_commands_status", "status", "created_at_us"),
    Index("wtb_commands_created", "created_at_us", "id"),
    sqlite_with_rowid=False,
)

requests = Table(
    "wtb_requests",
    metadata,
    Column("caller", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("digest", LargeBinary, nullable=False),
    Column("command_id", Text, nullable=False),
    Column("created_at_us", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

background_jobs = Table(
    "wtb_background_jobs",
    metadata,
    Column("name", Text, primary_key=True),
    Column("registered_at_us", BigInteger, nullable=False),
    Column("owner", Text),
    Column("token", BigInteger, nullable=False),
    Column("expires_at_us", BigInteger),
    Column("requested_by", Text),
    Column("last_started_at_us", BigInteger),
    Column("last_ended_at_us", BigInteger),
    Column("last_error", Text),
    Column("figures", Text, nullable=False),
    Column("notes", Text, nullable=False),
    sqlite_with_rowid=False,
)

webhooks = Table(
    "wtb_webhooks",
    metadata,
    Column("id", Text, primary_key=True),
    Column("url", Text, nullable=False),
    Column("secret", Text, nullable=False),
    Column("types", Text, nullable=False),
    Column("cursor", Text),
    Column("created_by", Text),
    Column("created_at_us", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

deliveries = Table(
    "wtb_deliveries",
    metadata,
    Column("webhook_id", Text, primary_key=True),
    Column("position", BigInteger, primary_key=True),
    Column("type", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("next_at_us", BigInteger),
    Column("error", Text),
    Column("created_at_us", BigInteger, nullable=False),
    Column("ended_at_us", BigInteger),
    Index("wtb_deliveries_due", "webhook_id", "status", "next_at_us"),
    sqlite_with_rowid=False,
)
