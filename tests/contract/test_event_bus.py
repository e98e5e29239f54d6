"""QueueEventBus keeps the contract of EventBus."""

from collections.abc import Iterator

import pytest

from wtb.domain.ports import EventBus
from wtb.infrastructure.events.bus import QueueEventBus
from wtb.testing.event_bus import EventBusContract


class TestQueueEventBus(EventBusContract):
    @pytest.fixture
    def bus(self) -> Iterator[EventBus]:
        bus = QueueEventBus()
        yield bus
        bus.close()
