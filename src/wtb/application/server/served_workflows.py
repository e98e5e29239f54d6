"""ServedWorkflows: which workflows a server may run, and where their code is. No request ever names a path."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wtb.application.queries.service import Queries
from wtb.application.server.command_errors import error_data, error_from
from wtb.domain.commands import Command, CommandKind
from wtb.domain.errors import (
    ExecutionNotFound,
    InvalidInput,
    TooManyRequests,
    WorkerFailed,
    WorkflowNotFound,
    WorkflowNotServed,
)
from wtb.domain.execution import Execution
from wtb.domain.secrets import Masker

_NEEDS_NO_CODE = frozenset({CommandKind.RUN_CHECKPOINT, CommandKind.RUN_ABANDON_ROLLBACK, CommandKind.RUN_FORK})
"""Commands that a worker can carry out without the workflow; they use it if it is there."""

_FRESH_S = 30.0
"""For how long the description of a workflow counts if its file has not changed; modules that it imports may have."""

_TRIES = 10
"""After so many times the time that it took, a workflow that could not be loaded is tried again: it may hang."""

_WAIT_S = 3.0
"""How long others wait for somebody who loads workflows, before they use the descriptions from before."""

_MOST_WAITING = 8
"""How many wait while workflows are loaded for the first time: each holds a thread that other requests need."""

_RETRY_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedWorkflow:
    """A workflow that the server may run, as a worker has loaded it."""

    reference: str
    source: str | None = None
    """Where its runs say that it came from."""
    name: str | None = None
    definition: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    """Why it cannot be loaded."""
    is_unimportable: bool = False
    """Whether its file could not be imported, perhaps only beside others, as if both have a tool of one name."""

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> ServedWorkflow:
        """Read what a worker answered."""
        return cls(**data)


Describe = Callable[[Sequence[str]], Sequence[Mapping[str, Any]]]
"""Asks a worker to load references and to describe what they name."""


class ServedWorkflows:
    """The references of `wtb serve`; without any, the recorded sources under a folder."""

    def __init__(
        self,
        references: Sequence[str],
        *,
        folder: Path,
        recorded: bool,
        queries: Queries,
        describe: Describe,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._references = tuple(absolute(each, folder) for each in references)
        self._folder = folder
        self._recorded = recorded and not references
        self._queries = queries
        self._describe = describe
        self._monotonic = monotonic
        self._known: dict[str, tuple[float, object, ServedWorkflow]] = {}
        """Until when each description counts, and the stamp of its file."""
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(_MOST_WAITING)

    def list_served(self) -> tuple[ServedWorkflow, ...]:
        """Return all workflows that the server may run, in the order of their references.

        It raises TooManyRequests if many wait already for workflows that were never loaded before.
        """
        return self._described(self._recorded_sources() if self._recorded else self._references)

    def find(self, name: str) -> ServedWorkflow:
        """Return the workflow of a name; raise WorkflowNotFound, or WorkflowNotServed if only its runs are here."""
        served = self.list_served()
        found = [each for each in served if each.name == name]
        others = [each for each in found if each.definition != found[0].definition]
        if others:
            raise InvalidInput(
                f"{found[0].reference} and {others[0].reference} are two workflows that are both called {name!r}; give "
                "one of them another name, or serve one of them"
            )
        if found:
            return found[0]
        runs = self._queries.list_runs(workflow=name, limit=1)
        source = runs[0].execution.workflow_source if runs else None
        broken = [each.error for each in served if each.error and (not runs or _same_file(each.reference, source))]
        if broken:
            raise error_from(broken[0])
        if runs:
            command = f"wtb run {source or 'FILE:NAME'}"
            raise WorkflowNotServed(f"this server does not serve the workflow {name!r}", command)
        names = ", ".join(dict.fromkeys(each.name for each in served if each.name)) or "none"
        advice = "name its file when you start the server, or in the setting server.workflows"
        raise WorkflowNotFound(name, f"this server, which serves {names}; {advice}")

    def for_run(self, execution: Execution, verb: str) -> str:
        """Return the reference of a run's workflow; raise WorkflowNotServed with the command that does it instead."""
        source = execution.workflow_source
        if self._recorded:
            if source is not None and is_under(source, self._folder):
                return source
        elif source is not None and source in self._references:
            return source
        else:
            served = self.list_served()
            for each in served:
                if each.source == source or each.name == execution.workflow_name:
                    return each.reference
            broken = [each for each in served if each.name is None and _same_file(each.reference, source)]
            if broken:
                return broken[0].reference
        raise WorkflowNotServed(
            f"this server does not serve the workflow {execution.workflow_name!r} of run {execution.id!r}",
            f"wtb {verb} {execution.id}",
        )

    def for_command(self, command: Command) -> str | None:
        """Return the reference that a worker needs for a command; None if it needs none."""
        name = command.arguments.get("workflow")
        if name is not None:
            return self.find(name).reference
        if not command.kind.value.startswith("run."):
            return None
        verb = command.kind.value.removeprefix("run.").rpartition("_")[2]
        try:
            return self.for_run(self._queries.execution(command.arguments.get("run") or command.subject or ""), verb)
        except (ExecutionNotFound, WorkflowNotServed):
            if command.kind in _NEEDS_NO_CODE:
                return None
            raise

    def _recorded_sources(self) -> tuple[str, ...]:
        """Return where the newest run of each workflow says that it came from, if that is under the folder."""
        found = dict[str, None]()
        for workflow in self._queries.list_workflows():
            for row in self._queries.list_runs(workflow=workflow.name, limit=1):
                source = row.execution.workflow_source
                if source is not None and is_under(source, self._folder):
                    found[source] = None
        return tuple(found)

    def _described(self, references: Sequence[str]) -> tuple[ServedWorkflow, ...]:
        if all(each in self._known for each in references):
            self._refresh_within(_WAIT_S, references)
        elif self._places.acquire(blocking=False):
            try:
                self._refresh_within(-1, references)
            finally:
                self._places.release()
        else:
            raise TooManyRequests("the server loads its workflows, and many wait for that already", _RETRY_S)
        return tuple(self._known[each][2] for each in references)

    def _refresh_within(self, seconds: float, references: Sequence[str]) -> None:
        """Load what has changed, unless somebody else is loading for longer than that."""
        if self._lock.acquire(timeout=seconds):
            try:
                self._refresh(references)
            finally:
                self._lock.release()

    def _refresh(self, references: Sequence[str]) -> None:
        """Load what has changed, and what may have."""
        begun = self._monotonic()
        stamps = {each: _stamp(each) for each in references}
        stale = [each for each in references if not self._is_fresh(each, stamps[each], begun)]
        found = self._loaded(stale) if stale else ()
        now = self._monotonic()
        for each in found:
            lasts = _FRESH_S if each.error is None else max(_FRESH_S, _TRIES * (now - begun))
            self._known[each.reference] = (now + lasts, stamps[each.reference], each)

    def _loaded(self, references: Sequence[str]) -> list[ServedWorkflow]:
        """Let a worker load references. Those that it cannot import beside others, or that end it, get another one."""
        try:
            found = [ServedWorkflow.from_data(data) for data in self._describe(references)]
        except WorkerFailed as error:
            if len(references) == 1:
                return [ServedWorkflow(reference=references[0], error=error_data(error, Masker()))]
            return [each for reference in references for each in self._loaded([reference])]
        failed = [each.reference for each in found if each.is_unimportable]
        if not failed or len(failed) == len(references):
            return found
        again = {each.reference: each for each in self._loaded(failed)}
        return [again.get(each.reference, each) for each in found]

    def _is_fresh(self, reference: str, stamp: object, now: float) -> bool:
        known = self._known.get(reference)
        return known is not None and known[1] == stamp and now < known[0]


