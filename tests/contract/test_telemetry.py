"""The contract of Telemetry over what is shipped."""

import pytest

from wtb.domain.ports.telemetry import NO_TELEMETRY, Telemetry
from wtb.infrastructure.telemetry import MemoryTelemetry
from wtb.testing.telemetry import TelemetryContract


class TestTelemetry(TelemetryContract):
    @pytest.fixture(params=["none", "memory"])
    def telemetry(self, request: pytest.FixtureRequest) -> Telemetry:
        return NO_TELEMETRY if request.param == "none" else MemoryTelemetry()
