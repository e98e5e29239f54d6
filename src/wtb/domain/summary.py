"""RunSummary: how often things happened in a run and how long they took, computed from what was recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from wtb.domain.checkpoint import NodeBoundary
from wtb.domain.events import Event, EventType, Severity
from wtb.domain.tools import CallKind, ToolCall

_ENDS = (EventType.TOOL_COMPLETED, EventType.TOOL_FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFigures:
    """Calls that were really made of one tool, or of one recorded step; answers from the record are none."""

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
    """Visits of one node on the active branch; failures and retries on all of them."""

    node: str
    visits: int
    failures: int
    retries: int
    total: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """Events by type and severity, most frequent first; tools and nodes in the order in which they came first."""

    types: Mapping[EventType, int]
    severities: Mapping[Severity, int]
    tools: tuple[ToolFigures, ...]
    nodes: tuple[NodeFigures, ...]

    @classmethod
    def of(cls, events: Iterable[Event], calls: Iterable[ToolCall], boundaries: Iterable[NodeBoundary]) -> RunSummary:
        """Count what the events, recorded calls and boundaries of one run tell."""
        events = tuple(events)
        severities = Counter(event.severity for event in events)
        return cls(
            types=dict(Counter(event.type for event in events).most_common()),
            severities={severity: severities[severity] for severity in Severity},
            tools=tuple(_tools(events, calls)),
            nodes=tuple(_nodes(events, boundaries)),
        )


def _tools(events: Iterable[Event], calls: Iterable[ToolCall]) -> Iterable[ToolFigures]:
    """Yield the figures of each tool; questions are left out, since their time is that of a person."""
    kinds = {call.tool: call.kind for call in calls if call.kind is not CallKind.ASK}
    made: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    total = dict.fromkeys(kinds, timedelta())
    began: dict[tuple[object, ...], datetime] = {}
    for event in events:
        tool = event.data.get("tool")
        if tool not in kinds:
            continue
        call = (event.data["node"], event.data["visit"], event.data["call"])
        if event.type is EventType.TOOL_STARTED:
            began[call] = event.at
            made[tool] += 1
        elif event.type in _ENDS and call in began:
            total[tool] += event.at - began.pop(call)
            failed[tool] += event.type is EventType.TOOL_FAILED
    for tool, kind in kinds.items():
        yield ToolFigures(tool=tool, kind=kind, calls=made[tool], failures=failed[tool], total=total[tool])


def _nodes(events: Iterable[Event], boundaries: Iterable[NodeBoundary]) -> Iterable[NodeFigures]:
    counted = {
        kind: Counter(event.data["node"] for event in events if event.type is kind)
        for kind in (EventType.NODE_FAILED, EventType.NODE_RETRIED)
    }
    visits: Counter[str] = Counter()
    total: dict[str, timedelta] = {}
    for boundary in boundaries:
        visits[boundary.node] += 1
        total[boundary.node] = total.get(boundary.node, timedelta()) + (boundary.duration or timedelta())
    for node, time in total.items():
        yield NodeFigures(
            node=node,
            visits=visits[node],
            failures=counted[EventType.NODE_FAILED][node],
            retries=counted[EventType.NODE_RETRIED][node],
            total=time,
        )