def absolute(reference: str, folder: Path) -> str:
    """Return a reference that means the same from every folder."""
    place, separator, name = reference.partition(".py:")
    if separator:
        return f"{(folder / f'{place}.py').resolve()}:{name}"
    return str((folder / reference).resolve()) if reference.endswith((".py", ".json")) else reference


def is_under(source: str, folder: Path) -> bool:
    """Whether the code of a recorded source lies under a folder."""
    file = file_of(source)
    if file is None:
        module = source.partition(":")[0]
        parts = module.split(".")
        if not all(part.isidentifier() for part in parts):
            return False
        place = folder.joinpath(*parts)
        return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()
    try:
        return file.resolve().is_relative_to(folder.resolve()) and file.is_file()
    except (OSError, ValueError):
        return False


def file_of(reference: str) -> Path | None:
    """Return the file that a reference names; None if it names a module."""
    place = reference.rpartition(":")[0] or reference
    if reference.endswith(".json"):
        return Path(reference)
    return Path(place) if place.endswith(".py") else None


def _same_file(reference: str, source: str | None) -> bool:
    return source is not None and file_of(source) is not None and file_of(reference) == file_of(source)


def _stamp(reference: str) -> object:
    """Return what changes when the file of a reference is edited."""
    file = file_of(reference)
    try:
        found = None if file is None else file.stat()
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)
