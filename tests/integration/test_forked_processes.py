"""A process that was forked from one which has a storage open: both would talk on the same connections."""

import os

import pytest

from wtb.domain.errors import InvalidInput
from wtb.domain.ports import Storage


def is_refused(storage: Storage) -> bool:
    try:
        with storage.unit_of_work(readonly=True):
            return False
    except InvalidInput as error:
        return "forked" in str(error)


@pytest.mark.parametrize("storage", ["sqlite", "postgres", "pgbouncer"], indirect=True)
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # that it has threads is what Python warns of
def test_a_forked_process_is_told_to_open_its_own_and_leaves_the_connections_to_its_parent(storage: Storage) -> None:
    with storage.unit_of_work(readonly=True) as uow:
        before = uow.executions.list_executions()
    child = os.fork()
    if child == 0:
        refused = is_refused(storage)
        storage.close()
        os._exit(0 if refused else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with storage.unit_of_work(readonly=True) as uow:
        assert uow.executions.list_executions() == before
