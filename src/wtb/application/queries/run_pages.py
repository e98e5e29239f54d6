"""Read the list of runs page by page, in a time that does not depend on where the page begins."""

from __future__ import annotations

from dataclasses import dataclass

from wtb.application.queries.cursors import position_cursor, position_of
from wtb.application.queries.runs import RunReader
from wtb.application.queries.views import Health, RunPage, RunRow
from wtb.domain.errors import DamagedData
from wtb.domain.execution import Execution, ExecutionStatus, PauseKind
from wtb.domain.ports import RunPosition, UnitOfWork
from wtb.domain.run_filters import RunFilters
from wtb.domain.secrets import masked_logger

_MOST_LOOKED_AT = 2_000
"""How many runs one page looks at if few of them have the wanted health."""
_MOST_IN_A_ROW = 100
"""More damaged runs in a row than this: then the table itself cannot be read."""

_STATUSES = {
    Health.GONE: (ExecutionStatus.RUNNING, ExecutionStatus.ROLLING_BACK),
    Health.ABANDONED: (ExecutionStatus.RUNNING, ExecutionStatus.ROLLING_BACK),
    Health.WAITING: (ExecutionStatus.PAUSED,),
}
_ASKS = frozenset({PauseKind.QUESTION, PauseKind.IN_DOUBT, PauseKind.CALLS_DIFFER})
_log = masked_logger(__name__)


@dataclass(frozen=True, slots=True)
class RunLister:
    """Reads one page in one unit of work."""

    uow: UnitOfWork
    runs: RunReader
    filters: RunFilters
    health: Health | None

    def page(self, cursor: str | None, limit: int, *, with_counts: bool) -> RunPage:
        """Return a page; with a health, it may hold fewer runs than the limit although others follow."""
        found: list[RunRow] = []
        position, looked_at, has_more = position_of(cursor), 0, True
        counts = self.uow.pages.count_runs(**self.filters) if with_counts else None
        while has_more and len(found) < limit and looked_at < _MOST_LOOKED_AT:
            executions = self._legible(position, limit + 1)
            has_more = len(executions) > limit
            for execution in executions[:limit]:
                if len(found) == limit:
                    has_more = True
                    break
                position = RunPosition(execution.created_at, execution.id)
                row = self.runs.row(self.uow, execution)
                if self.health is None or _health(row) is self.health:
                    found.append(row)
            looked_at += limit
        next_cursor = position_cursor(*position) if has_more and position is not None else None
        return RunPage(rows=tuple(found), next=next_cursor, counts=counts)

    def _legible(self, before: RunPosition | None, limit: int) -> list[Execution]:
        """Return the runs after a position; damaged ones are skipped and logged."""
        statuses = self.filters.get("statuses") or ()
        filters: RunFilters = {**self.filters}
        if self.health is not None:
            wanted = _STATUSES[self.health]
            filters["statuses"] = [status for status in wanted if not statuses or status in statuses]
            if not filters["statuses"]:
                return []
        listed = self.uow.executions.list_executions
        try:
            return list(listed(before=before, limit=limit, **filters))
        except DamagedData:
            return self._one_by_one(before, limit, filters)

    def _one_by_one(self, before: RunPosition | None, limit: int, filters: RunFilters) -> list[Execution]:
        found: list[Execution] = []
        offset = in_a_row = 0
        while len(found) < limit:
            try:
                page = self.uow.executions.list_executions(before=before, limit=1, offset=offset, **filters)
            except DamagedData as error:
                if in_a_row == _MOST_IN_A_ROW:
                    raise
                _log.warning("%s; it is skipped", error)
                in_a_row += 1
                offset += 1
                continue
            if not page:
                break
            found += page
            before, offset, in_a_row = RunPosition(page[0].created_at, page[0].id), 0, 0
        return found


def _health(row: RunRow) -> Health | None:
    """Return what is special about a run: nobody runs it although it says so, or it waits for a person."""
    if row.neglect is not None:
        return Health(row.neglect.value)
    pause = row.execution.pause
    return Health.WAITING if pause is not None and pause.kind in _ASKS else None
