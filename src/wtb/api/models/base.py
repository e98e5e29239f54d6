"""The base classes of all requests and answers, and the shape of lists."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Item = TypeVar("Item")


class RequestModel(BaseModel):
    """The body of a request. A field that it does not know is an error, so that a misspelt one is noticed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def example(**body: Any) -> ConfigDict:
    """Return the `model_config` of a body with an example of it, for the OpenAPI description."""
    return ConfigDict(json_schema_extra={"examples": [body]})


class AnswerModel(BaseModel):
    """The body of an answer."""

    model_config = ConfigDict(frozen=True)


class ListAnswer(AnswerModel, Generic[Item]):
    """One page of a list."""

    items: list[Item]
    next: str | None = Field(default=None, description="The `cursor` of the next page; null if this is the last one.")
