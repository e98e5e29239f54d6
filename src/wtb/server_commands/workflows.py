"""Questions about workflows: what they are called, what they look like, and whether they can run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wtb.application.server.command_errors import load_error
from wtb.batches import load_workflow_or_batch
from wtb.domain.errors import InvalidWorkflow
from wtb.domain.secrets import Masker
from wtb.domain.workflow_data import workflow_to_dict
from wtb.flow import Workflow
from wtb.infrastructure.conditions.cel import CelConditions
from wtb.loading import source_of
from wtb.server_commands.batches import described
from wtb.server_commands.threads import described_graph


def answer(question: Mapping[str, Any], masker: Masker) -> dict[str, Any]:
    """Answer a question of the server that needs the user's code and changes nothing."""
    if "describe" in question:
        return {"workflows": [_described(reference, masker) for reference in question["describe"]]}
    if "batches" in question:
        return {"batches": described(question["batches"], masker)}
    if "graph" in question:
        return described_graph(load_workflow_or_batch(question["graph"]), xray=question["xray"])
    return _checked(load_workflow_or_batch(question["check"]))


def _described(reference: str, masker: Masker) -> dict[str, Any]:
    try:
        flow = load_workflow_or_batch(reference)
        definition = masker.data(workflow_to_dict(flow.definition()))
    except Exception as error:  # noqa: BLE001  the user's module may raise anything
        return load_error(reference, error, masker)
    return {"reference": reference, "source": source_of(flow), "name": flow.name, "definition": definition}


def _checked(flow: Workflow) -> dict[str, Any]:
    faults: Sequence[str] = ()
    try:
        flow.definition().validate(CelConditions())
    except InvalidWorkflow as error:
        faults = error.faults
    return {"workflow": flow.name, "faults": list(faults)}
