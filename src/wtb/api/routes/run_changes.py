"""Everything that changes runs, except rollbacks: start, pause, resume, stop, fork, name, delete."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path

from wtb.api.access import Admin, Operator
from wtb.api.command_answers import ACCEPTED, MAY_FAIL, Call, VersionedCall, Wait, run_change
from wtb.api.models.parameters import RunId
from wtb.api.models.run_changes import (
    CheckpointRequest,
    ForkRequest,
    RequestedAnswer,
    ResumeRequest,
    RunChange,
    StartRequest,
)
from wtb.api.parts import Parts
from wtb.api.problems import answers
from wtb.domain.commands import CommandKind
from wtb.domain.errors import (
    AlreadyExists,
    CheckpointNotFound,
    Conflict,
    ExecutionNotFound,
    InvalidInput,
    InvalidTransition,
    PreconditionRequired,
    VersionMismatch,
    WorkflowNotFound,
    WorkflowNotServed,
)
from wtb.domain.ids import ExecutionId

router = APIRouter(prefix="/api/v1/executions")


@router.post(
    "",
    operation_id="executions_create",
    summary="Start a run",
    tags=["executions"],
    status_code=201,
    responses=ACCEPTED | answers(*MAY_FAIL, AlreadyExists, WorkflowNotServed, WorkflowNotFound),
)
async def start(call: Call, caller: Operator, body: StartRequest, wait_s: Wait = 0) -> RunChange:
    """Start a run of a served workflow, or only create it. Its id is in the answer; it goes on if you do not wait."""
    given = {**body.model_dump(exclude={"options"}, exclude_none=True), "options": body.options.given()}

    def prepare() -> dict[str, Any]:
        call.server.served.find(body.workflow)
        return {}

    new: dict[str, Any] = {"subject": body.run_id, "is_new_run": True, "status": HTTPStatus.CREATED}
    return run_change(call, await call.carry_out(caller, CommandKind.RUN_START, given, prepare, wait_s=wait_s, **new))


@router.post(
    "/{execution_id}/pause",
    operation_id="executions_pause",
    summary="Pause a run",
    tags=["executions"],
    status_code=202,
    responses=answers(ExecutionNotFound, InvalidTransition, Conflict, InvalidInput),
)
def pause(parts: Parts, caller: Operator, execution_id: RunId) -> RequestedAnswer:
    """Ask a run to pause after its current step, wherever it runs. If its process is gone, it is paused at once."""
    parts.services.controller.request(ExecutionId(execution_id), "pause", by=caller.name)
    return RequestedAnswer(id=execution_id, requested="pause")


@router.post(
    "/{execution_id}/stop",
    operation_id="executions_stop",
    summary="Stop a run for good",
    tags=["executions"],
    status_code=202,
    responses=answers(ExecutionNotFound, InvalidTransition, Conflict, InvalidInput),
)
def stop(parts: Parts, caller: Operator, execution_id: RunId) -> RequestedAnswer:
    """Ask a run to stop after its current step, wherever it runs. One that waits is stopped at once."""
    parts.services.controller.request(ExecutionId(execution_id), "stop", by=caller.name)
    return RequestedAnswer(id=execution_id, requested="stop")


@router.post(
    "/{execution_id}/resume",
    operation_id="executions_resume",
    summary="Go on with a run",
    tags=["executions"],
    responses=ACCEPTED | answers(*MAY_FAIL, WorkflowNotServed, PreconditionRequired, VersionMismatch),
)
async def resume(
    call: VersionedCall,
    caller: Operator,
    execution_id: RunId,
    body: Annotated[ResumeRequest | None, Body()] = None,
    wait_s: Wait = 0,
) -> RunChange:
    """Go on until the run ends or pauses again; first edit its state, or answer its question, if you want.

    With `update`, If-Match is required: the ETag of the run whose state you have seen.
    """
    body = body or ResumeRequest()

    def prepare() -> dict[str, Any]:
        is_named = body.update is not None or call.if_match is not None
        return call.checked(execution_id, "resume", call.wanted() if is_named else None)

    kind, given = CommandKind.RUN_RESUME, body.given()
    return run_change(call, await call.carry_out(caller, kind, given, prepare, subject=execution_id, wait_s=wait_s))


@router.post(
    "/{execution_id}/fork",
    operation_id="executions_fork",
    summary="Fork a run",
    tags=["executions"],
    status_code=201,
    responses=ACCEPTED | answers(*MAY_FAIL, AlreadyExists, WorkflowNotServed, CheckpointNotFound),
)
async def fork(
    call: Call,
    caller: Operator,
    execution_id: RunId,
    body: Annotated[ForkRequest | None, Body()] = None,
    wait_s: Wait = 30,
) -> RunChange:
    """Make a new run that begins at a checkpoint of this one, which stays as it is. Resume the new run to go on."""
    body = body or ForkRequest()
    given = {**body.given(), "run": execution_id}
    verb = "fork" if body.update is not None or body.input is not None or body.variants else None

    def prepare() -> dict[str, Any]:
        return call.checked(execution_id, verb)

    new: dict[str, Any] = {"subject": body.run_id, "is_new_run": True, "status": HTTPStatus.CREATED}
    return run_change(call, await call.carry_out(caller, CommandKind.RUN_FORK, given, prepare, wait_s=wait_s, **new))


@router.post(
    "/{execution_id}/checkpoints",
    operation_id="checkpoints_create",
    summary="Name the current position of a run",
    tags=["checkpoints"],
    status_code=201,
    responses=ACCEPTED | answers(*MAY_FAIL, AlreadyExists),
)
async def name_checkpoint(
    call: Call, caller: Operator, execution_id: RunId, body: CheckpointRequest, wait_s: Wait = 30
) -> RunChange:
    """Name the position of a run that waits or has ended, to go back to it or fork from it by name."""
    given, status = body.model_dump(), HTTPStatus.CREATED

    def prepare() -> dict[str, Any]:
        return call.checked(execution_id, None)

    command = await call.carry_out(
        caller, CommandKind.RUN_CHECKPOINT, given, prepare, subject=execution_id, wait_s=wait_s, status=status
    )
    return run_change(call, command)


@router.delete(
    "/{execution_id}",
    operation_id="executions_delete",
    summary="Delete a run",
    tags=["executions"],
    status_code=204,
    responses=answers(ExecutionNotFound, InvalidTransition, Conflict, InvalidInput),
)
def delete_run(parts: Parts, caller: Admin, execution_id: RunId) -> None:
    """Delete a run that no process runs, with its checkpoints and files. Forks and the effects of tools stay."""
    parts.services.run_editor.delete_run(ExecutionId(execution_id), by=caller.name)


@router.delete(
    "/{execution_id}/checkpoints/{target}",
    operation_id="checkpoints_delete",
    summary="Delete a checkpoint",
    tags=["checkpoints"],
    status_code=204,
    responses=answers(ExecutionNotFound, CheckpointNotFound, InvalidTransition, Conflict, InvalidInput),
)
def delete_checkpoint(
    parts: Parts,
    caller: Admin,
    execution_id: RunId,
    target: Annotated[str, Path(description="The id, name or step of a checkpoint.", max_length=200)],
) -> None:
    """Delete one checkpoint; those after it stay whole."""
    parts.services.run_editor.delete_checkpoint(ExecutionId(execution_id), target, by=caller.name)
