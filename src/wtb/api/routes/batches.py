"""Batches: lists of them, how far one has come, cancel and delete."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from wtb.api.access import Admin, Operator, Viewer
from wtb.api.models.base import ListAnswer
from wtb.api.models.batches import BatchAnswer, BatchRow, batch_list
from wtb.api.models.parameters import BatchName, Cursor, Limit, printable
from wtb.api.parts import Parts
from wtb.api.problems import answers
from wtb.domain.errors import BatchNotFound, DamagedData, InvalidInput

router = APIRouter(prefix="/api/v1/batches", tags=["batches"])

_ONE = answers(BatchNotFound, DamagedData)


@router.get("", operation_id="batches_list", summary="List batches, newest first", responses=answers(InvalidInput))
def list_batches(
    *,
    parts: Parts,
    caller: Viewer,
    name: Annotated[str | None, Query(description="Only batches of this name.", max_length=500)] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> ListAnswer[BatchRow]:
    """Return a page of batches."""
    return batch_list(parts.services.queries.batch_page(cursor=cursor, limit=limit, name=printable("name", name)))


@router.get("/{batch_id}", operation_id="batches_get", summary="Show how far a batch has come", responses=_ONE)
def get_batch(parts: Parts, caller: Viewer, batch: BatchName) -> BatchAnswer:
    """Return the counts, the spending, the limits, and the jobs that run right now."""
    return BatchAnswer.of_status(parts.services.queries.batch_status(batch, parts.results.jobs(batch)))


@router.post(
    "/{batch_id}/cancel",
    operation_id="batches_cancel",
    summary="Cancel a batch",
    responses=answers(BatchNotFound, InvalidInput, DamagedData),
)
def cancel_batch(parts: Parts, caller: Operator, batch: BatchName) -> BatchAnswer:
    """Cancel a batch: no process starts any more of its jobs. Jobs that run are finished."""
    queries = parts.services.queries
    found = queries.batch_record(batch)
    parts.services.batch_editor.cancel(found, by=caller.name)
    return BatchAnswer.of_status(queries.batch_status(found.id))


@router.delete(
    "/{batch_id}",
    operation_id="batches_delete",
    summary="Delete a batch with its results",
    status_code=204,
    responses=answers(BatchNotFound, InvalidInput, DamagedData),
)
def delete_batch(parts: Parts, caller: Admin, batch: BatchName) -> None:
    """Delete a batch with its results. Its runs stay."""
    parts.services.batch_editor.delete(parts.services.queries.batch_record(batch), by=caller.name)
