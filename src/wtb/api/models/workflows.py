"""Workflows: those that the server may run, and those that have runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from wtb.api.models.base import AnswerModel, example
from wtb.api.models.problems import Problem


class WorkflowAnswer(AnswerModel):
    """A workflow that the server may run, or that has runs, or both."""

    name: str | None = Field(description="Its name; null if its code cannot be loaded.", examples=["support"])
    served: bool = Field(description="Whether this server may start and resume its runs.")
    versions: list[str] = Field(default=[], description="The versions that runs have used.")
    runs: int = 0
    first_run_at: datetime | None = None
    last_run_at: datetime | None = None
    problem: Problem | None = Field(default=None, description="Why its code cannot be loaded.")


class DefinitionAnswer(AnswerModel):
    """A workflow as data: as its code is now if it is served, otherwise as its last run used it."""

    name: str
    served: bool
    definition: dict[str, Any]

    model_config = example(
        name="support",
        served=True,
        definition={
            "name": "support",
            "version": "1",
            "nodes": [{"name": "answer", "function": "support:answer", "start": True}],
            "edges": [],
        },
    )


class GraphNode(AnswerModel):
    """A node, and the variants that may take its place."""

    name: str
    is_start: bool = False
    variants: list[str] = Field(default=[])
    environment: str | None = None

    model_config = example(name="retrieve", is_start=False, variants=["dense"], environment=None)


class GraphEdge(AnswerModel):
    """A way from one or several nodes to the next one."""

    sources: list[str]
    target: str
    condition: str | None = Field(default=None, description="An expression, or the name of a function.")
    otherwise: bool = False
    priority: int = 0


class GraphAnswer(AnswerModel):
    """The nodes and edges of a workflow, to draw them."""

    name: str
    served: bool
    nodes: list[GraphNode]
    edges: list[GraphEdge]

    @classmethod
    def of(cls, found: DefinitionAnswer) -> GraphAnswer:
        """Return the graph of a definition."""
        data = found.definition
        variants: dict[str, list[str]] = {}
        for variant in data.get("variants", ()):
            variants.setdefault(variant["node"], []).append(variant["name"])
        nodes = [
            GraphNode(
                name=node["name"],
                is_start=bool(node.get("start")),
                variants=variants.get(node["name"], []),
                environment=(node.get("environment") or {}).get("kind"),
            )
            for node in data.get("nodes", ())
        ]
        return cls(name=found.name, served=found.served, nodes=nodes, edges=list(map(_edge, data.get("edges", ()))))


def _edge(data: dict[str, Any]) -> GraphEdge:
    when = data.get("when")
    return GraphEdge(
        sources=data["sources"],
        target=data["target"],
        condition=(when.get("function") or "a function") if isinstance(when, dict) else when,
        otherwise=bool(data.get("otherwise")),
        priority=data.get("priority", 0),
    )


class CheckAnswer(AnswerModel):
    """Whether a workflow can run."""

    workflow: str
    faults: list[str] = Field(description="Everything that is wrong; empty if it can run.")

    model_config = example(workflow="support", faults=["no node leads to 'answer'"])
