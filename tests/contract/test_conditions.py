"""CelConditions keeps the contract of Conditions."""

import pytest

from wtb.domain.ports import Conditions
from wtb.infrastructure.conditions.cel import CelConditions
from wtb.testing.conditions import ConditionsContract


class TestCelConditions(ConditionsContract):
    @pytest.fixture
    def conditions(self) -> Conditions:
        return CelConditions(timeout_s=0.1)
