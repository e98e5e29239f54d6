"""Runs: lists of them, and everything about one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from wtb.api.access import Viewer
from wtb.api.models.base import ListAnswer
from wtb.api.models.executions import ExecutionAnswer, ExecutionListAnswer, ScoreAnswer
from wtb.api.models.failures import FailureExplanation
from wtb.api.models.parameters import AtQuery, Cursor, Limit, Moment, RunId, printable
from wtb.api.models.states import StateAnswer, StateMatchAnswer, StateMatchesAnswer
from wtb.api.parts import Parts
from wtb.api.problems import answers
from wtb.api.states import CHILDREN, matches_in, part_of, tagged_json
from wtb.application.queries.views import Health
from wtb.domain.errors import BatchNotFound, CheckpointNotFound, DamagedData, ExecutionNotFound, InvalidInput
from wtb.domain.execution import ExecutionStatus
from wtb.domain.run_filters import RunFilters

router = APIRouter(prefix="/api/v1/executions", tags=["executions"])

_NO_BATCH = "none"
_ONE = answers(ExecutionNotFound, DamagedData)


@router.get(
    "",
    operation_id="executions_list",
    summary="List runs, newest first",
    responses=answers(InvalidInput, BatchNotFound),
)
def list_executions(
    *,
    parts: Parts,
    caller: Viewer,
    status: Annotated[list[ExecutionStatus] | None, Query(description="Only runs with one of these statuses.")] = None,
    workflow: Annotated[str | None, Query(description="Only runs of this workflow.", max_length=500)] = None,
    batch: Annotated[
        str | None,
        Query(
            description="Only the runs of this batch, by its id or name; `none` leaves out the runs of all batches.",
            max_length=500,
            examples=[_NO_BATCH],
        ),
    ] = None,
    created_by: Annotated[str | None, Query(description="Only runs that this person created.", max_length=500)] = None,
    since: Annotated[Moment | None, Query(description="Only runs created at this time or later.")] = None,
    until: Annotated[Moment | None, Query(description="Only runs created before this time.")] = None,
    prefix: Annotated[str, Query(description="Only runs whose ids begin like this.", max_length=200)] = "",
    health: Annotated[
        Health | None,
        Query(
            description="Only runs whose process is `gone`, that are `abandoned`, or that are `waiting` for a person. "
            "Such a page may hold fewer items than its limit although `next` leads on."
        ),
    ] = None,
    counts: Annotated[bool, Query(description="Also count the runs that fit the other filters, by status.")] = False,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> ExecutionListAnswer:
    """Return a page of runs. A damaged run is left out; `GET /upkeep/doctor` tells of it."""
    filters: RunFilters = {
        "statuses": status or (),
        "workflow": printable("workflow", workflow),
        "created_by": printable("created_by", created_by),
        "since": since,
        "until": until,
        "prefix": printable("prefix", prefix) or "",
    }
    if batch == _NO_BATCH:
        filters["without_batches"] = True
    elif batch is not None:
        filters["batch"] = parts.services.queries.batch_record(printable("batch", batch) or "").id
    page = parts.services.queries.run_page(cursor=cursor, limit=limit, health=health, with_counts=counts, **filters)
    return ExecutionListAnswer.of(page)


@router.get("/{execution_id}", operation_id="executions_get", summary="Show a run", responses=_ONE)
def get_execution(*, parts: Parts, caller: Viewer, run: RunId, response: Response) -> ExecutionAnswer:
    """Return everything about a run. The ETag is its version; a change that must not be blind sends it back."""
    view = parts.services.queries.run(run)
    response.headers["ETag"] = f'"{view.execution.version}"'
    return ExecutionAnswer.of_view(view, part_of(parts, view.state), parts.services.masker)


@router.get(
    "/{execution_id}/state",
    operation_id="executions_get_state",
    summary="Show the state of a run, or one place of it",
    responses=answers(ExecutionNotFound, CheckpointNotFound, InvalidInput, DamagedData),
)
def get_state(
    *,
    parts: Parts,
    caller: Viewer,
    run: RunId,
    at: AtQuery = None,
    path: Annotated[
        str | None,
        Query(
            description="A place in the state: a JSON list of keys and positions.",
            examples=['["messages", 3]'],
            max_length=5_000,
        ),
    ] = None,
    whole: Annotated[bool, Query(description="Return the whole value, however large it is.")] = False,
    cursor: Cursor = None,
    limit: Limit = CHILDREN,
) -> StateAnswer:
    """Return a place of the state at the head or at a checkpoint: its value, or a page of its parts if it is large."""
    queries = parts.services.queries
    state = queries.state(run)[1] if at is None else queries.checkpoint_view(run, at).state
    return StateAnswer.of(part_of(parts, state, path, whole=whole, cursor=cursor, limit=limit))


@router.get(
    "/{execution_id}/failure",
    operation_id="executions_get_failure",
    summary="Explain why a run failed",
    responses=answers(ExecutionNotFound, InvalidInput, DamagedData),
)
def get_failure(*, parts: Parts, caller: Viewer, run: RunId) -> FailureExplanation:
    """Return the error, what the node got, and what changed since the last run of the workflow that completed."""
    view = parts.services.queries.failure(run)
    state = None if view.input is None else part_of(parts, view.input.state)
    return FailureExplanation.of(view, state, tagged_json(parts))


@router.get(
    "/{execution_id}/state/matches",
    operation_id="executions_list_state_matches",
    summary="Search the state of a run",
    responses=answers(ExecutionNotFound, CheckpointNotFound, InvalidInput, DamagedData),
)
def search_state(
    *,
    parts: Parts,
    caller: Viewer,
    run: RunId,
    text: Annotated[str, Query(description="The text to look for, in any case.", min_length=1, max_length=200)],
    at: AtQuery = None,
    limit: Limit = 100,
) -> StateMatchesAnswer:
    """Return the first places whose key or value holds a text, at the head or at a checkpoint. Secrets are left out."""
    queries = parts.services.queries
    state = queries.state(run)[1] if at is None else queries.checkpoint_view(run, at).state
    found, is_complete = matches_in(parts, state, text, limit)
    return StateMatchesAnswer(items=[StateMatchAnswer.of(match) for match in found], is_complete=is_complete)


@router.get(
    "/{execution_id}/scores", operation_id="executions_list_scores", summary="List the scores of a run", responses=_ONE
)
def list_scores(*, parts: Parts, caller: Viewer, run: RunId) -> ListAnswer[ScoreAnswer]:
    """Return what evaluators said about a run, oldest first. The scores of a batch are in its results."""
    return ListAnswer(items=[ScoreAnswer.of(score) for score in parts.services.queries.scores(run).all])
