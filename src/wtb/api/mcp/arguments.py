"""The arguments that several tools take, with the words that a model reads."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

RunArgument = Annotated[str, Field(description="The id of a run, as list_runs shows it.")]
Checkpoint = Annotated[
    int | str,
    Field(description='A checkpoint: a step number, a node name (its latest visit), "node#2", a name, or an id.'),
]
Cursor = Annotated[str | None, Field(description="The `next` of the page before.")]
Limit = Annotated[int, Field(ge=1, le=100, description="The most items to return; fewer if they are large.")]
BatchArgument = Annotated[str, Field(description="The name of a batch (then the latest one), or its id.")]
Status = Literal["pending", "running", "paused", "rolling_back", "completed", "failed", "cancelled"]
Path = Annotated[
    list[str | int] | None,
    Field(description='A place in the state, such as ["messages", 3, "content"]; without it the whole state.'),
]
Wait = Annotated[float, Field(ge=0, le=50, description="How many seconds to wait for the end; then it goes on.")]
Update = Annotated[
    dict[str, Any] | None, Field(description="New values for keys of the state, as show_state shows values.")
]
Variants = Annotated[dict[str, str] | None, Field(description='Variants to use, by node, such as {"answer": "short"}.')]


def state_edit(update: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return new values of keys as the API takes them."""
    return None if not update else {"set": [{"path": [key], "value": value} for key, value in update.items()]}
