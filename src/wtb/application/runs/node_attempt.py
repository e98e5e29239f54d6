"""One attempt of a node: what it is to do, its journal and files while it runs, and its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from wtb.application.runs.callers_loop import LoopGone
from wtb.application.runs.engine_context import EngineContext
from wtb.application.runs.function_caller import NodeTimeout, RunTimeout
from wtb.application.runs.journal import CallJournal
from wtb.application.runs.node_files import NodeFiles
from wtb.application.runs.steps import NO_REPORT, NodeReport
from wtb.application.workspaces import PreparedCommit
from wtb.domain.anchor import AnchoredCall
from wtb.domain.checkpoint import NodeRun
from wtb.domain.engine import Call
from wtb.domain.execution import Failure, Pause
from wtb.domain.figures import NOTHING, Figures, Usage
from wtb.domain.files import FileCommitId
from wtb.domain.tools import ToolCall
from wtb.domain.workflow import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One node run to make: the part of the state that the node may see, and the way to call its function."""

    node: Node
    run: NodeRun
    state: Mapping[str, Any]
    call: Call
    with_context: bool
    member: str = ""
    """Its name among siblings that run at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one node run: an update, a failure, or a reason to wait."""

    run: NodeRun
    returned: Mapping[str, Any] | None = None
    failure: Failure | None = None
    pause: Pause | None = None
    report: NodeReport = NO_REPORT
    files: PreparedCommit | None = None
    taken: FileCommitId | None = None
    """The files that come with a shared result."""
    unshareable: str | None = None
    """Why other runs must not take this result; None if they may."""


class Attempt:
    """One attempt of a node, with its journal, files and context if it takes a context."""

    __slots__ = ("_files", "_journal", "_run", "context")

    def __init__(
        self,
        run: NodeRun,
        journal: CallJournal | None = None,
        files: NodeFiles | None = None,
        context: EngineContext | None = None,
    ) -> None:
        self._run = run
        self._journal = journal
        self._files = files
        self.context = context

    @property
    def run(self) -> NodeRun:
        """The current node run, with its count of calls and its spending so far."""
        return self._run if self._journal is None else self._journal.measured()

    def unasked(self) -> tuple[ToolCall, ...]:
        """Return external calls that an earlier attempt made and this one never asked for."""
        return () if self._journal is None else self._journal.unasked()

    def unasked_lost(self) -> tuple[AnchoredCall, ...]:
        """Return calls that the store has lost and that this attempt never asked for."""
        return () if self._journal is None else self._journal.unasked_lost()

    def report(self) -> NodeReport:
        """Return what it used, and the nodes that ran inside it."""
        if self.context is None or self._journal is None:
            return NO_REPORT
        used, inside = self._journal.usage, self.context.inside
        if used is NOTHING and not inside:
            return NO_REPORT
        return NodeReport(usage=None if used is NOTHING else used.to_data(), inside=tuple(inside))

    def completed(self, ms: float) -> NodeRun:
        """Return the node run with its figures; this attempt has succeeded in `ms` milliseconds."""
        if self._journal is not None:
            return self._journal.completed(ms)
        known = self._run.figures
        return self._run.measured(Figures(ms=ms) if known is None else replace(known, ms=ms))

    def spent(self) -> Usage:
        """Return what it has used, whether or not it succeeded."""
        return NOTHING if self._journal is None else self._journal.spent

    def files(self) -> PreparedCommit | None:
        """Return the files that it left in the workspace; None if it never used the workspace."""
        return None if self._files is None else self._files.left()

    def unshareable(self) -> str | None:
        """Return why other runs must not take its result: it asked a person, or made an external call."""
        return None if self._journal is None else self._journal.unshareable()

    def record_question(self, call: ToolCall) -> None:
        """Record a question that nobody has answered yet."""
        assert self._journal is not None
        self._journal.intend(call)

    def end_messages(self) -> None:
        """Write the messages that it has emitted and logged. Call this before writing anything about its end."""
        if self._journal is not None:
            self._journal.end_messages()

    def revoke(self) -> None:
        """Refuse all further calls and questions of this attempt."""
        if self._journal is not None:
            self._journal.revoke()

    def give_back_files(self, error: BaseException | None = None) -> None:
        """Release its workspace, unless the attempt was given up: then it may still be writing there."""
        if self._files is None:
            return
        if isinstance(error, NodeTimeout | RunTimeout | LoopGone):
            self._files.give_up()
        else:
            self._files.give_back()
