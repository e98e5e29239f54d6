"""Threads: create, find, change and delete them, and read and change their states. Every thread is a run of WTB."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from wtb.api.access import Admin, Operator, Viewer
from wtb.api.command_answers import ended
from wtb.api.langgraph.models import (
    CheckpointName,
    HistoryRequest,
    StateRequest,
    StateUpdate,
    ThreadFilter,
    ThreadPatch,
    ThreadRequest,
    ThreadSearch,
    check_ttl,
)
from wtb.api.langgraph.parts import PREFIX, Graphs, JsonAnswer, LangGraphParts
from wtb.application.server.command_errors import error_from
from wtb.domain.access import Caller
from wtb.domain.commands import Command, CommandKind
from wtb.domain.errors import AlreadyExists, Conflict, InvalidInput
from wtb.infrastructure.langgraph.clients.views import CheckpointPlace, ThreadView

router = APIRouter(prefix=f"{PREFIX}/threads", include_in_schema=False)

ThreadId = Annotated[str, Path(max_length=200)]

_UPDATE_S = 120.0
"""How long a request waits for an update of a state."""


@router.post("")
def create(graphs: Graphs, caller: Operator, body: ThreadRequest | None = None) -> Response:
    """Create a thread; without an id it gets one."""
    body = body or ThreadRequest()
    body.check()
    noted = {key: value for key, value in (body.metadata or {}).items() if value is not None}
    try:
        thread_id = graphs.threads.create(body.thread_id, noted, by=caller.name)
    except AlreadyExists:
        if body.if_exists != "do_nothing" or body.thread_id is None:
            raise AlreadyExists(
                f"there is already a thread {body.thread_id!r}; give another thread_id, or if_exists='do_nothing' to "
                "use that one"
            ) from None
        thread_id = body.thread_id
    return JsonAnswer(graphs.threads.get(thread_id).to_data())


@router.post("/search")
def search(graphs: Graphs, caller: Viewer, body: ThreadSearch | None = None) -> Response:
    """Return threads, newest first unless another order is asked for."""
    body = body or ThreadSearch()
    if body.extract is not None:
        raise InvalidInput("extract is not offered; read the values of the threads that you find")
    found = _sorted(_fitting(graphs, body), body)
    page = islice(found, body.offset, body.offset + body.limit)
    return JsonAnswer([_selected(each.to_data(), body.select) for each in page])


@router.post("/count")
def count(graphs: Graphs, caller: Viewer, body: ThreadFilter | None = None) -> Response:
    """Return how many threads fit."""
    return JsonAnswer(sum(1 for _ in _fitting(graphs, body or ThreadFilter())))


def _fitting(graphs: LangGraphParts, wanted: ThreadFilter) -> Iterator[ThreadView]:
    for each in graphs.threads.each(wanted.metadata or {}, wanted.ids or ()):
        fits = wanted.status in (None, each.status)
        if fits and all(each.state.values.get(key) == value for key, value in (wanted.values or {}).items()):
            yield each


def _sorted(found: Iterator[ThreadView], wanted: ThreadSearch) -> Iterator[ThreadView]:
    if wanted.sort_by in (None, "created_at") and wanted.sort_order in (None, "desc"):
        return found
    name = {"thread_id": "id", "state_updated_at": "updated_at", None: "created_at"}.get(wanted.sort_by, wanted.sort_by)
    is_falling = wanted.sort_order != "asc"
    return iter(sorted(found, key=lambda each: str(getattr(each, str(name))), reverse=is_falling))


def _selected(data: dict[str, Any], names: list[str] | None) -> dict[str, Any]:
    return data if names is None else {name: data[name] for name in names if name in data}


@router.get("/{thread_id}")
def get(graphs: Graphs, caller: Viewer, thread_id: ThreadId) -> Response:
    """Return a thread."""
    return JsonAnswer(graphs.threads.get(thread_id).to_data())


@router.patch("/{thread_id}")
def patch(graphs: Graphs, caller: Operator, thread_id: ThreadId, body: ThreadPatch) -> Response:
    """Add to the metadata of a thread."""
    check_ttl(body.ttl)
    graphs.threads.note(thread_id, body.metadata or {})
    return JsonAnswer(graphs.threads.get(thread_id).to_data())


@router.delete("/{thread_id}", status_code=204)
def delete(graphs: Graphs, caller: Admin, thread_id: ThreadId) -> Response:
    """Delete a thread that nothing runs."""
    graphs.threads.delete(thread_id, by=caller.name)
    return Response(status_code=204)


@router.get("/{thread_id}/state")
def get_state(
    graphs: Graphs, caller: Viewer, thread_id: ThreadId, *, subgraphs: Annotated[bool, Query()] = False
) -> Response:
    """Return the current state of a thread."""
    return _state(graphs, thread_id, CheckpointName(), subgraphs=subgraphs)


@router.post("/{thread_id}/state/checkpoint")
def get_state_of(graphs: Graphs, caller: Viewer, thread_id: ThreadId, body: StateRequest) -> Response:
    """Return the state of a thread at a checkpoint, also at one of a subgraph."""
    return _state(graphs, thread_id, body.checkpoint, subgraphs=bool(body.subgraphs))


@router.get("/{thread_id}/state/{checkpoint_id}")
def get_state_at(
    graphs: Graphs,
    caller: Viewer,
    thread_id: ThreadId,
    checkpoint_id: Annotated[str, Path(max_length=200)],
    *,
    subgraphs: Annotated[bool, Query()] = False,
) -> Response:
    """Return the state of a thread at a checkpoint."""
    return _state(graphs, thread_id, CheckpointName(checkpoint_id=checkpoint_id), subgraphs=subgraphs)


def _state(graphs: LangGraphParts, thread_id: str, name: CheckpointName, *, subgraphs: bool) -> Response:
    graphs.threads.metadata(thread_id)  # raises if there is no such thread
    return JsonAnswer(graphs.states.get(place_of(thread_id, name), subgraphs=subgraphs).to_data())


def place_of(thread_id: str, name: CheckpointName) -> CheckpointPlace:
    """Return where a checkpoint is that a client names."""
    name.check_thread(thread_id)
    return CheckpointPlace(thread_id=thread_id, namespace=name.checkpoint_ns or "", id=name.checkpoint_id)


@router.post("/{thread_id}/history")
def history(graphs: Graphs, caller: Viewer, thread_id: ThreadId, body: HistoryRequest | None = None) -> Response:
    """Return the states of a thread, newest first."""
    body = body or HistoryRequest()
    graphs.threads.metadata(thread_id)
    place = place_of(thread_id, body.checkpoint or CheckpointName())
    found = graphs.states.history(place, limit=body.limit, before=body.end, metadata=body.metadata)
    return JsonAnswer([each.to_data() for each in found])


@router.post("/{thread_id}/state")
async def update_state(graphs: Graphs, caller: Operator, thread_id: ThreadId, body: StateUpdate) -> Response:
    """Change the state of a thread: a new checkpoint, made by its graph."""
    command = await run_in_threadpool(_accept_update, graphs, caller, thread_id, body)
    command = await ended(graphs.server.commands, command, _UPDATE_S, graphs.parts.stopping)
    if command.error is not None:
        raise error_from(command.error)
    if command.result is None or not command.has_ended:
        raise Conflict(f"the update of thread {thread_id!r} has not ended; read its state in a while")
    made = CheckpointPlace(
        thread_id=thread_id, namespace=body.wanted.checkpoint_ns or "", id=command.result["checkpoint_id"]
    )
    return JsonAnswer({"checkpoint": made.to_data(), "checkpoint_id": made.id, "configurable": made.to_data()})


def _accept_update(graphs: LangGraphParts, caller: Caller, thread_id: str, body: StateUpdate) -> Command:
    graph = graphs.graph_of(thread_id)
    place = place_of(thread_id, body.wanted)
    graphs.states.get(place)  # raises if there is no such checkpoint
    arguments = {
        "workflow": graph.name,
        "values": body.values,
        "as_node": body.as_node,
        "checkpoint_id": place.id,
        "checkpoint_ns": place.namespace,
    }
    given = {name: value for name, value in arguments.items() if value is not None}
    return graphs.runs.accept(CommandKind.THREAD_UPDATE, thread_id, given, {}, by=caller.name)
