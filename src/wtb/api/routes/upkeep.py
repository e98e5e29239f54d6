"""Upkeep: prune the store, and check a part of it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body

from wtb.api.access import Admin, Viewer
from wtb.api.models.upkeep import (
    DoctorAnswer,
    FaultAnswer,
    LightCheckAnswer,
    LightCheckRequest,
    PruneAnswer,
    PruneRequest,
)
from wtb.api.parts import Parts
from wtb.api.problems import answers
from wtb.domain.errors import ExecutionNotFound
from wtb.domain.ids import ExecutionId

router = APIRouter(prefix="/api/v1/upkeep", tags=["upkeep"])


@router.post("/prune", operation_id="upkeep_prune", summary="Prune the store", responses=answers(ExecutionNotFound))
def prune(parts: Parts, caller: Admin, body: Annotated[PruneRequest | None, Body()] = None) -> PruneAnswer:
    """Count what `wtb prune` would delete, or delete it with `"dry_run": false`, within some seconds."""
    body = body or PruneRequest()
    run = None if body.run is None else ExecutionId(body.run)
    report = parts.server_services.pruning.prune(
        dry_run=body.dry_run, workflow=body.workflow, run=run, by=caller.name, seconds=body.seconds
    )
    return PruneAnswer.of(report, dry_run=body.dry_run)


@router.get("/doctor", operation_id="upkeep_get_last_check", summary="Show what light checks have found")
def last_check(parts: Parts, caller: Viewer) -> DoctorAnswer:
    """Return the faults that the background job `doctor` has found in this round."""
    job = parts.server_services.background.get("doctor").job
    notes = {} if job is None else job.notes
    return DoctorAnswer(
        rounds=notes.get("rounds", 0),
        last_checked_at=None if job is None else job.last_ended_at,
        faults=[FaultAnswer.stored(fault) for fault in notes.get("faults", [])],
    )


@router.post("/doctor", operation_id="upkeep_check", summary="Check a part of the store now")
def check(parts: Parts, caller: Admin, body: Annotated[LightCheckRequest | None, Body()] = None) -> LightCheckAnswer:
    """Verify events and runs from the beginning of the store, for some seconds. It changes nothing."""
    seconds = (body or LightCheckRequest()).seconds
    return LightCheckAnswer.of(parts.server_services.light_check.check({}, seconds=seconds))
