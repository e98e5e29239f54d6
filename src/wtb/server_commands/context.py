"""CommandContext: everything that a worker has for its one command."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wtb.application.queries.state_edits import StateEdit, StateEditor
from wtb.application.queries.tagged_json import TaggedJson
from wtb.application.runs.run_request import RunRequest
from wtb.batches import load_workflow_or_batch
from wtb.bench import Bench
from wtb.bootstrap import Services
from wtb.domain.commands import LEASE
from wtb.domain.errors import InvalidInput
from wtb.domain.execution import Execution
from wtb.domain.ids import ExecutionId
from wtb.flow import Workflow
from wtb.infrastructure.codecs.state_classes import StateClasses
from wtb.runs import Run

_LOOK_S = 0.5
"""How often a worker looks whether a run is free."""


@dataclass(kw_only=True)
class CommandContext:
    """The bench of a worker, whose user is the caller of the command, and the code that the command may use."""

    bench: Bench
    reference: str | None
    """Where the workflow is; the server has decided that it may be run."""
    request: RunRequest = field(default_factory=RunRequest)
    """Asks the run to pause when the server ends."""
    say: Callable[[Mapping[str, Any]], object] = lambda message: None
    """Tells the server something while the command is carried out; nothing of it is stored."""
    _flow: Workflow | None = None

    @property
    def services(self) -> Services:
        """The services of the bench."""
        return self.bench.services

    def flow(self) -> Workflow:
        """Return the workflow, loaded once."""
        if self._flow is None:
            if self.reference is None:
                raise InvalidInput("this command came without a workflow")
            self._flow = load_workflow_or_batch(self.reference)
        return self._flow

    def run(self, run_id: str) -> Run:
        """Return a run that knows its workflow, if the server serves it; its code registers tools and classes."""
        found = self.services.queries.execution(run_id)
        return Run(self.bench, found.id, None if self.reference is None else self.flow())

    @property
    def json(self) -> TaggedJson:
        """Values as JSON, with the classes that the workflow has registered."""
        return TaggedJson(StateClasses(), self.services.masker)

    def read_values(self, data: Mapping[str, Any] | None, what: str) -> dict[str, Any] | None:
        """Return the values that tagged JSON describes, by key."""
        if data is None:
            return None
        found = self.json.read(dict(data), place=what)
        if not isinstance(found, dict):
            raise InvalidInput(f"{what} is a {type(found).__name__}; give keys and values")
        return found

    def wait_until_free(self, run_id: str) -> None:
        """Wait until the lease of a killed worker has ended: one of another machine lasts a little longer than it."""
        until = time.monotonic() + 2 * LEASE.total_seconds()
        while not self.services.controller.is_free(ExecutionId(run_id)) and time.monotonic() < until:
            time.sleep(_LOOK_S)

    def update(self, run: Run, edit: Mapping[str, Any] | None, target: str | int | None = None) -> dict[str, Any]:
        """Return the keys of a run's state that an edit changes, at its head or at a checkpoint."""
        if not edit:
            return {}
        stored = self.services.queries.checkpoint_view(run.id, target).state
        live = run.state if target is None else dict(run.at(target).state)
        return StateEditor(self.json, StateClasses()).update(StateEdit.from_data(edit), stored, live)


def run_data(execution: Execution) -> dict[str, Any]:
    """Return what a caller learns of a run that a command has changed."""
    failure = execution.failure
    return {
        "id": execution.id,
        "workflow": execution.workflow_name,
        "status": execution.status.value,
        "version": execution.version,
        "pause": None if execution.pause is None else execution.pause.to_data(),
        "failure": None
        if failure is None
        else {"type": failure.type, "message": failure.message, "node": failure.node},
    }
