"""Tools that read runs. They change nothing."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field

from wtb.api.mcp.answers import answer, page
from wtb.api.mcp.arguments import Checkpoint, Cursor, Limit, Path, RunArgument, Status
from wtb.api.mcp.editor_access import Asking, api_of
from wtb.domain.errors import TooMuchToShow

_WINDOW = 8_000
"""How many characters of a long text are shown at a time."""
_PIECE = 2_000
_RUNS = "executions"
_PLACE = ("run", "id", "step", "node", "visit")


async def list_workflows(ctx: Asking) -> str:
    """List the workflows of this project: those that can be started here (`served`), and those that have runs."""
    return answer(await api_of(ctx).get("workflows"))


async def list_runs(
    *,
    ctx: Asking,
    status: Annotated[list[Status] | None, Field(description="Only runs with one of these statuses.")] = None,
    workflow: Annotated[str | None, Field(description="Only runs of this workflow.")] = None,
    batch: Annotated[
        str | None, Field(description='Only runs of this batch; "none" leaves out those of batches.')
    ] = None,
    health: Annotated[
        Literal["gone", "abandoned", "waiting"] | None,
        Field(description="Only runs whose process is gone, that are abandoned, or that wait for a person."),
    ] = None,
    cursor: Cursor = None,
    limit: Limit = 20,
) -> str:
    """List runs, newest first: id, workflow, status, and the error of those that failed."""
    filters = {"status": status, "workflow": workflow, "batch": batch, "health": health}
    api = api_of(ctx)
    return await page(lambda most: api.get(_RUNS, **filters, cursor=cursor, limit=most), limit)


async def show_run(*, ctx: Asking, run: RunArgument) -> str:
    """Show everything about a run: status, error, question, position, usage, scores and state."""
    return answer(await api_of(ctx).get(_RUNS, run))


async def show_history(
    *,
    ctx: Asking,
    run: RunArgument,
    every: Annotated[bool, Field(description="Also the lines that rollbacks left behind.")] = False,
    cursor: Cursor = None,
    limit: Limit = 30,
) -> str:
    """List the checkpoints of a run, newest first. Each names the node that ended with it and the nodes that follow."""
    api = api_of(ctx)
    return await page(lambda most: api.get(_RUNS, run, "checkpoints", every=every, cursor=cursor, limit=most), limit)


async def list_calls(*, ctx: Asking, run: RunArgument, cursor: Cursor = None, limit: Limit = 30) -> str:
    """List the tool calls of a run with arguments, results, and whether a rollback can undo them (`undo`)."""
    api = api_of(ctx)
    return await page(lambda most: api.get(_RUNS, run, "calls", cursor=cursor, limit=most), limit)


async def show_state(
    *,
    ctx: Asking,
    run: RunArgument,
    at: Annotated[Checkpoint | None, Field(description="A checkpoint; without it the current position.")] = None,
    path: Path = None,
    cursor: Cursor = None,
    limit: Limit = 50,
    offset: Annotated[int, Field(ge=0, description="Where to begin in a long text.")] = 0,
) -> str:
    """Show the state of a run at a checkpoint. Of a large state you see the parts: ask for one by its path."""
    api, place = api_of(ctx), None if path is None else json.dumps(path)
    found = await api.get(_RUNS, run, "state", at=at, path=place, cursor=cursor, limit=limit)
    if found["kind"] != "text":
        return answer(found)
    whole = found if found["is_whole"] else await api.get(_RUNS, run, "state", at=at, path=place, whole=True)
    is_long = offset > 0 or len(whole["value"]) > _PIECE
    return answer(_window(whole["value"], offset) if is_long else whole)


def _window(text: str, offset: int) -> dict[str, Any]:
    """Return a part of a long text, in pieces that no answer cuts."""
    end = min(len(text), offset + _WINDOW)
    pieces = [text[start : min(start + _PIECE, end)] for start in range(offset, end, _PIECE)]
    return {"characters": len(text), "offset": offset, "next_offset": end if end < len(text) else None, "text": pieces}


async def show_diff(
    *,
    ctx: Asking,
    run: RunArgument,
    old: Annotated[Checkpoint, Field(description="The older checkpoint.")],
    new: Annotated[Checkpoint | None, Field(description="The newer checkpoint; without it the current one.")] = None,
    other_run: Annotated[str | None, Field(description="The run of `new`, if it is another one.")] = None,
    path: Annotated[list[Any] | None, Field(description="Only what differs at this place of the state.")] = None,
    cursor: Cursor = None,
) -> str:
    """Compare two checkpoints of one run or of two: state by path, files with unified diffs, tool calls in between.

    Of large states you see which parts differ: look into one with its `path`.
    """
    api, compared = api_of(ctx), {"from_": old, "to": new, "run": other_run}
    if path is not None:
        place = json.dumps(path)
        return answer(await api.get(_RUNS, run, "diff", "state", **compared, path=place, cursor=cursor))
    try:
        found = await api.get(_RUNS, run, "diff", **compared)
    except TooMuchToShow:
        found = await api.get(_RUNS, run, "diff", **compared, part=["files", "calls"])
        found["state"] = await api.get(_RUNS, run, "diff", "state", **compared, cursor=cursor)
    sides = {side: {name: found[side][name] for name in _PLACE} for side in ("old", "new")}
    return answer({**found, **sides})


async def explain_failure(*, ctx: Asking, run: RunArgument) -> str:
    """Explain why a run failed: its error, what the failed node got, and what changed since the last good run.

    The last good run is an earlier run of the same workflow that completed. What changed is the code of nodes (in
    words), the variants, the input, and the state from which the node started.
    """
    return answer(await api_of(ctx).get(_RUNS, run, "failure"))
