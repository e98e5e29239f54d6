"""Commands: what was accepted, how far it is, how it ended; and an end for those that hang."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.concurrency import run_in_threadpool

from wtb.api.access import Operator, Viewer
from wtb.api.command_answers import Commanding, Wait, command_answer, ended
from wtb.api.models.base import ListAnswer
from wtb.api.models.commands import CommandAnswer
from wtb.api.models.parameters import Cursor, Limit
from wtb.api.parts import Parts
from wtb.api.problems import answers
from wtb.application.queries.cursors import position_cursor, position_of
from wtb.domain.commands import CommandStatus
from wtb.domain.errors import CommandNotFound, Conflict, InvalidInput

router = APIRouter(prefix="/api/v1/commands", tags=["commands"])

CommandId = Annotated[str, Path(description="The id of a command.", max_length=200)]


@router.get("", operation_id="commands_list", summary="List commands, newest first", responses=answers(InvalidInput))
def list_commands(
    server: Commanding,
    caller: Viewer,
    *,
    status: Annotated[list[CommandStatus] | None, Query(description="Only commands in these statuses.")] = None,
    subject: Annotated[str | None, Query(description="Only commands about this run or batch.", max_length=200)] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> ListAnswer[CommandAnswer]:
    """Return one page of the accepted commands. Those that have ended are kept for a week."""
    before = position_of(cursor)
    found = server.commands.list_commands(statuses=status or (), subject=subject, before=before, limit=limit + 1)
    last = found[limit - 1] if len(found) > limit else None
    following = None if last is None else position_cursor(last.created_at, last.id)
    return ListAnswer(items=[command_answer(each) for each in found[:limit]], next=following)


@router.get(
    "/{command_id}",
    operation_id="commands_get",
    summary="Show a command",
    responses=answers(CommandNotFound, InvalidInput),
)
async def get_command(
    parts: Parts, server: Commanding, caller: Viewer, command_id: CommandId, wait_s: Wait = 0
) -> CommandAnswer:
    """Return a command with its result, or with the problem that ended it; first wait for its end, if you want."""
    command = await run_in_threadpool(server.commands.get, command_id)
    return command_answer(await ended(server.commands, command, wait_s, parts.stopping))


@router.post(
    "/{command_id}/cancel",
    operation_id="commands_cancel",
    summary="Cancel a command",
    responses=answers(CommandNotFound, Conflict, InvalidInput),
)
def cancel_command(server: Commanding, caller: Operator, command_id: CommandId) -> CommandAnswer:
    """End a command that waits, or one that hangs: its worker is killed, as by a crash, and what it stored stays.

    To end a run in an orderly way, pause or stop the run. A run that is left behind can be resumed or stopped.
    """
    return command_answer(server.cancel(command_id, by=caller.name))
