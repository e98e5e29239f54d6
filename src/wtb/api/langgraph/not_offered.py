"""Requests of LangGraph's clients that a bench does not offer: each is refused with a sentence that says so."""

from __future__ import annotations

import re
from importlib.metadata import version

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from wtb.api.access import Viewer
from wtb.api.langgraph.parts import PREFIX, JsonAnswer
from wtb.domain.errors import InvalidInput

router = APIRouter(prefix=PREFIX, include_in_schema=False)

_NOT_OFFERED = {
    r"(threads/[^/]+/)?runs/crons(/.*)?": "crons are not offered; let cron or CI start runs",
    r"store/.*": "the store is not offered; a graph that is compiled with a store of its own uses that",
    r"runs/batch": "several runs in one request are not offered; `wtb batch` runs a graph over many cases",
    r"runs/cancel": "cancelling several runs at once is not offered; cancel each run",
    r"runs/[^/]+/stream": "a run is followed by its thread: /threads/THREAD/runs/RUN/stream",
    r"assistants/[^/]+/subgraphs(/.*)?": "the subgraphs of a graph are not offered; read its graph with xray",
    r"assistants(/[^/]+)?(/(versions|latest))?": (
        "assistants can be read, not changed: each graph that the server serves has one. Change the code of the graph"
    ),
    r"threads/prune": "pruning by clients is not offered; `wtb prune` does it by the rules of the settings",
    r"threads/[^/]+/copy": "copying a thread is not offered; `wtb fork` makes a new one from any checkpoint",
    r"threads/[^/]+/state": "changing the metadata of a state is not offered; update the thread instead",
    r"threads/[^/]+/(stream(/.*)?|commands)": (
        "following a thread over all its runs is not offered; follow a run: /threads/THREAD/runs/RUN/stream"
    ),
    r"threads/[^/]+/runs/[^/]+": "deleting a run is not offered; `wtb rollback` takes a thread back",
    r"(mcp|a2a|ui)(/.*)?": "this is not offered",
}
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


@router.get("/ok")
def ok(caller: Viewer) -> Response:
    """Say that the server works."""
    return JsonAnswer({"ok": True})


@router.get("/info")
def info(caller: Viewer) -> Response:
    """Return which versions the server has, and what it offers."""
    return JsonAnswer(
        {
            "version": version("workflow-test-bench"),
            "langgraph_py_version": version("langgraph"),
            "flags": {"assistants": True, "crons": False, "langsmith": False, "store": False},
        }
    )


@router.api_route("/{path:path}", methods=_METHODS)
def refuse(request: Request, caller: Viewer, path: str) -> Response:
    """Say what is not offered."""
    for pattern, sentence in _NOT_OFFERED.items():
        if re.fullmatch(pattern, path):
            raise InvalidInput(f"{request.method} {path}: {sentence}")
    raise HTTPException(404)
