"""The audit trail: reads over all events and all calls of tools."""

from __future__ import annotations

from typing import Protocol

from wtb.domain.audit import ALL_TIME, AuditCounts, AuditFilter, AuditPage, ChainCheck, Period, ToolUse


class AuditTrail(Protocol):
    """Looks at all runs and batches at once. Nothing here writes."""

    def list_events(self, wanted: AuditFilter, *, before: int | None = None, limit: int) -> AuditPage:
        """Return events that fit, newest first; `before` is the one of the page before.

        A page may hold fewer events than `limit`, or none, although more follow: it looks at a bounded number of
        events, however rare the wanted ones are. An event that does not match its hash is named, not shown.
        """
        ...

    def count(self, period: Period = ALL_TIME) -> AuditCounts:
        """Count the events of a period by type, and the newest ones that name somebody by name."""
        ...

    def tool_use(self, period: Period = ALL_TIME) -> tuple[ToolUse, ...]:
        """Return how the tools were used that were called in a period, by name."""
        ...

    def check_chain(self, stream: str | None = None, *, after: int = 0, limit: int) -> ChainCheck:
        """Check the hashes of the next events; damage does not stop it.

        `after` is a number in the stream, or without a stream a position in the whole log.
        """
        ...
