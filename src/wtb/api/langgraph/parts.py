"""LangGraphParts: the threads and graphs that the routes for LangGraph's clients use, and the form of their answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any
from uuid import UUID, uuid5

from fastapi import Depends
from starlette.requests import HTTPConnection
from starlette.responses import Response

from wtb.api.command_answers import command_server_of
from wtb.api.parts import ServerParts, parts_of
from wtb.application.server.command_server import CommandServer
from wtb.application.server.thread_runs import ThreadRuns
from wtb.domain.errors import InvalidInput, WorkflowNotFound
from wtb.domain.workflow import ENGINE
from wtb.infrastructure.langgraph.clients.thread_directory import ThreadDirectory
from wtb.infrastructure.langgraph.clients.thread_states import ThreadStates

PREFIX = "/langgraph"

_GRAPHS = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
"""The namespace of assistant ids: a graph has the same id at every server."""


@dataclass(frozen=True, kw_only=True)
class ServedGraph:
    """A graph that the server may run; its clients call it an assistant."""

    name: str
    reference: str

    @property
    def assistant_id(self) -> str:
        """The id of its only assistant."""
        return str(uuid5(_GRAPHS, self.name))


@dataclass(frozen=True, kw_only=True)
class LangGraphParts:
    """The threads of the store, and the graphs of the server."""

    parts: ServerParts
    server: CommandServer

    @cached_property
    def states(self) -> ThreadStates:
        """Reads the states of threads."""
        return ThreadStates(self.parts.services.storage, self.parts.services.masker)

    @cached_property
    def threads(self) -> ThreadDirectory:
        """Begins and finds threads."""
        services = self.parts.services
        return ThreadDirectory(services.storage, services.clock, services.ids, self.states)

    @cached_property
    def runs(self) -> ThreadRuns:
        """Accepts and finds runs."""
        return ThreadRuns(self.server.commands, self.parts.services.clock)

    def list_graphs(self) -> list[ServedGraph]:
        """Return the graphs among the workflows that the server may run."""
        return [
            ServedGraph(name=each.name, reference=each.reference)
            for each in self.server.served.list_served()
            if each.name is not None and ((each.definition or {}).get("metadata") or {}).get(ENGINE) == "langgraph"
        ]

    def find_graph(self, assistant: str) -> ServedGraph:
        """Return a graph by its name or the id of its assistant; raise WorkflowNotFound."""
        graphs = self.list_graphs()
        found = next((each for each in graphs if assistant in (each.name, each.assistant_id)), None)
        if found is None:
            self.server.served.find(assistant)  # raises, and says why, if its code is broken or not served
            names = ", ".join(each.name for each in graphs) or "none"
            raise WorkflowNotFound(assistant, f"the graphs of this server, which are {names}")
        return found

    def graph_of(self, thread_id: str) -> ServedGraph:
        """Return the graph that a thread used last; without one, the only graph of the server."""
        known = self.threads.metadata(thread_id).get("graph_id")
        if isinstance(known, str):
            return self.find_graph(known)
        graphs = self.list_graphs()
        if len(graphs) != 1:
            raise InvalidInput(
                f"no run has said which graph thread {thread_id!r} uses; run one first, or set graph_id in its metadata"
            )
        return graphs[0]


def _langgraph_parts(connection: HTTPConnection) -> LangGraphParts:
    state = connection.app.state
    if not hasattr(state, "langgraph"):
        state.langgraph = LangGraphParts(parts=parts_of(connection), server=command_server_of(connection))
    found: LangGraphParts = state.langgraph
    return found


Graphs = Annotated[LangGraphParts, Depends(_langgraph_parts)]
"""The type of a route's argument that wants threads and graphs."""


def text_of(data: Any) -> str:
    """Return JSON in ASCII: a text of a state may not be valid Unicode."""
    return json.dumps(data, separators=(",", ":"))


class JsonAnswer(Response):
    """An answer of plain JSON."""

    media_type = "application/json"

    def __init__(self, data: Any, **how: Any) -> None:
        super().__init__(text_of(data), **how)
