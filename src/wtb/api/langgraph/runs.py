"""Runs of graphs on threads: stream them, wait for them, list, join and cancel them."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from wtb.api.access import Operator, Viewer
from wtb.api.langgraph.models import ThreadRunRequest, check_modes
from wtb.api.langgraph.parts import PREFIX, Graphs, JsonAnswer, LangGraphParts
from wtb.api.langgraph.run_stream import ClientRunStream, Leave, LiveAnswer, sse, values_at_end
from wtb.api.langgraph.threads import ThreadId
from wtb.application.server.dispatch import FOLLOWED_AT
from wtb.application.server.thread_runs import was_cancelled
from wtb.domain.access import Caller, Role
from wtb.domain.commands import Command, CommandKind, CommandStatus
from wtb.domain.errors import AlreadyExists, Conflict, InvalidInput
from wtb.infrastructure.langgraph.clients.views import CheckpointPlace

router = APIRouter(prefix=PREFIX, include_in_schema=False)

RunId = Annotated[str, Path(max_length=200)]
_SSE, _JSON = "text/event-stream", "application/json"


@router.post("/threads/{thread_id}/runs/stream")
async def stream_on(
    request: Request, graphs: Graphs, caller: Operator, thread_id: ThreadId, body: ThreadRunRequest
) -> Response:
    """Run a graph on a thread, and stream what happens."""
    return await _streamed(request, graphs, caller, thread_id, body)


@router.post("/runs/stream")
async def stream(request: Request, graphs: Graphs, caller: Operator, body: ThreadRunRequest) -> Response:
    """Run a graph on a new thread, and stream what happens."""
    return await _streamed(request, graphs, caller, None, body)


@router.post("/threads/{thread_id}/runs/wait")
async def wait_on(graphs: Graphs, caller: Operator, thread_id: ThreadId, body: ThreadRunRequest) -> Response:
    """Run a graph on a thread, and answer with the values at its end."""
    return await _waited(graphs, caller, thread_id, body)


@router.post("/runs/wait")
async def wait(graphs: Graphs, caller: Operator, body: ThreadRunRequest) -> Response:
    """Run a graph on a new thread, and answer with the values at its end."""
    return await _waited(graphs, caller, None, body)


@router.post("/threads/{thread_id}/runs")
def create_on(graphs: Graphs, caller: Operator, thread_id: ThreadId, body: ThreadRunRequest) -> Response:
    """Run a graph on a thread in the background."""
    return _created(_accept(graphs, caller, thread_id, body))


@router.post("/runs")
def create(graphs: Graphs, caller: Operator, body: ThreadRunRequest) -> Response:
    """Run a graph on a new thread in the background."""
    return _created(_accept(graphs, caller, None, body))


@router.get("/threads/{thread_id}/runs")
def list_runs(  # noqa: PLR0917  FastAPI passes them by name
    graphs: Graphs,
    caller: Viewer,
    thread_id: ThreadId,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 10,
    offset: Annotated[int, Query(ge=0)] = 0,
    status: Annotated[str | None, Query(max_length=20)] = None,
) -> Response:
    """Return the runs of a thread, newest first; those of the last week."""
    graphs.threads.metadata(thread_id)  # raises if there is no such thread
    found = [_data(each) for each in graphs.runs.list_runs(thread_id)]
    fitting = [each for each in found if status in (None, each["status"])]
    return JsonAnswer(fitting[offset : offset + limit])


@router.get("/threads/{thread_id}/runs/{run_id}")
def get(graphs: Graphs, caller: Viewer, thread_id: ThreadId, run_id: RunId) -> Response:
    """Return a run."""
    return JsonAnswer(_data(graphs.runs.get(thread_id, run_id)))


@router.get("/threads/{thread_id}/runs/{run_id}/join")
async def join(graphs: Graphs, caller: Viewer, thread_id: ThreadId, run_id: RunId) -> Response:
    """Wait for a run, and answer with the values at its end."""
    command = await run_in_threadpool(graphs.runs.get, thread_id, run_id)
    return LiveAnswer(values_at_end(graphs, command), _places(command, "join"), _JSON)


@router.get("/threads/{thread_id}/runs/{run_id}/stream")
async def join_stream(  # noqa: PLR0917  FastAPI passes them by name
    request: Request,
    graphs: Graphs,
    caller: Viewer,
    thread_id: ThreadId,
    run_id: RunId,
    stream_mode: Annotated[list[str] | None, Query()] = None,
    last_event_id: Annotated[str | None, Header(max_length=200)] = None,
    *,
    cancel_on_disconnect: Annotated[bool, Query()] = False,
) -> Response:
    """Follow a run from now on, or after the message that the client names."""
    if cancel_on_disconnect:
        caller.require(Role.OPERATOR)
    command = await run_in_threadpool(graphs.runs.get, thread_id, run_id)
    stream = ClientRunStream(graphs, request, caller, command)
    modes = _modes(stream_mode)
    if modes:
        check_modes(modes)
        stream.modes = modes
    if_left = partial(_cancelled, graphs, command, caller) if cancel_on_disconnect else None
    return LiveAnswer(stream.frames(last_event_id), _places(command, "stream"), _SSE, if_left)


@router.post("/threads/{thread_id}/runs/{run_id}/cancel")
def cancel(
    graphs: Graphs,
    caller: Operator,
    thread_id: ThreadId,
    run_id: RunId,
    action: Annotated[str, Query(max_length=20)] = "interrupt",
) -> Response:
    """End a run now; the thread stays at its last checkpoint, and the next run goes on from there."""
    if action != "interrupt":
        raise InvalidInput(f"the action {action!r} is not offered; cancel with 'interrupt', then `wtb rollback`")
    command = graphs.runs.get(thread_id, run_id)
    if command.has_ended:
        raise Conflict(f"run {run_id!r} has ended already")
    _cancelled(graphs, command, caller)
    return JsonAnswer({}, status_code=202)


def _cancelled(graphs: LangGraphParts, command: Command, caller: Caller) -> None:
    with suppress(Conflict):  # it has ended meanwhile
        graphs.server.cancel(command.id, by=caller.name)


async def _streamed(
    request: Request, graphs: LangGraphParts, caller: Caller, thread_id: str | None, body: ThreadRunRequest
) -> Response:
    command = await run_in_threadpool(_accept, graphs, caller, thread_id, body)
    stream = ClientRunStream(graphs, request, caller, command)
    first = sse("metadata", {"run_id": command.id, "thread_id": command.subject, "attempt": 1})
    if_left = _if_left(graphs, command, caller, body)
    return LiveAnswer(stream.frames("", first), _places(command, "stream"), _SSE, if_left)


async def _waited(graphs: LangGraphParts, caller: Caller, thread_id: str | None, body: ThreadRunRequest) -> Response:
    command = await run_in_threadpool(_accept, graphs, caller, thread_id, body)
    if_left = _if_left(graphs, command, caller, body)
    return LiveAnswer(values_at_end(graphs, command), _places(command, "join"), _JSON, if_left)


def _if_left(graphs: LangGraphParts, command: Command, caller: Caller, body: ThreadRunRequest) -> Leave | None:
    """Return what ends a run whose client leaves, if the client wants that; by default the run goes on."""
    return partial(_cancelled, graphs, command, caller) if body.on_disconnect == "cancel" else None


def _accept(graphs: LangGraphParts, caller: Caller, thread_id: str | None, body: ThreadRunRequest) -> Command:
    body.check()
    graph = graphs.find_graph(body.assistant_id)
    noted = {"graph_id": graph.name, "assistant_id": graph.assistant_id}
    if thread_id is None:
        thread_id = graphs.threads.create(None, noted, by=caller.name)
    elif body.if_not_exists == "create":
        with suppress(AlreadyExists):
            graphs.threads.create(thread_id, noted, by=caller.name)
    if body.checkpoint is not None:
        body.checkpoint.check_thread(thread_id)
    graphs.threads.metadata(thread_id)  # raises if there is no such thread
    if body.wanted_checkpoint is not None:
        graphs.states.get(CheckpointPlace(thread_id=thread_id, id=body.wanted_checkpoint))
    arguments = {
        **body.arguments(),
        "workflow": graph.name,
        "assistant_id": graph.assistant_id,
        FOLLOWED_AT: graphs.server.dispatcher.name,
    }
    return graphs.runs.accept(CommandKind.THREAD_RUN, thread_id, arguments, noted, by=caller.name)


def _places(command: Command, what: str) -> dict[str, str]:
    """Return where the run is, and where a client that was cut off goes on; both after the prefix of all routes."""
    place = f"/threads/{command.subject}/runs/{command.id}"
    return {"Content-Location": place, "Location": f"{place}/{what}"}


def _created(command: Command) -> Response:
    return JsonAnswer(_data(command), headers={"Content-Location": _places(command, "")["Content-Location"]})


def _modes(given: list[str] | None) -> list[str]:
    """Return the modes of a query; some clients write a list as JSON, or an empty text for no mode."""
    found: list[Any] = []
    for each in filter(None, given or []):
        try:
            read = json.loads(each) if each.startswith("[") else [each]
        except ValueError as error:
            raise InvalidInput(f"stream_mode {each[:40]!r} is neither a mode nor a JSON list of modes") from error
        found += read
    return [str(each) for each in found]


def _data(command: Command) -> dict[str, Any]:
    """Return a run as LangGraph's clients read it."""
    return {
        "run_id": command.id,
        "thread_id": command.subject,
        "assistant_id": command.arguments.get("assistant_id"),
        "created_at": command.created_at.isoformat(),
        "updated_at": (command.ended_at or command.started_at or command.created_at).isoformat(),
        "status": _status(command),
        "metadata": command.arguments.get("metadata") or {},
        "kwargs": {},
        "multitask_strategy": "reject",
    }


def _status(command: Command) -> str:
    if command.status is CommandStatus.FAILED:
        return "interrupted" if was_cancelled(command) else "error"
    return "success" if command.status is CommandStatus.COMPLETED else command.status.value
