"""Read the checkpoints of a run page by page: along the line to the head, or on all lines."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from wtb.application.queries.lookup import find_checkpoint, head_of
from wtb.application.queries.runs import file_totals
from wtb.application.queries.views import CheckpointPage, FileTotals, HistoryRow, Mark
from wtb.domain.checkpoint import Checkpoint, Kind
from wtb.domain.errors import DamagedData, FileCommitNotFound
from wtb.domain.execution import Execution
from wtb.domain.ids import CheckpointId
from wtb.domain.ports import UnitOfWork

_PAGE = 500
"""How many checkpoints are in memory at a time when all of them are read."""

Target = str | int
"""A step, an id, a name, a node or a visit of one."""


def line_page(
    uow: UnitOfWork, execution: Execution, *, before: Target | None, after: Target | None, limit: int
) -> CheckpointPage:
    """Return the last checkpoints of the line to the head, those before a checkpoint, or the first after one."""
    head_id = head_of(uow, execution)
    upto = None if before is None else find_checkpoint(uow, execution, before).step - 1
    since = None if after is None else find_checkpoint(uow, execution, after).step
    if since is not None:  # step numbers on a line rise by one
        upto = since + limit if upto is None else min(since + limit, upto)
    line = () if head_id is None else uow.pages.list_line(head_id, upto=upto, limit=limit)
    found = [checkpoint for checkpoint in line if since is None or checkpoint.step > since]
    return CheckpointPage(
        run_id=execution.id,
        rows=tuple(_rows(uow, found, head_id, {checkpoint.id for checkpoint in found})),
        counts=uow.pages.count_checkpoints(execution.id),
        has_earlier=bool(found) and found[0].parent_id is not None,
        has_later=bool(found) and found[-1].id != head_id,
    )


def every_page(uow: UnitOfWork, execution: Execution, *, before: Target | None, limit: int) -> CheckpointPage:
    """Return the last checkpoints of a run on all lines, or those before one of them."""
    bound = None if before is None else find_checkpoint(uow, execution, before)
    cursor = None if bound is None else (bound.step, bound.id)
    found = uow.pages.list_checkpoints(execution.id, before=cursor, limit=limit + 1)
    page, head_id = found[-limit:], head_of(uow, execution)
    return CheckpointPage(
        run_id=execution.id,
        rows=tuple(_rows(uow, page, head_id, _on_line(uow, page, head_id))),
        counts=uow.pages.count_checkpoints(execution.id),
        has_earlier=len(found) > limit,
        has_later=bound is not None,
    )


def mark_of(uow: UnitOfWork, execution: Execution, checkpoint: Checkpoint) -> Mark:
    """Return where a checkpoint lies, seen from the head of a run."""
    head_id = head_of(uow, execution)
    return _mark(checkpoint, head_id, _on_line(uow, (checkpoint,), head_id))


def _on_line(uow: UnitOfWork, page: Collection[Checkpoint], head_id: CheckpointId | None) -> set[CheckpointId]:
    """Return the checkpoints of the line to the head in the range of steps that a page covers."""
    if head_id is None or not page:
        return set()
    steps = [checkpoint.step for checkpoint in page]
    line = uow.pages.list_line(head_id, upto=max(steps), limit=max(steps) - min(steps) + 1)
    return {checkpoint.id for checkpoint in line}


def each_on_line(uow: UnitOfWork, execution: Execution) -> Iterator[HistoryRow]:
    """Yield every checkpoint of the line to the head, oldest first, reading a few at a time."""
    head_id = head_of(uow, execution)
    for end in reversed(_page_ends(uow, head_id)):
        page = uow.pages.list_line(end, limit=_PAGE)
        yield from _rows(uow, page, head_id, {checkpoint.id for checkpoint in page})


def each_checkpoint(uow: UnitOfWork, execution: Execution) -> Iterator[HistoryRow]:
    """Yield every checkpoint of a run: first those on its line that belong to other runs, then all of its own."""
    head_id = head_of(uow, execution)
    own: set[CheckpointId] = set()
    for row in each_on_line(uow, execution):
        if row.checkpoint.execution_id == execution.id:
            own.add(row.checkpoint.id)
        else:
            yield row
    yield from _rows(uow, uow.checkpoints.each_info(execution.id), head_id, own)


def _page_ends(uow: UnitOfWork, head_id: CheckpointId | None) -> list[CheckpointId]:
    """Return the last checkpoint of each page of a line, newest first: a line can only be walked back from its end."""
    ends: list[CheckpointId] = []
    while head_id is not None:
        ends.append(head_id)
        page = uow.pages.list_line(head_id, limit=_PAGE)
        head_id = page[0].parent_id if page else None
    return ends


def _rows(
    uow: UnitOfWork, checkpoints: Iterable[Checkpoint], head_id: CheckpointId | None, on_line: Collection[CheckpointId]
) -> Iterator[HistoryRow]:
    commit, totals = None, _totals(uow, None)
    for checkpoint in checkpoints:
        wanted = None if checkpoint.deleted else checkpoint.file_commit
        if wanted != commit:  # most steps leave the files as they are
            commit, totals = wanted, _totals(uow, wanted)
        yield HistoryRow(checkpoint=checkpoint, mark=_mark(checkpoint, head_id, on_line), files=totals)


def _mark(checkpoint: Checkpoint, head_id: CheckpointId | None, on_line: Collection[CheckpointId]) -> Mark:
    if checkpoint.deleted:
        return Mark.DELETED
    if checkpoint.id == head_id:
        return Mark.HEAD
    if checkpoint.id in on_line:
        return Mark.ON_LINE
    return Mark.SAFETY if checkpoint.kind is Kind.SYSTEM else Mark.LEFT


def _totals(uow: UnitOfWork, commit: str | None) -> FileTotals | None:
    """Return how many files a checkpoint has; None if they cannot be read, so that the history still shows."""
    try:
        return file_totals(uow, commit)
    except (DamagedData, FileCommitNotFound):
        return None
