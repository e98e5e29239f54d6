"""Health and readiness, for whoever watches the server, and its version."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter

from wtb.api.access import Viewer
from wtb.api.models.health import HealthAnswer, ReadinessAnswer, VersionAnswer
from wtb.api.parts import Parts
from wtb.api.problems import answers
from wtb.domain.errors import SchemaOutdated, SchemaTooNew, StorageUnavailable

router = APIRouter(tags=["server"])


@router.get("/healthz", operation_id="server_check_health", summary="Say that the server answers")
async def health() -> HealthAnswer:
    """Answer at once, without a look at the database: an orchestrator restarts a server that does not answer."""
    return HealthAnswer()


@router.get(
    "/readyz",
    operation_id="server_check_readiness",
    summary="Say whether the server can work",
    responses=answers(StorageUnavailable, SchemaOutdated, SchemaTooNew),
)
def readiness(parts: Parts) -> ReadinessAnswer:
    """Look at the database: it answers, and nobody has changed its tables under this server."""
    parts.readiness.require()
    return ReadinessAnswer()


@router.get("/api/v1/version", operation_id="server_get_version", summary="Show the version of the server")
def show_version(parts: Parts, caller: Viewer) -> VersionAnswer:
    """Return the version of wtb, and the revision of the database that it needs."""
    return VersionAnswer(version=version("workflow-test-bench"), schema_revision=parts.services.check_schema())
