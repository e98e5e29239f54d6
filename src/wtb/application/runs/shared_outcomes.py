"""Share: stores the outcome of a node run for other runs; and the outcome of a run that takes a shared result."""

from __future__ import annotations

from dataclasses import dataclass

from wtb.application.node_cache import SharedResult, Sharing
from wtb.application.runs.node_attempt import Outcome
from wtb.application.runs.steps import NodeReport
from wtb.domain.checkpoint import NodeRun
from wtb.domain.figures import NO_FIGURES, NOTHING, Figures, Usage
from wtb.domain.files import FileCommitId
from wtb.domain.observation import Window
from wtb.domain.ports import UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Stores a result for other runs, in the transaction of the step that it belongs to."""

    sharing: Sharing
    key: bytes
    window: Window
    outcome: Outcome
    has_files: bool
    known: str | None
    """The commit of the files, if the step leaves them unchanged."""

    def __call__(self, uow: UnitOfWork, file_commit: str | None) -> None:
        """Store the result, given the commit of the step's files."""
        figures = self.outcome.run.figures or NO_FIGURES
        result = SharedResult(
            returned=self.outcome.returned or {},
            file_commit=file_commit if self.has_files else self.known,
            usage=self.outcome.report.usage or {},
            ms=figures.ms,
            tool_errors=figures.tool_errors,
            window=self.window,
            held=self.sharing.fingerprints[self.outcome.run.node].held,
        )
        self.sharing.settle(uow, self.key, result)


def why_unshareable(outcome: Outcome) -> str | None:
    """Return why other runs must not take an outcome; None if they may."""
    return "it waits for a person" if outcome.pause is not None else outcome.unshareable


def outcome_of(run: NodeRun, result: SharedResult, base: str | None) -> Outcome:
    """Return a shared result as if the node had run here."""
    report = NodeReport(
        shared=True,
        usage=dict(result.usage) if result.usage else None,
        tool_errors=result.tool_errors,
        trace=None if result.window is None else result.window.to_data(),
    )
    usage = Usage.from_data(result.usage) if result.usage else NOTHING
    figures = Figures(ms=result.ms, usage=usage, tool_errors=result.tool_errors, is_shared=True)
    changed = result.file_commit is not None and result.file_commit != base
    return Outcome(
        run=run.measured(figures),
        returned=result.returned,
        report=report,
        taken=FileCommitId(str(result.file_commit)) if changed else None,
    )
