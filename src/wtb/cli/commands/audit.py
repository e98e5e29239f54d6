"""`wtb audit`: who changed what, how often what happened, what tools did, and whether the log can be trusted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from wtb.application.queries.service import Queries
from wtb.bench import Bench
from wtb.cli.commands.events import event_data, event_row
from wtb.cli.exit_codes import UNEXPECTED
from wtb.cli.output import as_json, duration, echo, example, print_json, print_table, show_rows, url
from wtb.cli.times import point
from wtb.domain.audit import NAMED_COUNTED, AuditFilter, Period, who_caused
from wtb.domain.display import counted
from wtb.domain.errors import InvalidInput
from wtb.domain.events import RecordedEvent, Severity
from wtb.domain.filters import event_types

_CHECKED_AT_A_TIME = 5_000


@click.group("audit")
def audit_group() -> None:
    """Show who changed what, how tools were used, and whether somebody has changed the log."""


def _period(command: Callable[..., Any]) -> Callable[..., Any]:
    until = click.option("--until", metavar="TIME", help="Only before this time.")
    since = click.option(
        "--since", metavar="TIME", help="Only from this time on: an age such as 12h or 7d, or 2026-11-18T09:30."
    )
    return since(until(command))


def _period_of(since: str | None, until: str | None) -> Period:
    return Period(
        since=None if since is None else point(since, "--since"),
        until=None if until is None else point(until, "--until"),
    )


@audit_group.command("ls")
@click.option("--by", metavar="NAME", help="Only what this person or token caused.")
@_period
@click.option("--run", "run_id", metavar="RUN", help="Only of this run; for a deleted run give the full id.")
@click.option("--batch", metavar="BATCH", help="Only of this batch (name or id), without its runs.")
@click.option(
    "--type",
    "types",
    metavar="TYPE",
    multiple=True,
    help="Only events of this type, such as rollback.completed, or this group, such as `rollback`; repeatable.",
)
@click.option(
    "--severity",
    "severities",
    type=click.Choice([severity.value for severity in Severity]),
    multiple=True,
    help="Only events of exactly this severity; repeatable.",
)
@click.option("--errors", is_flag=True, help="Only errors, whoever caused them.")
@click.option("--tools", is_flag=True, help="Only events of tools, whoever caused them.")
@click.option("--everything", is_flag=True, help="Also what nobody decided, such as finished nodes.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Show this many events.")
@click.option("--before", type=click.IntRange(1), metavar="POSITION", help="Show the events before this position.")
@url
@as_json
@example("wtb audit ls --since 7d", "wtb audit ls --by ann --type rollback", "wtb audit ls --errors")
def list_events(
    *,
    since: str | None,
    until: str | None,
    run_id: str | None,
    batch: str | None,
    types: Sequence[str],
    severities: Sequence[str],
    limit: int,
    before: int | None,
    url: str | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """List what people and tokens decided, newest first.

    Work that follows from a decision is left out: finished nodes, calls of tools, and the runs that a batch made.
    """
    if run_id is not None and batch is not None:
        raise InvalidInput("give only one of --run and --batch")
    with Bench(url) as bench:
        queries = bench.services.queries
        wanted = AuditFilter.of(
            types=event_types(types),
            severities=[Severity(each) for each in severities],
            streams=_streams(queries, run_id, batch),
            has_runs=run_id is not None,
            period=_period_of(since, until),
            **asked,
        )
        events, faults, following = _page(queries, wanted, before, limit)
    if as_json:
        rows = [{"position": event.position, "stream": event.stream, **event_data(event)} for event in events]
        rows = [{**row, "by": who_caused(event)} for row, event in zip(rows, events, strict=True)]
        print_json({"events": rows, "before": following, "faults": faults})
        return
    show_rows([_row(event) for event in events], as_json=False, empty="No such events.")
    for fault in faults:
        echo(fault, err=True)
    if following is not None and events:
        echo(f"There are earlier events: add `--before {following}`, or `--limit` with a larger number.")


def _streams(queries: Queries, run_id: str | None, batch: str | None) -> list[str]:
    if run_id is not None:
        return [queries.run_stream(run_id)]
    return [] if batch is None else [queries.batch(batch).batch.id]


def _page(
    queries: Queries, wanted: AuditFilter, before: int | None, limit: int
) -> tuple[list[RecordedEvent], list[str], int | None]:
    """Return so many events, what is wrong with others, and the position before which the next page ends."""
    events: list[RecordedEvent] = []
    faults: list[str] = []
    while True:
        page = queries.audit_page(wanted, before=before, limit=limit - len(events))
        events += page.events
        faults += page.faults
        before = page.before
        if before is None or len(events) >= limit:
            return events, faults, before


def _row(event: RecordedEvent) -> dict[str, Any]:
    row = event_row(event)
    return {
        "at": row["at"],
        "by": who_caused(event) or "",
        "event": row["event"],
        "stream": event.stream,
        "data": row["data"],
    }


@audit_group.command("summary")
@_period
@url
@as_json
@example("wtb audit summary --since 7d")
def summary(*, since: str | None, until: str | None, url: str | None, as_json: bool) -> None:
    """Count what happened, by person, severity and type."""
    with Bench(url) as bench:
        counts = bench.services.queries.audit_counts(_period_of(since, until))
    people, severities, types = _ranked(counts.people), _ranked(counts.severities), _ranked(counts.types)
    if as_json:
        print_json({"people": people, "severities": severities, "types": types})
        return
    echo(f"{counted(sum(types.values()), 'event')}.")
    for noun, found in (("by", people), ("severity", severities), ("event", types)):
        if found:
            echo()
            print_table([{noun: name, "count": count} for name, count in found.items()])
        if noun == "by" and sum(found.values()) >= NAMED_COUNTED:
            echo(f"People are counted in the newest {NAMED_COUNTED:,} events that name somebody.")


def _ranked(counts: Mapping[Any, int]) -> dict[str, int]:
    return {str(name): count for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))}


@audit_group.command("tools")
@_period
@url
@as_json
@example("wtb audit tools --since 7d")
def tools(*, since: str | None, until: str | None, url: str | None, as_json: bool) -> None:
    """Show how often each tool was called, how often it failed, and how long it took."""
    with Bench(url) as bench:
        found = bench.services.queries.tool_use(_period_of(since, until))
    rows = [
        {
            "tool": use.tool,
            "calls": use.calls,
            "failures": use.failures,
            "runs": use.runs,
            "mean": use.mean if as_json else duration(use.mean),
            "longest": use.longest if as_json else duration(use.longest),
        }
        for use in found
    ]
    show_rows(rows, as_json=as_json, empty="No tool was called.")


@audit_group.command("verify")
@click.option("--stream", metavar="ID", help="Only the events of this run or batch (full id), or of `system`.")
@url
@as_json
@example("wtb audit verify")
def verify(*, stream: str | None, url: str | None, as_json: bool) -> None:
    """Check that nobody has changed, removed or added an event.

    Every event carries a hash that covers it and the event before it. The command exits with 1 if one does not fit.
    `wtb doctor` checks all other data, too.
    """
    checked, faults, after = 0, list[str](), 0
    with Bench(url) as bench:
        while True:
            found = bench.services.queries.check_chain(stream, after=after, limit=_CHECKED_AT_A_TIME)
            checked += found.checked
            faults += found.faults
            if found.after is None:
                break
            after = found.after
    if as_json:
        print_json({"checked": checked, "faults": faults})
    else:
        for fault in faults:
            echo(fault)
        verdict = f"{counted(len(faults), 'fault')} found." if faults else "All of them fit."
        echo(f"{counted(checked, 'event')} checked. {verdict}")
    if faults:
        sys.exit(UNEXPECTED)
