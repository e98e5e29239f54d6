"""Start, plan, resume and retry batches; evaluate finished runs. Workers do it, with the user's code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool

from wtb.api.access import Operator, Viewer
from wtb.api.command_answers import Call, CommandCall, Commanding, Wait, accepted_answer, result_of
from wtb.api.models.base import AnswerModel, ListAnswer
from wtb.api.models.batch_changes import (
    BatchChange,
    BatchRequest,
    BatchTestAnswer,
    EvaluationAnswer,
    EvaluationRequest,
    PlanAnswer,
)
from wtb.api.models.figures import plain
from wtb.api.models.parameters import BatchName
from wtb.api.parts import Parts, ServerParts
from wtb.api.problems import answers, problem_of
from wtb.application.server.command_errors import error_from
from wtb.application.server.served_batches import ServedBatch
from wtb.domain.access import Caller
from wtb.domain.commands import Command, CommandKind
from wtb.domain.errors import (
    BatchNotFound,
    ExecutionNotFound,
    IdempotencyMismatch,
    InvalidInput,
    WorkerFailed,
    WorkflowNotFound,
    WorkflowNotServed,
)

router = APIRouter(prefix="/api/v1")

_MAY_FAIL = (BatchNotFound, InvalidInput, IdempotencyMismatch, WorkerFailed, WorkflowNotServed, WorkflowNotFound)


def _accepted(model: type[AnswerModel]) -> dict[int | str, dict[str, Any]]:
    return {202: {"model": model, "description": "Accepted; ask for the command"}}


@router.get(
    "/batch-tests",
    operation_id="batch_tests_list",
    summary="List the batches that this server can run",
    tags=["batches"],
    responses=answers(WorkerFailed),
)
def list_batch_tests(server: Commanding, caller: Viewer) -> ListAnswer[BatchTestAnswer]:
    """Return the configured batches: those of the settings, and those that `wtb serve` was given. `batch` runs one."""
    return ListAnswer(items=[_batch_test(each) for each in server.batches.list_served()])


def _batch_test(served: ServedBatch) -> BatchTestAnswer:
    problem = None if served.error is None else problem_of(error_from(served.error))
    return BatchTestAnswer(name=served.name, workflow=served.workflow, problem=problem)


@router.post(
    "/batches",
    operation_id="batches_create",
    summary="Run a batch",
    tags=["batches"],
    responses=_accepted(BatchChange) | answers(*_MAY_FAIL),
)
async def start_batch(call: Call, caller: Operator, body: BatchRequest, wait_s: Wait = 0) -> BatchChange:
    """Run a configured batch, or inline cases over a served workflow. Results of its last run are kept if they fit."""
    return _change(await _asked(call, caller, CommandKind.BATCH_START, body, wait_s))


@router.post(
    "/batches/plan",
    operation_id="batches_plan",
    summary="Say what running a batch would do",
    tags=["batches"],
    responses=_accepted(PlanAnswer) | answers(*_MAY_FAIL),
)
async def plan_batch(call: Call, caller: Operator, body: BatchRequest, wait_s: Wait = 30) -> PlanAnswer:
    """Count the jobs and node runs that would be kept, shared and executed. Nothing runs."""
    command = await _asked(call, caller, CommandKind.BATCH_PLAN, body, wait_s)
    return PlanAnswer.model_validate({"command": accepted_answer(command), "plan": result_of(command).get("plan")})


async def _asked(call: CommandCall, caller: Caller, kind: CommandKind, body: BatchRequest, wait_s: float) -> Command:
    name, given = body.batch or body.name or body.workflow or "", body.given()
    return await call.carry_out(caller, kind, given, lambda: _found(call, given), subject=name, wait_s=wait_s)


@router.post(
    "/batches/{batch_id}/resume",
    operation_id="batches_resume",
    summary="Go on with a batch",
    tags=["batches"],
    responses=_accepted(BatchChange) | answers(*_MAY_FAIL),
)
async def resume_batch(parts: Parts, call: Call, caller: Operator, batch: BatchName, wait_s: Wait = 0) -> BatchChange:
    """Run the jobs of a batch that are missing, failed or out of date. Its code is loaded as it is now."""
    return await _again(parts, call, caller, batch, retry=False, wait_s=wait_s)


@router.post(
    "/batches/{batch_id}/retry",
    operation_id="batches_retry",
    summary="Retry what failed in a batch",
    tags=["batches"],
    responses=_accepted(BatchChange) | answers(*_MAY_FAIL),
)
async def retry_batch(parts: Parts, call: Call, caller: Operator, batch: BatchName, wait_s: Wait = 0) -> BatchChange:
    """Run failed jobs and failed evaluators again. It fails with `invalid-input` if nothing has failed."""
    return await _again(parts, call, caller, batch, retry=True, wait_s=wait_s)


async def _again(
    parts: ServerParts, call: CommandCall, caller: Caller, batch: str, *, retry: bool, wait_s: float
) -> BatchChange:
    name = (await run_in_threadpool(parts.services.queries.batch_record, batch)).name

    def prepare() -> dict[str, Any]:
        asked = _last_request(call, name) or {"batch": name}
        return {**asked, **_found(call, asked)}

    command = await call.carry_out(
        caller, CommandKind.BATCH_START, {"retry": True} if retry else {}, prepare, subject=name, wait_s=wait_s
    )
    return _change(command)


def _last_request(call: CommandCall, name: str) -> dict[str, Any] | None:
    """Return the request that last ran a batch of this name on any server of this store, if it is kept and inline."""
    for command in call.server.commands.list_commands(kinds=(CommandKind.BATCH_START,), subject=name, limit=1):
        if "cases" in command.arguments:
            return {key: value for key, value in command.arguments.items() if key != "retry"}
    return None


def _found(call: CommandCall, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Check that the server may run it, and return where a configured batch is."""
    if "batch" not in asked:
        call.server.served.find(asked["workflow"])
        return {}
    return {"reference": call.server.batches.find(asked["batch"]).reference}


def _change(command: Command) -> BatchChange:
    return BatchChange.model_validate({"command": accepted_answer(command), "batch": result_of(command).get("batch")})


@router.post(
    "/evaluations",
    operation_id="evaluations_create",
    summary="Score finished runs",
    tags=["evaluations"],
    responses=_accepted(EvaluationAnswer) | answers(*_MAY_FAIL, ExecutionNotFound),
)
async def evaluate(
    parts: Parts, call: Call, caller: Operator, body: EvaluationRequest, wait_s: Wait = 30
) -> EvaluationAnswer:
    """Run evaluators over finished runs, or over all runs of a batch; the runs are not made again."""
    queries, given = parts.services.queries, body.model_dump(mode="json", exclude_none=True)

    def prepare() -> dict[str, Any]:
        if body.batch is not None:
            workflow = queries.batch_record(body.batch).workflow_name
        else:
            workflow = {queries.execution(run).workflow_name for run in body.runs or ()}.pop()
        try:
            return {"workflow": call.server.served.find(workflow).name}
        except (WorkflowNotServed, WorkflowNotFound):  # then its states are scored without its classes
            return {}

    command = await call.carry_out(caller, CommandKind.EVALUATION_START, given, prepare, wait_s=wait_s)
    result = result_of(command)
    scores, scored = plain(result.get("scores")), result.get("batch")
    return EvaluationAnswer.model_validate({"command": accepted_answer(command), "scores": scores, "batch": scored})
