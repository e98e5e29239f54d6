"""Rollbacks: plan one, carry out exactly that plan, undo it, finish or give up one that failed."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body

from wtb.api.access import Operator
from wtb.api.command_answers import (
    ACCEPTED,
    MAY_FAIL,
    Call,
    VersionedCall,
    Wait,
    accepted_answer,
    result_of,
    run_change,
)
from wtb.api.models.parameters import RunId
from wtb.api.models.run_changes import (
    InDoubtRequest,
    PlanRequest,
    RollbackPlanAnswer,
    RollbackRequest,
    RunChange,
)
from wtb.api.problems import answers
from wtb.domain.commands import CommandKind
from wtb.domain.errors import (
    CheckpointNotFound,
    PreconditionRequired,
    VersionMismatch,
    WorkflowNotServed,
)

router = APIRouter(prefix="/api/v1/executions/{execution_id}", tags=["executions"])

_MAY_FAIL = (*MAY_FAIL, WorkflowNotServed)
_PLANNED: dict[int | str, dict[str, Any]] = {202: {**ACCEPTED[202], "model": RollbackPlanAnswer}}


@router.post(
    "/rollback/plan",
    operation_id="executions_plan_rollback",
    summary="Show what a rollback would do",
    responses=_PLANNED | answers(*_MAY_FAIL, CheckpointNotFound),
)
async def plan_rollback(
    call: Call, caller: Operator, execution_id: RunId, body: PlanRequest, wait_s: Wait = 30
) -> RollbackPlanAnswer:
    """Return the plan and change nothing. Send its ETag as If-Match to carry out exactly this plan."""

    def prepare() -> dict[str, Any]:
        return call.checked(execution_id, "rollback")

    kind, given = CommandKind.RUN_PLAN_ROLLBACK, body.model_dump()
    command = await call.carry_out(caller, kind, given, prepare, subject=execution_id, wait_s=wait_s)
    result = result_of(command)
    if "plan" in result:
        call.response.headers["ETag"] = f'"{result["version"]}-{result["digest"]}"'
    return RollbackPlanAnswer(command=accepted_answer(command), plan=result.get("plan"))


@router.post(
    "/rollback",
    operation_id="executions_rollback",
    summary="Roll a run back",
    responses=ACCEPTED | answers(*_MAY_FAIL, CheckpointNotFound, PreconditionRequired, VersionMismatch),
)
async def rollback(
    call: VersionedCall, caller: Operator, execution_id: RunId, body: RollbackRequest, wait_s: Wait = 30
) -> RunChange:
    """Go back to a checkpoint: state, files and effects of tools together. If-Match is the ETag of the plan."""

    def prepare() -> dict[str, Any]:
        wanted = call.wanted("the plan (POST …/rollback/plan)")
        if wanted.digest is None:
            raise PreconditionRequired("a rollback carries out a plan that you have seen: send the ETag of the plan")
        return {**call.checked(execution_id, "rollback", wanted), "digest": wanted.digest}

    kind, given = CommandKind.RUN_ROLLBACK, body.model_dump()
    return run_change(call, await call.carry_out(caller, kind, given, prepare, subject=execution_id, wait_s=wait_s))


@router.post(
    "/rollback/continue",
    operation_id="executions_continue_rollback",
    summary="Finish a rollback that failed",
    responses=ACCEPTED | answers(*_MAY_FAIL),
)
async def continue_rollback(
    call: Call,
    caller: Operator,
    execution_id: RunId,
    body: Annotated[InDoubtRequest | None, Body()] = None,
    wait_s: Wait = 30,
) -> RunChange:
    """Finish a rollback or a redo that failed or was killed."""

    def prepare() -> dict[str, Any]:
        return call.checked(execution_id, "rollback --continue")

    kind, given = CommandKind.RUN_CONTINUE_ROLLBACK, (body or InDoubtRequest()).model_dump(exclude_none=True)
    return run_change(call, await call.carry_out(caller, kind, given, prepare, subject=execution_id, wait_s=wait_s))


@router.post(
    "/rollback/abandon",
    operation_id="executions_abandon_rollback",
    summary="Give up a rollback that failed",
    responses=ACCEPTED | answers(*_MAY_FAIL),
)
async def abandon_rollback(
    call: Call,
    caller: Operator,
    execution_id: RunId,
    body: Annotated[InDoubtRequest | None, Body()] = None,
    wait_s: Wait = 30,
) -> RunChange:
    """Give up a rollback that failed: the run stays where it was, and what was undone stays undone."""

    def prepare() -> dict[str, Any]:
        return call.checked(execution_id, None)

    kind, given = CommandKind.RUN_ABANDON_ROLLBACK, (body or InDoubtRequest()).model_dump(exclude_none=True)
    return run_change(call, await call.carry_out(caller, kind, given, prepare, subject=execution_id, wait_s=wait_s))


@router.post(
    "/redo",
    operation_id="executions_redo",
    summary="Undo the last rollback",
    responses=ACCEPTED | answers(*_MAY_FAIL, PreconditionRequired, VersionMismatch),
)
async def redo(call: VersionedCall, caller: Operator, execution_id: RunId, wait_s: Wait = 30) -> RunChange:
    """Go forward to where the last rollback started. If-Match is the ETag of the run."""

    def prepare() -> dict[str, Any]:
        return call.checked(execution_id, "redo", call.wanted())

    kind = CommandKind.RUN_REDO
    return run_change(call, await call.carry_out(caller, kind, {}, prepare, subject=execution_id, wait_s=wait_s))
