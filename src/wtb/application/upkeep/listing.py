"""Lists every run of a store, a page at a time, skipping those that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from wtb.domain.errors import DamagedData
from wtb.domain.execution import Execution
from wtb.domain.ports import Storage
from wtb.domain.secrets import masked_logger

_PAGE = 500
_MOST_IN_A_ROW = 100
_log = masked_logger(__name__)


def every_execution(storage: Storage, **filters: Any) -> Iterator[Execution]:
    """Yield the runs that match the filters, newest first; a damaged one is logged and skipped."""
    offset, limit, in_a_row = 0, _PAGE, 0
    while True:
        try:
            with storage.unit_of_work(readonly=True) as uow:
                page = uow.executions.list_executions(limit=limit, offset=offset, **filters)
        except DamagedData as error:
            if in_a_row == _MOST_IN_A_ROW:  # then the table itself cannot be read
                raise
            if limit == 1:
                in_a_row += 1
                _log.warning("%s; it is skipped", error)
                offset, limit = offset + 1, _PAGE
            else:
                limit = 1  # one by one, to find the damaged one
            continue
        in_a_row = 0
        yield from page
        if not page:
            return
        offset += len(page)


def legible_executions(storage: Storage, *, limit: int = 100, offset: int = 0, **filters: Any) -> tuple[Execution, ...]:
    """Return one page of the runs that match the filters, newest first; damaged ones are skipped."""
    try:
        with storage.unit_of_work(readonly=True) as uow:
            return uow.executions.list_executions(limit=limit, offset=offset, **filters)
    except DamagedData:
        return tuple(islice(every_execution(storage, **filters), offset, offset + limit))
