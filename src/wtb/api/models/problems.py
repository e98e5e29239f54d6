"""The shape of every answer that is not a success (RFC 9457)."""

from __future__ import annotations

from pydantic import Field

from wtb.api.models.base import AnswerModel
from wtb.api.models.figures import PlainText


class Problem(AnswerModel):
    """Why a request was not carried out. Programs decide by `code`, people read `detail`."""

    type: str = Field(examples=["urn:wtb:problem:execution-not-found"])
    title: str = Field(examples=["Execution not found"])
    status: int = Field(examples=[404])
    detail: PlainText = Field(description="What happened, to what, and what to do.")
    code: str = Field(description="A stable name of the problem.", examples=["execution-not-found"])
    faults: list[PlainText] | None = Field(
        default=None, description="Everything that is wrong, if it is more than one thing."
    )
    command: PlainText | None = Field(default=None, description="A command that does it instead.")
