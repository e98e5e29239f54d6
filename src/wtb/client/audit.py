"""Verbs of the audit trail: who changed what, and whether the log is what was written."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import datetime

from wtb.api.models.audit import (
    AuditEntryAnswer,
    AuditSummaryAnswer,
    ChainCheckAnswer,
    ToolUseAnswer,
)
from wtb.api.models.base import ListAnswer
from wtb.client.connection import Connection, path_of
from wtb.client.requests import Names, each_of, get


class AuditVerbs(Connection):
    """What a client reads of the audit trail."""

    async def audit(
        self,
        *,
        by: str | None = None,
        types: Names = (),
        since: datetime | None = None,
        until: datetime | None = None,
        everything: bool = False,
    ) -> AsyncGenerator[AuditEntryAnswer]:
        """Return what people and tokens decided, newest first; with `everything` also the work that followed."""
        filters = {"by": by, "type": each_of(types), "since": since, "until": until, "everything": everything}
        async for entry in self._each(AuditEntryAnswer, path_of("audit"), **filters, limit=500):
            yield entry

    async def audit_summary(
        self, *, since: datetime | None = None, until: datetime | None = None
    ) -> AuditSummaryAnswer:
        """Return how often what happened, and who caused how much."""
        return await self._ask(AuditSummaryAnswer, get(path_of("audit", "summary"), since=since, until=until))

    async def tool_use(self, *, since: datetime | None = None, until: datetime | None = None) -> list[ToolUseAnswer]:
        """Return calls, failures and durations of every tool."""
        return (
            await self._ask(ListAnswer[ToolUseAnswer], get(path_of("audit", "tools"), since=since, until=until))
        ).items

    async def verify_log(self, *, stream: str | None = None) -> list[str]:
        """Check that nobody has changed the log, or one stream of it; return what is wrong."""
        faults: list[str] = []
        cursor: str | None = None
        while True:
            asked = get(path_of("audit", "verify"), stream=stream, cursor=cursor)
            found = await self._ask(ChainCheckAnswer, asked)
            faults += found.faults
            cursor = found.next
            if cursor is None:
                return faults
