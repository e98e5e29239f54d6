"""NoAnchor: for stores that need no anchor. Postgres verifies its own log; memory ends with its process."""

from __future__ import annotations

from collections.abc import Sequence

from wtb.domain.anchor import AnchoredCall
from wtb.domain.ids import ExecutionId
from wtb.domain.integrity import Fault


class NoAnchor:
    """Notes nothing and finds nothing lost."""

    def note(self, call: AnchoredCall) -> None:
        """Leave it to the store."""

    def list_lost(self, execution_id: ExecutionId) -> tuple[AnchoredCall, ...]:
        return ()

    def inspect(self) -> tuple[Fault, ...]:
        return ()

    def repair(self, faults: Sequence[Fault]) -> None:
        """There is nothing to repair."""

    def close(self) -> None:
        """There is nothing to close."""
