"""Every storage keeps the contract of CheckpointStore, Postgres also through PgBouncer."""

import pytest

from wtb.testing.checkpoint_store import CheckpointStoreContract


class TestCheckpointStore(CheckpointStoreContract): ...


@pytest.mark.parametrize("storage", ["pgbouncer"], indirect=True)
class TestCheckpointStoreThroughPgBouncer(CheckpointStoreContract): ...
