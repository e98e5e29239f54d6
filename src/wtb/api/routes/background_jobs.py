"""Background jobs: when they ran, when they run next, and a run on request."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from wtb.api.access import Admin, Viewer
from wtb.api.models.background_jobs import BackgroundJobAnswer
from wtb.api.models.base import ListAnswer
from wtb.api.parts import Parts
from wtb.api.problems import answers
from wtb.domain.errors import BackgroundJobNotFound

router = APIRouter(prefix="/api/v1/background-jobs", tags=["upkeep"])

Name = Annotated[str, Path(max_length=100, description="The name of the job.", examples=["retention"])]


@router.get("", operation_id="background_jobs_list", summary="List the background jobs")
def list_jobs(parts: Parts, caller: Viewer) -> ListAnswer[BackgroundJobAnswer]:
    """Return all jobs by name: when each ran last, for how long, with what result, and when it runs next."""
    return ListAnswer(items=[BackgroundJobAnswer.of(view) for view in parts.server_services.background.list_jobs()])


@router.post(
    "/{name}/run",
    status_code=202,
    operation_id="background_jobs_run",
    summary="Run a background job now",
    responses=answers(BackgroundJobNotFound),
)
def run_job(parts: Parts, caller: Admin, name: Name) -> BackgroundJobAnswer:
    """Ask for a run ahead of time, also of a job that is turned off. It begins within a second, in the background."""
    return BackgroundJobAnswer.of(parts.server_services.background.request(name, by=caller.name))
