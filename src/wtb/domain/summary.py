"""RunSummary: what a run used on the way to its head, by node and by tool, and counts of its events."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from wtb.domain.checkpoint import NodeRun
from wtb.domain.display import Display, Displayed, DisplayTable, counted
from wtb.domain.event_catalogue import NodeFailed, NodeRetried
from wtb.domain.events import Event, EventType, Severity, bodies
from wtb.domain.history import ExecutionHistory
from wtb.domain.line_figures import LineFigures, ms_of
from wtb.domain.tools import CallKind, CallStatus, ToolCall

_SKIPPED_KINDS = (CallKind.ASK, CallKind.CHECKPOINT)
"""These are not tool calls, and the time of a question is spent by a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFigures:
    """The calls of one tool or recorded step along the line; failed tries count, recorded answers do not."""

    tool: str
    kind: CallKind
    calls: int = 0
    failures: int = 0
    total: timedelta = timedelta()

    @property
    def mean(self) -> timedelta:
        """The time of one call."""
        return self.total / self.calls if self.calls else timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFigures:
    """One node's visits on the active branch with the time of their last attempts; failures and retries anywhere."""

    node: str
    visits: int
    failures: int
    retries: int
    total: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary(Displayed):
    """What a run used by node and tool, in the order they first ran, and its events, most frequent first.

    `line`, `tools` and `nodes` are about the line to the head; the events are those of the run on all lines.
    """

    line: LineFigures
    types: Mapping[EventType, int]
    severities: Mapping[Severity, int]
    tools: tuple[ToolFigures, ...]
    nodes: tuple[NodeFigures, ...]

    def _display(self) -> Display:
        nodes = [(each.node, each.visits, each.failures, each.retries, _duration(each.total)) for each in self.nodes]
        tools = [(each.tool, each.calls, each.failures, _duration(each.total)) for each in self.tools]
        used = self.line.usage.totals()
        figures = [counted(self.line.steps, "step"), _duration(timedelta(seconds=self.line.latency_s))]
        return Display(
            title=", ".join([*figures, *(f"{name} {value:g}" for name, value in used.items() if value)]),
            tables=tuple(
                DisplayTable.of(headings, rows)
                for headings, rows in (
                    (("node", "visits", "failures", "retries", "time"), nodes),
                    (("tool", "calls", "failures", "time"), tools),
                )
                if rows
            ),
        )

    @classmethod
    def of(cls, events: Iterable[Event], calls: Iterable[ToolCall], history: ExecutionHistory) -> RunSummary:
        """Sum up a run: its events, the calls that its nodes recorded, and its history."""
        events, runs = tuple(events), history.runs()
        on_line = {run.id for run in runs}
        severities = Counter(event.severity for event in events)
        return cls(
            line=LineFigures.of(history),
            types=dict(Counter(event.type for event in events).most_common()),
            severities={severity: severities[severity] for severity in Severity},
            tools=tuple(_tools(call for call in calls if call.node_run_id in on_line)),
            nodes=tuple(_nodes(events, runs)),
        )


def _duration(time: timedelta) -> str:
    seconds = time.total_seconds()
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms" if seconds >= 0.001 else "<1 ms"


def _tools(calls: Iterable[ToolCall]) -> Iterable[ToolFigures]:
    kinds: dict[str, CallKind] = {}
    made: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    ms: dict[str, float] = defaultdict(float)
    for call in calls:
        if call.kind in _SKIPPED_KINDS:
            continue
        kinds.setdefault(call.tool, call.kind)
        has_failed = call.status is CallStatus.FAILED
        failures = max(call.figures.failures, has_failed)  # calls in older databases have no count of failures
        made[call.tool] += failures + (not has_failed)
        failed[call.tool] += failures
        ms[call.tool] += call.figures.failed_ms + (0.0 if has_failed and call.figures.failures else call.ms)
    for tool, kind in kinds.items():
        total = timedelta(milliseconds=ms[tool])
        yield ToolFigures(tool=tool, kind=kind, calls=made[tool], failures=failed[tool], total=total)


def _nodes(events: Iterable[Event], runs: Iterable[NodeRun]) -> Iterable[NodeFigures]:
    events = tuple(events)
    failures = Counter(body.node for body in bodies(events, NodeFailed))
    retries = Counter(body.node for body in bodies(events, NodeRetried))
    visits: Counter[str] = Counter()
    total: dict[str, timedelta] = {}
    for run in runs:
        visits[run.node] += 1
        total[run.node] = total.get(run.node, timedelta()) + timedelta(milliseconds=ms_of(run))
    for node, time in total.items():
        yield NodeFigures(
            node=node,
            visits=visits[node],
            failures=failures[node],
            retries=retries[node],
            total=time,
        )
