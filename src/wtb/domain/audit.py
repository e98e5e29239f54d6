"""The audit trail: who changed what, how often what happened, what tools did, and whether the chain of events holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from wtb.domain.errors import InvalidInput
from wtb.domain.event_catalogue import SEVERITIES
from wtb.domain.events import EventType, RecordedEvent, Severity
from wtb.domain.feed import EVERY_EVENT, EventFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A span of time; None is open."""

    since: datetime | None = None
    until: datetime | None = None
    """Exclusive."""

    def holds(self, at: datetime) -> bool:
        """Whether a time lies in it."""
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


ALL_TIME = Period()


_WORK = frozenset({"node", "tool", "worker", "environment", "evaluation", "limit", "breaker", "background"})
DECISIONS = tuple(kind for kind in EventType if kind.partition(".")[0] not in _WORK or kind is EventType.NODE_REPLACED)
"""Events of what somebody decided. The others are the work that follows, thousands of events for one decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which events of the log somebody wants to audit."""

    wanted: EventFilter = EVERY_EVENT
    period: Period = ALL_TIME
    is_named: bool = False
    """Only events that name who caused them."""
    without_batch_runs: bool = False
    """Leave out the runs that batches made; only the store knows them."""
    by: str | None = None
    """Only what this person or token caused."""

    @classmethod
    def of(
        cls,
        *,
        types: Sequence[EventType] = (),
        severities: Sequence[Severity] = (),
        streams: Sequence[str] = (),
        has_runs: bool = False,
        period: Period = ALL_TIME,
        by: str | None = None,
        errors: bool = False,
        tools: bool = False,
        everything: bool = False,
    ) -> AuditFilter:
        """Return the filter for what somebody asks.

        Without types, it keeps what people and tokens decided. `errors` and `tools` keep a part of the work that
        follows, `everything` keeps all. `has_runs` says that some streams are runs, which a batch may have made.
        """
        given = types
        if tools:
            given = [kind for kind in types or EventType if kind.partition(".")[0] == "tool"]
            if not given:
                raise InvalidInput(
                    "`tools` shows events of tools only; leave the type out, or name one such as tool.failed"
                )
        is_named = not (everything or errors or tools)
        is_about_decisions = is_named and not given
        return AuditFilter(
            wanted=EventFilter.of(
                DECISIONS if is_about_decisions else given, [Severity.ERROR] if errors else severities, streams
            ),
            period=period,
            is_named=is_named,
            without_batch_runs=is_about_decisions and not has_runs,
            by=by,
        )

    def fits(self, event: RecordedEvent) -> bool:
        """Whether an event belongs to the audit, as far as the event itself tells."""
        who = who_caused(event)
        return (
            self.wanted.fits(event)
            and self.period.holds(event.at)
            and (who is not None or not (self.is_named or self.by is not None))
            and (self.by is None or who == self.by)
        )


def who_caused(event: RecordedEvent) -> str | None:
    """Return the name of the person or token that caused an event, if it has one."""
    who = event.data.get("by")
    return who if isinstance(who, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """Events, newest first."""

    events: tuple[RecordedEvent, ...]
    before: int | None
    """The position before which the next page ends; None if this is the last one."""
    faults: tuple[str, ...] = ()
    """What is wrong with events that cannot be shown because they do not match their hash."""


NAMED_COUNTED = 20_000
"""Of how many events that name somebody, the newest ones, people are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCounts:
    """How often each type of event occurred, and who caused how many."""

    types: Mapping[EventType, int]
    people: Mapping[str, int]

    @property
    def severities(self) -> Mapping[Severity, int]:
        """How often each severity occurred."""
        found: dict[Severity, int] = {}
        for kind, count in self.types.items():
            found[SEVERITIES[kind]] = found.get(SEVERITIES[kind], 0) + count
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """The calls of one tool in all runs; a call that is still open has no duration."""

    tool: str
    calls: int
    failures: int
    runs: int
    total: timedelta
    longest: timedelta
    ended: int

    @property
    def mean(self) -> timedelta:
        """The time of one call."""
        return self.total / self.ended if self.ended else timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainCheck:
    """What a check of some events found: whether each matches its hash and the event before it."""

    checked: int
    faults: tuple[str, ...]
    after: int | None
    """The number after which the check goes on; None if it has reached the end."""
