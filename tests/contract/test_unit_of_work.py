"""Every storage keeps the contract of UnitOfWork, Postgres also through PgBouncer."""

import pytest

from wtb.testing.unit_of_work import UnitOfWorkContract


class TestUnitOfWork(UnitOfWorkContract): ...


@pytest.mark.parametrize("storage", ["pgbouncer"], indirect=True)
class TestUnitOfWorkThroughPgBouncer(UnitOfWorkContract): ...
