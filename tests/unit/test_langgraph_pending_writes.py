"""The port of pending writes: which units of work have it."""

from __future__ import annotations

from typing import Any

import pytest

from wtb.domain.errors import InvalidInput
from wtb.infrastructure.langgraph.pending_writes import pending_writes_of


class PlainUnitOfWork:
    """A unit of work of a storage that was not written for LangGraph."""


def test_a_storage_without_pending_writes_is_refused_with_the_property_to_add() -> None:
    plain: Any = PlainUnitOfWork()
    with pytest.raises(InvalidInput, match=r"PlainUnitOfWork has no pending_writes.*docs/backends\.md"):
        pending_writes_of(plain)
