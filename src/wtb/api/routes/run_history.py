"""What a run did: branches, tree, timeline, calls, usage, events and variants."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from wtb.api.access import Viewer
from wtb.api.models.base import ListAnswer
from wtb.api.models.histories import (
    BranchAnswer,
    CallAnswer,
    NodeUsageAnswer,
    RunEventAnswer,
    TimelineAnswer,
    TreeAnswer,
    VariantsAnswer,
)
from wtb.api.models.parameters import Cursor, Limit, RunId, Step
from wtb.api.parts import Parts
from wtb.api.problems import answers
from wtb.api.states import tagged_json
from wtb.application.queries.cursors import cursor_of, page_of_all, parts_of
from wtb.domain.errors import CheckpointNotFound, DamagedData, ExecutionNotFound, InvalidInput
from wtb.domain.event_body import Severity
from wtb.domain.filters import event_types

router = APIRouter(prefix="/api/v1/executions/{execution_id}", tags=["executions"])

_ONE = answers(ExecutionNotFound, DamagedData)


@router.get("/branches", operation_id="branches_list", summary="List the branches of a run", responses=_ONE)
def list_branches(*, parts: Parts, caller: Viewer, run: RunId) -> ListAnswer[BranchAnswer]:
    """Return the branches of a run in the order of their creation."""
    execution, branches = parts.services.queries.branches(run)
    return ListAnswer(items=[BranchAnswer.of(branch, execution.branch_id) for branch in branches])


@router.get("/tree", operation_id="executions_get_tree", summary="Show all lines of a run as a tree", responses=_ONE)
def get_tree(*, parts: Parts, caller: Viewer, run: RunId) -> TreeAnswer:
    """Return branches, lines that rollbacks left, and forks into other runs; plain steps in a row are folded."""
    return TreeAnswer.of(parts.services.queries.tree(run))


@router.get("/timeline", operation_id="executions_get_timeline", summary="Show when each node ran", responses=_ONE)
def get_timeline(
    *, parts: Parts, caller: Viewer, run: RunId, before: Step = None, limit: Limit = 100
) -> TimelineAnswer:
    """Return the node visits that ended with the last steps: their times, attempts, and waits for people."""
    return TimelineAnswer.of(parts.services.queries.timeline(run, before=before, limit=limit))


@router.get(
    "/calls",
    operation_id="executions_list_calls",
    summary="List the calls of a run",
    responses=answers(ExecutionNotFound, CheckpointNotFound, InvalidInput, DamagedData),
)
def list_calls(
    *,
    parts: Parts,
    caller: Viewer,
    run: RunId,
    node: Annotated[str | None, Query(description="Only calls of this node.", max_length=500)] = None,
    visit: Annotated[int | None, Query(description="Only calls of this visit of the node.", ge=1, lt=1 << 31)] = None,
    ended_with: Annotated[
        str | None, Query(description="Only calls of the visits that ended with this checkpoint.", max_length=500)
    ] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> ListAnswer[CallAnswer]:
    """Return a page of the calls to tools and questions to people, on all lines, in the order of their starts."""
    found = tuple(
        call
        for call in parts.services.queries.call_views(run, ended_with)
        if node in (None, call.node) and visit in (None, call.visit)
    )
    calls, next_cursor = page_of_all(found, cursor, limit)
    json = tagged_json(parts)
    return ListAnswer(items=[CallAnswer.of(call, json) for call in calls], next=next_cursor)


@router.get("/usage", operation_id="executions_list_usage", summary="Show what each node used", responses=_ONE)
def list_usage(*, parts: Parts, caller: Viewer, run: RunId) -> ListAnswer[NodeUsageAnswer]:
    """Return tokens, money and time of each node, on the way to the head and in all attempts."""
    return ListAnswer(items=[NodeUsageAnswer.of(each) for each in parts.services.queries.usage_by_node(run)])


@router.get(
    "/events",
    operation_id="executions_list_events",
    summary="List the events of a run",
    responses=answers(ExecutionNotFound, InvalidInput, DamagedData),
)
def list_events(
    *,
    parts: Parts,
    caller: Viewer,
    run: RunId,
    type: Annotated[
        list[str] | None,
        Query(description="Only these types, or all events of a noun.", examples=[["node", "tool.failed"]]),
    ] = None,
    severity: Annotated[list[Severity] | None, Query(description="Only these severities.")] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> ListAnswer[RunEventAnswer]:
    """Return a page of events, newest first. The events of a deleted run stay."""
    stream = parts.services.queries.run_stream(run)
    page = parts.services.queries.event_page(
        stream,
        by="sequence",
        types=event_types(type or ()),
        severities=severity or (),
        before=None if cursor is None else parts_of(cursor, int)[0],
        limit=limit,
    )
    items = [RunEventAnswer.of(event) for event in reversed(page.events)]
    return ListAnswer(items=items, next=cursor_of(items[-1].sequence) if items and page.has_earlier else None)


@router.get("/variants", operation_id="variants_list", summary="List the variants of a run's workflow", responses=_ONE)
def list_variants(*, parts: Parts, caller: Viewer, run: RunId) -> VariantsAnswer:
    """Return the variants that the nodes of the workflow had when the run began, and those that the run uses."""
    execution, variants = parts.services.queries.variants(run)
    chosen = execution.options.get("variants", {})
    return VariantsAnswer(
        workflow=execution.workflow_name,
        chosen={str(node): str(name) for node, name in chosen.items()},
        nodes={node: list(names) for node, names in variants.items()},
    )
