"""Verbs about workflows."""

from __future__ import annotations

from wtb.api.models.base import ListAnswer
from wtb.api.models.workflows import CheckAnswer, DefinitionAnswer, GraphAnswer, WorkflowAnswer
from wtb.client.connection import Connection, path_of
from wtb.client.requests import get, post


class WorkflowVerbs(Connection):
    """What a client asks about workflows."""

    async def list_workflows(self) -> list[WorkflowAnswer]:
        """Return the workflows that the server may run, then the others that have runs, by name."""
        return (await self._ask(ListAnswer[WorkflowAnswer], get(path_of("workflows")))).items

    async def workflow(self, name: str) -> DefinitionAnswer:
        """Return a workflow as data."""
        return await self._ask(DefinitionAnswer, get(path_of("workflows", name)))

    async def graph(self, name: str) -> GraphAnswer:
        """Return the nodes and edges of a workflow."""
        return await self._ask(GraphAnswer, get(path_of("workflows", name, "graph")))

    async def check(self, name: str) -> CheckAnswer:
        """Load a workflow as its code is now, and return everything that is wrong with it."""
        return await self._ask(CheckAnswer, post(path_of("workflows", name, "check")))
