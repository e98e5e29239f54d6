"""A transaction that nobody ended, as when an interrupt comes between its begin and the `with` that would end it."""

import gc
from contextlib import closing

import pytest

from wtb.infrastructure.sql.unit_of_work import SqlStorage

INSERT = "INSERT INTO wtb_workflows (id, name, version, definition) VALUES ('1', 'a', '1', '{}')"


@pytest.mark.parametrize("storage", ["sqlite", "postgres", "pgbouncer"], indirect=True)
@pytest.mark.parametrize("heard", [True, False])
def test_it_keeps_nothing_and_is_in_nobodys_way(storage: SqlStorage, heard: bool) -> None:
    transaction = storage.database.begin()
    transaction.run(INSERT)
    if heard:
        transaction.rows("SELECT 1")
    del transaction
    gc.collect()
    for _ in range(10):  # whichever connection of the pool it was
        with closing(storage.database.begin()) as another:
            assert another.rows("SELECT id FROM wtb_workflows") == []
            another.run(INSERT)
