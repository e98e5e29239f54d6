"""Workflows: list them, show their definition and their graph, check them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from wtb.api.access import Operator, Viewer
from wtb.api.command_answers import Commanding
from wtb.api.models.base import ListAnswer
from wtb.api.models.workflows import CheckAnswer, DefinitionAnswer, GraphAnswer, WorkflowAnswer
from wtb.api.parts import Parts
from wtb.api.problems import answers, problem_of
from wtb.application.queries.views import WorkflowView
from wtb.application.server.command_errors import error_from
from wtb.application.server.command_server import CommandServer
from wtb.application.server.served_workflows import ServedWorkflow
from wtb.bootstrap import Services
from wtb.domain.errors import InvalidInput, MissingLibrary, WorkerFailed, WorkflowNotFound, WorkflowNotServed

router = APIRouter(prefix="/api/v1/workflows", tags=["workflows"])

WorkflowName = Annotated[str, Path(description="The name of a workflow.", max_length=200)]


@router.get("", operation_id="workflows_list", summary="List workflows", responses=answers(WorkerFailed))
def list_workflows(parts: Parts, server: Commanding, caller: Viewer) -> ListAnswer[WorkflowAnswer]:
    """Return the workflows that this server may run, then the others that have runs, by name."""
    recorded = {view.name: view for view in parts.services.queries.list_workflows()}
    served = {each.name or each.reference: each for each in server.served.list_served()}.values()
    first = [_listed(each, recorded.pop(each.name, None) if each.name else None) for each in served]
    rest = [_recorded(view) for _, view in sorted(recorded.items())]
    return ListAnswer(items=[*first, *rest])


@router.get(
    "/{name}",
    operation_id="workflows_get",
    summary="Show the definition of a workflow",
    responses=answers(WorkflowNotFound, InvalidInput, MissingLibrary, WorkerFailed),
)
def get_workflow(parts: Parts, server: Commanding, caller: Viewer, name: WorkflowName) -> DefinitionAnswer:
    """Return a workflow as data: as its code is now if it is served, otherwise as its last run used it."""
    return _definition(parts.services, server, name)


@router.get(
    "/{name}/graph",
    operation_id="workflows_get_graph",
    summary="Show the graph of a workflow",
    responses=answers(WorkflowNotFound, InvalidInput, MissingLibrary, WorkerFailed),
)
def get_graph(parts: Parts, server: Commanding, caller: Viewer, name: WorkflowName) -> GraphAnswer:
    """Return the nodes with their variants, and the edges with their conditions."""
    return GraphAnswer.of(_definition(parts.services, server, name))


@router.post(
    "/{name}/check",
    operation_id="workflows_check",
    summary="Check that a workflow can run",
    responses=answers(WorkflowNotFound, WorkflowNotServed, InvalidInput, MissingLibrary, WorkerFailed),
)
def check_workflow(server: Commanding, caller: Operator, name: WorkflowName) -> CheckAnswer:
    """Load the code of a served workflow as it is now, and return everything that is wrong with it."""
    found = server.served.find(name)
    return CheckAnswer.model_validate(server.dispatcher.ask({"check": found.reference}))


def _listed(served: ServedWorkflow, view: WorkflowView | None) -> WorkflowAnswer:
    known = WorkflowAnswer(name=served.name, served=True) if view is None else _recorded(view)
    problem = None if served.error is None else problem_of(error_from(served.error))
    return known.model_copy(update={"served": True, "problem": problem})


def _recorded(view: WorkflowView) -> WorkflowAnswer:
    return WorkflowAnswer(
        name=view.name,
        served=False,
        versions=list(view.versions),
        runs=view.runs,
        first_run_at=view.first_run_at,
        last_run_at=view.last_run_at,
    )


def _definition(services: Services, server: CommandServer, name: str) -> DefinitionAnswer:
    try:
        found = server.served.find(name)
    except WorkflowNotServed:
        (row,) = services.queries.list_runs(workflow=name, limit=1)
        stored = services.masker.data(services.queries.definition(row.execution.workflow_id))
        return DefinitionAnswer(name=name, served=False, definition=stored)
    return DefinitionAnswer(name=name, served=True, definition=dict(found.definition or {}))
