"""Baselines leave the tables of batches for their own; scores of single runs are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import ormsgpack
import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

_PREFIX = "baseline/"
"""The results of baseline `main` were the jobs of a batch called `baseline/main`."""
_BROKEN = bytes(16)
"""In place of the seal of a damaged row, so that it still counts as damaged."""
_JOB = "batch_id, number, combination, case_id, repeat, fingerprint, status, execution_id, result, seal"


class _Baseline(NamedTuple):
    """A row of the new table."""

    name: str
    batch_id: str
    workflow_name: str
    combination: str
    record: str
    results: int
    created_at_us: int
    seal: bytes | None


def upgrade() -> None:
    found = [_read_old(row) for row in _rows(_OLD)]
    op.drop_table("wtb_baselines")
    _create_tables()
    for baseline in found:
        _insert("wtb_baselines", ", ".join(_Baseline._fields), baseline)
    # A baseline of an early version names a batch of another name, which stays.
    moved = "(SELECT batch_id FROM wtb_baselines)"
    _run(f"INSERT INTO wtb_baseline_results ({_JOB}) SELECT {_JOB} FROM wtb_batch_jobs WHERE batch_id IN {moved}")
    for baseline in found:
        batch = {"id": baseline.batch_id, "name": _PREFIX + baseline.name}
        jobs = "SELECT id FROM wtb_batches WHERE id = :id AND name = :name"
        _run(f"DELETE FROM wtb_batch_jobs WHERE batch_id IN ({jobs})", **batch)
        _run("DELETE FROM wtb_batches WHERE id = :id AND name = :name", **batch)


def downgrade() -> None:
    found = [_Baseline(*row) for row in _rows("SELECT * FROM wtb_baselines")]
    op.drop_table("wtb_evaluations")
    op.drop_table("wtb_baselines")
    _create_old_table()
    for baseline in found:
        _write_old(baseline)
    absent = "NOT IN (SELECT batch_id FROM wtb_batch_jobs)"
    _run(f"INSERT INTO wtb_batch_jobs ({_JOB}) SELECT {_JOB} FROM wtb_baseline_results WHERE batch_id {absent}")
    op.drop_table("wtb_baseline_results")


_OLD = """
SELECT l.name, l.batch_id, l.combination, l.created_at_us, l.seal,
    b.id, b.name, b.workflow_name, b.status, b.plan, b.created_at_us, b.updated_at_us, b.seal,
    (SELECT count(*) FROM wtb_batch_jobs j WHERE j.batch_id = l.batch_id)
FROM wtb_baselines l JOIN wtb_batches b ON b.id = l.batch_id ORDER BY l.name
"""
"""A baseline whose batch was deleted has nothing left to keep."""


def _read_old(row: Any) -> _Baseline:
    (name, batch_id, combination, created_at_us, seal), batch = row[:5], row[5:13]
    workflow_name, record, results = batch[2], batch[4], row[13]
    facts = (name, batch_id, workflow_name, combination, record, results, created_at_us)
    return _Baseline(*facts, seal=_new_seal(facts, (row[:4], seal), (batch[:7], batch[7])))


def _write_old(baseline: _Baseline) -> None:
    was = (baseline[:-1], baseline.seal)
    row = (baseline.name, baseline.batch_id, baseline.combination, baseline.created_at_us)
    _insert("wtb_baselines", "name, batch_id, combination, created_at_us, seal", (*row, _new_seal(row, was)))
    if _rows("SELECT 1 FROM wtb_batches WHERE id = :id", id=baseline.batch_id):
        return
    times = (baseline.created_at_us, baseline.created_at_us)
    batch = (baseline.batch_id, _PREFIX + baseline.name, baseline.workflow_name, "completed", baseline.record, *times)
    columns = "id, name, workflow_name, status, plan, created_at_us, updated_at_us, seal"
    _insert("wtb_batches", columns, (*batch, _new_seal(batch, was)))


def _new_seal(facts: tuple[Any, ...], *checked: tuple[Any, bytes | None]) -> bytes | None:
    """Return the seal of a row that is made of others; none if one of them has none, a broken one if one is damaged."""
    if any(seal is not None and bytes(seal) != _seal(row) for row, seal in checked):
        return _BROKEN
    return None if any(seal is None for _, seal in checked) else _seal(facts)


def _seal(facts: Any) -> bytes:
    return hashlib.sha256(ormsgpack.packb(tuple(facts))).digest()[:16]


def _create_tables() -> None:
    op.create_table(
        "wtb_baselines",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("batch_id", sa.Text, nullable=False),
        sa.Column("workflow_name", sa.Text, nullable=False),
        sa.Column("combination", sa.Text, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("results", sa.BigInteger, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("seal", sa.LargeBinary),
    )
    op.create_table(
        "wtb_baseline_results",
        sa.Column("batch_id", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("combination", sa.Text, nullable=False),
        sa.Column("case_id", sa.Text, nullable=False),
        sa.Column("repeat", sa.Integer, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("execution_id", sa.Text),
        sa.Column("result", sa.Text, nullable=False),
        sa.Column("seal", sa.LargeBinary),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "wtb_evaluations",
        sa.Column("execution_id", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("checkpoint_id", sa.Text, nullable=False),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("score", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("created_by", sa.Text),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("seal", sa.LargeBinary),
        sqlite_with_rowid=False,
    )


def _create_old_table() -> None:
    op.create_table(
        "wtb_baselines",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("batch_id", sa.Text, nullable=False),
        sa.Column("combination", sa.Text, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("seal", sa.LargeBinary),
    )


def _rows(statement: str, **values: Any) -> list[Any]:
    with _any_text(op.get_bind()):
        return [tuple(row) for row in op.get_bind().execute(sa.text(statement), values)]


@contextmanager
def _any_text(connection: sa.Connection) -> Iterator[None]:
    """Let SQLite read texts that are no UTF-8: one damaged row must not stop the upgrade of all others."""
    if connection.dialect.name != "sqlite":
        yield
        return
    database: Any = connection.connection.dbapi_connection
    before, database.text_factory = database.text_factory, lambda data: data.decode("utf-8", "replace")
    try:
        yield
    finally:
        database.text_factory = before


def _insert(table: str, columns: str, row: tuple[Any, ...]) -> None:
    names = columns.split(", ")
    marks = ", ".join(f":{name}" for name in names)
    _run(f"INSERT INTO {table} ({columns}) VALUES ({marks})", **dict(zip(names, row, strict=True)))


def _run(statement: str, **values: Any) -> None:
    op.get_bind().execute(sa.text(statement), values)
