"""Baselines, and gates that judge a batch against one."""

from __future__ import annotations

from fastapi import APIRouter

from wtb.api.access import Admin, Operator, Viewer
from wtb.api.models.base import ListAnswer
from wtb.api.models.baselines import BaselineAnswer, BaselineRequest, GateAnswer, GateRequest
from wtb.api.models.parameters import BaselineName
from wtb.api.parts import Parts
from wtb.api.problems import answers
from wtb.api.results import result_of, saved_result
from wtb.domain.errors import BaselineNotFound, BatchNotFound, DamagedData, InvalidInput
from wtb.domain.values import showing

router = APIRouter(prefix="/api/v1", tags=["baselines"])


@router.get("/baselines", operation_id="baselines_list", summary="List baselines", responses=answers(DamagedData))
def list_baselines(parts: Parts, caller: Viewer) -> ListAnswer[BaselineAnswer]:
    """Return all baselines, sorted by name."""
    return ListAnswer(items=[BaselineAnswer.of(each) for each in parts.services.queries.list_baselines()])


@router.get(
    "/baselines/{name}",
    operation_id="baselines_get",
    summary="Show a baseline",
    responses=answers(BaselineNotFound, DamagedData),
)
def get_baseline(parts: Parts, caller: Viewer, name: BaselineName) -> BaselineAnswer:
    """Return a baseline. Its results are those of the batch `baseline/NAME` in a comparison."""
    return BaselineAnswer.of(parts.services.queries.baseline(name).baseline)


@router.post(
    "/baselines",
    operation_id="baselines_set",
    summary="Save the scores of a combination as a baseline",
    status_code=201,
    responses=answers(BatchNotFound, InvalidInput, DamagedData),
)
def set_baseline(parts: Parts, caller: Operator, request: BaselineRequest) -> BaselineAnswer:
    """Copy stored results under a name, which replaces a baseline of that name. The copy does not change later."""
    queries = parts.services.queries
    batches = [queries.batch_record(each) for each in request.batches]
    saved = parts.services.baselines.save(request.name, batches, request.combination, by=caller.name)
    return BaselineAnswer.of(saved)


@router.delete(
    "/baselines/{name}",
    operation_id="baselines_delete",
    summary="Delete a baseline",
    status_code=204,
    responses=answers(BaselineNotFound),
)
def delete_baseline(parts: Parts, caller: Admin, name: BaselineName) -> None:
    """Delete a baseline with its saved results. The batches that it came from stay."""
    parts.services.baselines.delete(name, by=caller.name)


@router.post(
    "/gates",
    operation_id="gates_judge",
    summary="Judge a batch against a baseline",
    responses=answers(BatchNotFound, BaselineNotFound, InvalidInput, DamagedData),
)
def judge_gate(parts: Parts, caller: Viewer, request: GateRequest) -> GateAnswer:
    """Say whether a combination has become worse than a baseline, from stored scores. Nothing is changed."""
    from wtb.gates import judge  # numpy and scipy take half a second to load

    with showing():
        baseline, kept = saved_result(parts, request.baseline)
        found = judge(
            baseline,
            kept,
            result_of(parts, request.batch),
            combination=request.combination,
            metric=request.metric,
            max_drop=request.max_drop,
            max_errors=request.max_errors,
            non_inferior=request.non_inferior,
        )
        return GateAnswer.of(found)
