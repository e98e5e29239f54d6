"""Assistants: the graphs of the server, one assistant each. They can be read; the code of the server changes them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from wtb.api.access import Viewer
from wtb.api.langgraph.models import AssistantSearch
from wtb.api.langgraph.parts import PREFIX, Graphs, JsonAnswer, LangGraphParts, ServedGraph

router = APIRouter(prefix=f"{PREFIX}/assistants", include_in_schema=False)

AssistantId = Annotated[str, Path(max_length=500)]
_CREATED_AT = "2026-01-01T00:00:00+00:00"
"""Assistants are not stored, but clients expect a time."""


@router.post("/search")
def search(graphs: Graphs, caller: Viewer, body: AssistantSearch | None = None) -> Response:
    """Return the graphs that the server may run."""
    body = body or AssistantSearch()
    found = _fitting(graphs, body)[body.offset : body.offset + body.limit]
    return JsonAnswer([_data(each) for each in found])


@router.post("/count")
def count(graphs: Graphs, caller: Viewer, body: AssistantSearch | None = None) -> Response:
    """Return how many graphs fit."""
    return JsonAnswer(len(_fitting(graphs, body or AssistantSearch())))


def _fitting(graphs: LangGraphParts, wanted: AssistantSearch) -> list[ServedGraph]:
    def fits(graph: ServedGraph) -> bool:
        data = _data(graph)
        named = wanted.graph_id in (None, graph.name) and (wanted.name or "").lower() in graph.name.lower()
        return named and all(data["metadata"].get(key) == value for key, value in (wanted.metadata or {}).items())

    return [graph for graph in graphs.list_graphs() if fits(graph)]


@router.get("/{assistant_id}")
def get(graphs: Graphs, caller: Viewer, assistant_id: AssistantId) -> Response:
    """Return a graph as an assistant."""
    return JsonAnswer(_data(graphs.find_graph(assistant_id)))


@router.get("/{assistant_id}/graph")
def get_graph(
    graphs: Graphs, caller: Viewer, assistant_id: AssistantId, xray: Annotated[int | bool, Query()] = False
) -> Response:
    """Return the nodes and edges of a graph."""
    return JsonAnswer(_described(graphs, assistant_id, xray)["graph"])


@router.get("/{assistant_id}/schemas")
def get_schemas(graphs: Graphs, caller: Viewer, assistant_id: AssistantId) -> Response:
    """Return the schemas of a graph."""
    found = _described(graphs, assistant_id, xray=False)["schemas"]
    return JsonAnswer({"graph_id": graphs.find_graph(assistant_id).name, **found})


def _described(graphs: LangGraphParts, assistant_id: str, xray: bool | int) -> Any:
    graph = graphs.find_graph(assistant_id)
    return graphs.server.dispatcher.ask({"graph": graph.reference, "xray": xray})


def _data(graph: ServedGraph) -> dict[str, Any]:
    return {
        "assistant_id": graph.assistant_id,
        "graph_id": graph.name,
        "name": graph.name,
        "description": None,
        "config": {},
        "context": {},
        "metadata": {"created_by": "system"},
        "version": 1,
        "created_at": _CREATED_AT,
        "updated_at": _CREATED_AT,
    }
