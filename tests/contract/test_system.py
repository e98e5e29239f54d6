"""The clocks and the sources of ids keep their contracts, the shipped fakes included."""

import pytest

from wtb.domain.ports import Clock, Ids
from wtb.infrastructure.system import SystemClock, Uuid7Ids
from wtb.testing.fakes import FakeClock, SequentialIds
from wtb.testing.system import ClockContract, IdsContract


class TestClocks(ClockContract):
    @pytest.fixture(params=[SystemClock, FakeClock])
    def clock(self, request: pytest.FixtureRequest) -> Clock:
        clock: Clock = request.param()
        return clock


class TestIds(IdsContract):
    @pytest.fixture(params=[Uuid7Ids, SequentialIds])
    def ids(self, request: pytest.FixtureRequest) -> Ids:
        ids: Ids = request.param()
        return ids
