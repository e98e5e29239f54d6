"""The audit trail: who changed what, summaries, the use of tools, and checks of the chain of events."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from wtb.api.models.base import AnswerModel, example
from wtb.domain.audit import AuditCounts, ChainCheck, ToolUse


class AuditEntryAnswer(AnswerModel):
    """One event of the audit trail."""

    by: str | None = Field(description="Who caused it: a person, or the name of a token.")
    position: int = Field(description="Its number in the whole log.")
    type: str = Field(examples=["token.created"])
    severity: str = Field(examples=["info"])
    stream: str = Field(description="The id of the execution or batch that it belongs to, or `system`.")
    sequence: int
    at: datetime
    hash: str = Field(description="Covers the event and the hash before it in its stream; hexadecimal.")
    data: dict[str, object] = Field(description="The facts. Secrets are masked.")


class AuditListAnswer(AnswerModel):
    """One page of the audit trail, newest first."""

    items: list[AuditEntryAnswer]
    next: str | None = Field(description="The `cursor` of the next page; null if this is the last one.")
    faults: list[str] = Field(description="Events that cannot be shown because they do not match their hash.")


class AuditSummaryAnswer(AnswerModel):
    """How often what happened, and who caused how much."""

    events: int
    types: dict[str, int]
    severities: dict[str, int]
    people: dict[str, int] = Field(description="Of the newest 20,000 events that name somebody.")

    model_config = example(
        events=329,
        types={"node.completed": 77, "execution.created": 36},
        severities={"info": 328, "error": 1},
        people={"ci": 120, "ada": 9},
    )

    @classmethod
    def of(cls, counts: AuditCounts) -> AuditSummaryAnswer:
        """Return the answer for counts; most frequent first."""

        def ranked(found: dict[str, int]) -> dict[str, int]:
            return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

        return AuditSummaryAnswer(
            events=sum(counts.types.values()),
            types=ranked({kind.value: count for kind, count in counts.types.items()}),
            severities=ranked({kind.value: count for kind, count in counts.severities.items()}),
            people=ranked({_legible(name): count for name, count in counts.people.items()}),
        )


class ToolUseAnswer(AnswerModel):
    """How one tool was used, in all runs."""

    tool: str
    calls: int
    failures: int
    runs: int = Field(description="How many runs called it.")
    mean_ms: float
    longest_ms: float

    model_config = example(tool="create_ticket", calls=12, failures=1, runs=9, mean_ms=180.5, longest_ms=950.2)

    @classmethod
    def of(cls, use: ToolUse) -> ToolUseAnswer:
        """Return the answer for the use of a tool."""
        return ToolUseAnswer(
            tool=_legible(use.tool),
            calls=use.calls,
            failures=use.failures,
            runs=use.runs,
            mean_ms=round(use.mean.total_seconds() * 1000, 3),
            longest_ms=round(use.longest.total_seconds() * 1000, 3),
        )


class ChainCheckAnswer(AnswerModel):
    """What a check of some events found."""

    checked: int = Field(description="How many events this request has checked.")
    faults: list[str] = Field(description="Events that are missing, or do not match their hash.")
    next: str | None = Field(description="The `cursor` of the next request; null if the end is reached.")

    model_config = example(checked=329, faults=[], next="330")

    @classmethod
    def of(cls, check: ChainCheck) -> ChainCheckAnswer:
        """Return the answer for a check."""
        following = None if check.after is None else str(check.after)
        return ChainCheckAnswer(checked=check.checked, faults=[*map(_legible, check.faults)], next=following)


def _legible(text: str) -> str:
    """Return a text as JSON in UTF-8 can hold it: names may come from anywhere."""
    return text.encode("utf-8", "backslashreplace").decode()
