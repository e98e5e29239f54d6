"""Health, readiness and version."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from wtb.api.models.base import AnswerModel


class HealthAnswer(AnswerModel):
    """The server answers."""

    status: Literal["ok"] = "ok"


class ReadinessAnswer(AnswerModel):
    """The server can work: its database answers, and has the tables that it needs."""

    status: Literal["ready"] = "ready"


class VersionAnswer(AnswerModel):
    """Which version answers."""

    version: str = Field(description="The version of wtb.", examples=["0.1.0"])
    schema_revision: str | None = Field(description="The revision of the database's tables.", examples=["0020"])
