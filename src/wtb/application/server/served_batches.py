"""ServedBatches: the batch tests that a server may run, by name. No request ever names a path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wtb.application.server.command_errors import error_from
from wtb.domain.commands import Command
from wtb.domain.errors import BatchNotFound, WorkflowNotServed, error_with


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBatch:
    """A batch test, as a worker has loaded it."""

    reference: str
    name: str | None = None
    workflow: str | None = None
    error: Mapping[str, Any] | None = None
    """Why it cannot be loaded."""
    is_unimportable: bool = False
    """Whether its file could not be imported, perhaps only beside others, as if both have a tool of one name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBatches:
    """The references of `[server] batches`, and those of `wtb serve` that name a batch test."""

    references: Sequence[str]
    maybe: Sequence[str]
    """References that may name a workflow instead; those are left out."""
    ask: Callable[[Mapping[str, Any]], Mapping[str, Any]]

    def list_served(self) -> tuple[ServedBatch, ...]:
        """Return the batches as their code is now."""
        wanted = [*self.references, *(each for each in self.maybe if each not in self.references)]
        if not wanted:
            return ()
        found = self._loaded(wanted)
        return tuple(each for each in found if each.error is None or each.reference in self.references)

    def _loaded(self, references: Sequence[str]) -> list[ServedBatch]:
        """Let a worker load references; those that it cannot import beside others get another one."""
        found = [ServedBatch(**data) for data in self.ask({"batches": references})["batches"]]
        failed = [each.reference for each in found if each.is_unimportable]
        if not failed or len(failed) == len(references):
            return found
        again = {each.reference: each for each in self._loaded(failed)}
        return [again.get(each.reference, each) for each in found]

    def check(self, command: Command) -> None:
        """Raise WorkflowNotServed if a command runs a configured batch of another server."""
        reference = command.arguments.get("reference")
        if reference is not None and reference not in (*self.references, *self.maybe):
            raise WorkflowNotServed(
                f"this server does not serve the batch {command.subject!r}", f"wtb batch run {reference}"
            )

    def find(self, name: str) -> ServedBatch:
        """Return the batch of a name; raise BatchNotFound, or the error of one that cannot be loaded."""
        served = self.list_served()
        found = next((each for each in served if each.name == name), None)
        if found is not None:
            return found
        broken = next((each.error for each in served if each.error is not None), None)
        if broken is not None:
            raise error_from(broken)
        names = ", ".join(each.name for each in served if each.name) or "none"
        advice = "name its file when you start the server, or in the setting server.batches"
        raise error_with(BatchNotFound, f"this server can run no batch {name!r}; it has {names}; {advice}")
