"""MemoryAuditTrail: the audit trail over the tables in memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import timedelta

from wtb.domain.audit import ALL_TIME, AuditCounts, AuditFilter, AuditPage, ChainCheck, Period, ToolUse, who_caused
from wtb.domain.ports import Codec
from wtb.domain.tools import CallKind, CallStatus, ToolCall
from wtb.infrastructure.chain_check import check_rows, sound_rows
from wtb.infrastructure.event_chain import EventRow, read_event
from wtb.infrastructure.memory.fitting_runs import batch_that_made
from wtb.infrastructure.memory.tables import MemoryTransaction


class MemoryAuditTrail:
    """Reads inside one transaction."""

    def __init__(self, transaction: MemoryTransaction, codec: Codec) -> None:
        self._transaction = transaction
        self._codec = codec

    def list_events(self, wanted: AuditFilter, *, before: int | None = None, limit: int) -> AuditPage:
        rows = [row for row in reversed(self._rows()) if before is None or row.position < before]
        events, faults = sound_rows(self._codec, rows)
        left_out = self._batch_runs() if wanted.without_batch_runs else frozenset()
        fitting = [event for event in events if wanted.fits(event) and event.stream not in left_out][:limit]
        end = fitting[-1].position if len(fitting) == limit else None
        return AuditPage(events=tuple(fitting), before=end, faults=tuple(faults))

    def count(self, period: Period = ALL_TIME) -> AuditCounts:
        events = [read_event(self._codec, row) for row in self._rows()]
        held = [event for event in events if period.holds(event.at)]
        people = Counter(who for event in held if (who := who_caused(event)) is not None)
        return AuditCounts(types=Counter(event.type for event in held), people=people)

    def tool_use(self, period: Period = ALL_TIME) -> tuple[ToolUse, ...]:
        by_tool: dict[str, list[ToolCall]] = defaultdict(list)
        for call, *_ in self._transaction.all("tool_calls"):
            if call.kind is CallKind.TOOL and period.holds(call.started_at):
                by_tool[call.tool].append(call)
        return tuple(_use(tool, calls) for tool, calls in sorted(by_tool.items()))

    def check_chain(self, stream: str | None = None, *, after: int = 0, limit: int) -> ChainCheck:
        number = "position" if stream is None else "sequence"
        own = [row for row in self._rows() if stream is None or row.stream == stream]
        rows = [row for row in own if getattr(row, number) > after][:limit]
        return check_rows(self._codec, rows, limit=limit, in_stream=stream is not None)

    def _batch_runs(self) -> frozenset[str]:
        runs = self._transaction.all("executions")
        return frozenset(run.id for run in runs if batch_that_made(run) is not None)

    def _rows(self) -> list[EventRow]:
        return sorted(self._transaction.all("events"), key=lambda row: row.position)


def _use(tool: str, calls: list[ToolCall]) -> ToolUse:
    durations = [call.ended_at - call.started_at for call in calls if call.ended_at is not None]
    return ToolUse(
        tool=tool,
        calls=len(calls),
        failures=sum(call.status is CallStatus.FAILED for call in calls),
        runs=len({call.execution_id for call in calls}),
        total=sum(durations, timedelta()),
        longest=max(durations, default=timedelta()),
        ended=len(durations),
    )
