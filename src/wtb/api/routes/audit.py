"""The audit trail: who changed what, how often, what tools did, and whether the log can be trusted."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from wtb.api.access import Viewer
from wtb.api.models.audit import (
    AuditListAnswer,
    AuditSummaryAnswer,
    ChainCheckAnswer,
    ToolUseAnswer,
)
from wtb.api.models.base import ListAnswer
from wtb.api.models.parameters import BatchIds, EventTypes, Limit, Moment, RunIds, Severities
from wtb.api.parts import Parts
from wtb.api.problems import answers
from wtb.domain.audit import AuditFilter, AuditPage, Period, who_caused
from wtb.domain.errors import InvalidInput
from wtb.domain.events import RecordedEvent
from wtb.domain.filters import event_types, severities

router = APIRouter(tags=["audit"], prefix="/api/v1/audit")

Cursor = Annotated[str | None, Query(max_length=20, pattern=r"^\d+$", description="The `next` of the page before.")]
_MOST_PAGES = 10
"""How many pages without a fitting event one request looks through."""
_LARGEST = 2**63 - 1


def _period(
    since: Annotated[Moment | None, Query(description="Only from this time on.")] = None,
    until: Annotated[Moment | None, Query(description="Only before this time.")] = None,
) -> Period:
    return Period(since=since, until=until)


WantedPeriod = Annotated[Period, Depends(_period)]


def _filter(  # noqa: PLR0917  FastAPI passes them by name
    period: WantedPeriod,
    by: Annotated[str | None, Query(max_length=200, description="Only what this person or token caused.")] = None,
    types: EventTypes = [],  # noqa: B006  FastAPI copies it
    loudness: Severities = [],  # noqa: B006
    runs: RunIds = [],  # noqa: B006
    batches: BatchIds = [],  # noqa: B006
    *,
    errors: Annotated[bool, Query(description="Only errors, whoever caused them.")] = False,
    tools: Annotated[bool, Query(description="Only events of tools, whoever caused them.")] = False,
    everything: Annotated[bool, Query(description="Also what nobody decided, such as finished nodes.")] = False,
) -> AuditFilter:
    return AuditFilter.of(
        types=event_types(types),
        severities=severities(loudness),
        streams=[*runs, *batches],
        has_runs=bool(runs),
        period=period,
        by=by,
        errors=errors,
        tools=tools,
        everything=everything,
    )


@router.get(
    "",
    operation_id="audit_list",
    summary="List who changed what",
    response_model=AuditListAnswer,
    responses=answers(InvalidInput),
)
def list_audit(
    parts: Parts,
    caller: Viewer,
    wanted: Annotated[AuditFilter, Depends(_filter)],
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Response:
    """Return what people and tokens decided, newest first.

    Work that follows from a decision is left out: finished nodes, calls, and the runs that a batch made. `type` names
    it, `errors` and `tools` show a part of it, and `everything` shows all.
    """
    before = None if cursor is None else min(int(cursor), _LARGEST)
    page = parts.services.queries.audit_page(wanted, before=before, limit=limit)
    faults = list(page.faults)
    for _ in range(_MOST_PAGES):
        if page.events or page.before is None:
            break
        page = parts.services.queries.audit_page(wanted, before=page.before, limit=limit)
        faults += page.faults
    return Response(json.dumps(_page_data(page, faults)), media_type="application/json")


@router.get("/summary", operation_id="audit_summarise", summary="Count events by type, severity and person")
def summarise(parts: Parts, caller: Viewer, period: WantedPeriod) -> AuditSummaryAnswer:
    """Return how often what happened in a period, and who caused how much."""
    return AuditSummaryAnswer.of(parts.services.queries.audit_counts(period))


@router.get("/tools", operation_id="audit_list_tools", summary="Show how tools were used")
def list_tools(parts: Parts, caller: Viewer, period: WantedPeriod) -> ListAnswer[ToolUseAnswer]:
    """Return calls, failures and durations of every tool that was called in a period."""
    return ListAnswer(items=[ToolUseAnswer.of(use) for use in parts.services.queries.tool_use(period)])


@router.get("/verify", operation_id="audit_verify", summary="Check that nobody has changed the log")
def verify(
    parts: Parts,
    caller: Viewer,
    stream: Annotated[
        str | None, Query(max_length=200, description="An execution, a batch or `system`; by default the whole log.")
    ] = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="How many events to check at most.")] = 5_000,
) -> ChainCheckAnswer:
    """Check the next events against their hashes, and the hashes against those before them."""
    after = 0 if cursor is None else min(int(cursor), _LARGEST)
    return ChainCheckAnswer.of(parts.services.queries.check_chain(stream, after=after, limit=limit))


def _page_data(page: AuditPage, faults: list[str]) -> dict[str, Any]:
    """Return the data of an AuditListAnswer. It is not made of one: texts in events may not be valid Unicode."""
    following = None if page.before is None else str(page.before)
    return {"items": [_entry_data(event) for event in page.events], "next": following, "faults": faults}


def _entry_data(event: RecordedEvent) -> dict[str, Any]:
    return {
        "by": who_caused(event),
        "position": event.position,
        "type": event.type.value,
        "severity": event.severity.value,
        "stream": event.stream,
        "sequence": event.sequence,
        "at": event.at.isoformat(),
        "hash": event.hash.hex(),
        "data": dict(event.data),
    }
