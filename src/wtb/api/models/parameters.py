"""Parameters that several routes take: ids in the path, pages, and places in a run."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Path, Query
from pydantic import AwareDatetime, BeforeValidator

from wtb.domain.errors import InvalidInput

_TEXT = r"^[^\x00-\x1f\x7f]+$"
"""Control characters are in no id and in no name."""

RunId = Annotated[str, Path(alias="execution_id", description="The id of a run.", max_length=200, pattern=_TEXT)]
BatchName = Annotated[
    str,
    Path(
        alias="batch_id",
        description="The id of a batch, or its name: then the latest one.",
        max_length=500,
        pattern=_TEXT,
    ),
]
BaselineName = Annotated[str, Path(description="The name of a baseline.", max_length=500, pattern=_TEXT)]
Target = Annotated[
    str,
    Path(
        description="A checkpoint: a step, a node (its latest visit), `node#2`, a name, or the beginning of an id.",
        max_length=500,
        pattern=_TEXT,
    ),
]
AtQuery = Annotated[
    str | None,
    Query(
        description="A checkpoint, as in the path of a checkpoint; without it the head.", max_length=500, pattern=_TEXT
    ),
]
FilePath = Annotated[str, Path(description="The path of a file, as the list of files has it.")]
IdempotencyKey = Annotated[
    str | None, Header(description="A new text for each new request: sent again, it is carried out once.")
]
Cursor = Annotated[
    str | None, Query(description="The `next` of the page before; without it the first page.", max_length=2_000)
]
Limit = Annotated[int, Query(description="The most items of a page.", ge=1, le=500)]
EventTypes = Annotated[
    list[str], Query(alias="type", description="Only these types, such as `node.failed`, or all of a noun: `node`.")
]
Severities = Annotated[list[str], Query(alias="severity", description="Only `info`, `warning` or `error`.")]
RunIds = Annotated[list[str], Query(alias="run", description="Only events of these runs, by their whole ids.")]
BatchIds = Annotated[list[str], Query(alias="batch", description="Only events of these batches, by their whole ids.")]
Step = Annotated[int | None, Query(description="Only what comes before this step.", ge=0, lt=1 << 62)]


def printable(name: str, text: str | None) -> str | None:
    """Return the text of a query parameter; refuse control characters, which no id and no name has."""
    if text is not None and not text.isprintable():
        raise InvalidInput(f"{name}: {text[:40]!r} contains control characters; no id and no name has them")
    return text


def _not_a_number(value: object) -> object:
    """Refuse a number, which pydantic would take for seconds since 1970 and OpenAPI does not describe."""
    try:
        float(str(value))
    except ValueError:
        return value
    raise ValueError("give a date and a time with its zone, for example 2026-01-31T12:00:00Z")


Moment = Annotated[AwareDatetime, BeforeValidator(_not_a_number)]
"""A point in time, with its zone."""
