"""`wtb events`, and the list of events in `wtb show --events`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from wtb.application.queries.service import Queries
from wtb.application.queries.views import EventPage
from wtb.bench import Bench
from wtb.cli.output import as_json, duration, echo, example, print_json_rows, show_rows, text_of, url
from wtb.cli.views.live import usage
from wtb.domain.display import counted
from wtb.domain.errors import InvalidInput
from wtb.domain.events import SYSTEM_STREAM, EventType, RecordedEvent, Severity
from wtb.domain.filters import event_types

EVENTS = 100
"""How many events people see by default."""
_UNSAID: tuple[str, ...] = ("node", "visit", "checkpoint", "call", "worker", "by")
"""Fields that the text of an event leaves out, or shows elsewhere."""


@click.command()
@click.option("--run", "run_id", metavar="RUN", help="Only events of this run; for a deleted run give the full id.")
@click.option("--batch", metavar="BATCH", help="Only events of this batch (name or id), without those of its runs.")
@click.option("--system", is_flag=True, help="Only events that belong to no run and no batch.")
@click.option("--deleted", is_flag=True, help="Only deletions of runs; the column `stream` has the id of the run.")
@click.option(
    "--severity",
    type=click.Choice([severity.value for severity in Severity]),
    help="Only events of this severity or above: `warning` means warnings and errors.",
)
@click.option(
    "--type",
    "types",
    metavar="TYPE",
    multiple=True,
    help="Only events of this type, such as node.failed, or this group, such as `node`; repeatable.",
)
@click.option("--limit", type=click.IntRange(1), default=EVENTS, show_default=True, help="Show this many events.")
@click.option("--before", type=click.IntRange(1), metavar="POSITION", help="Show the events before this position.")
@click.option("--after", type=click.IntRange(0), metavar="POSITION", help="Show the first events after this position.")
@url
@as_json
@example("wtb events --severity error", "wtb events --batch support_qa", "wtb events --deleted")
def events(
    *,
    run_id: str | None,
    batch: str | None,
    system: bool,
    deleted: bool,
    severity: str | None,
    types: Sequence[str],
    url: str | None,
    as_json: bool,
    **bounds: Any,
) -> None:
    """List the recorded events of all runs and batches, even of deleted runs.

    You see the latest events; --before and --after page through the others.
    """
    if sum(map(bool, (run_id, batch, system))) > 1:
        raise InvalidInput("give only one of --run, --batch and --system")
    wanted = event_types((*types, EventType.EXECUTION_DELETED) if deleted else types)
    with Bench(url) as bench:
        queries = bench.services.queries
        stream = SYSTEM_STREAM if system else None
        if run_id is not None:
            stream = queries.run_stream(run_id)
        elif batch is not None:
            stream = queries.batch(batch).batch.id
        page = queries.event_page(stream, types=wanted, severities=_severities(Severity(severity or "info")), **bounds)
    shown = event_data if as_json else event_row
    rows = [{"position": event.position, "stream": event.stream, **shown(event)} for event in page.events]
    if not as_json:  # here --before and --after take a position
        rows = [{heading: value for heading, value in row.items() if heading != "number"} for row in rows]
    show_rows(rows, as_json=as_json, empty="No events.")
    if not as_json and page.events:
        _tell_of_others(page, page.events[0].position, page.events[-1].position)


def show_events(
    queries: Queries,
    run: str,
    *,
    severity: str | None,
    errors: bool,
    tools: bool,
    types: Sequence[str],
    limit: int | None,
    before: int | None,
    after: int | None,
    as_json: bool,
) -> None:
    """Print the matching events of a run; with --json and no bound, all of them."""
    wanted: dict[str, Any] = {
        "types": event_types((*types, "tool") if tools else types),
        "severities": _severities(Severity("error" if errors else severity or "info")),
    }
    if as_json and limit is None and before is None and after is None:
        print_json_rows(map(event_data, queries.each_event(run, **wanted)))
        return
    page = queries.event_page(run, by="sequence", before=before, after=after, limit=limit or EVENTS, **wanted)
    rows = [event_data(event) if as_json else event_row(event) for event in page.events]
    show_rows(rows, as_json=as_json, empty="No events." if after is None else "No later events.")
    if not as_json and page.events:
        _tell_of_others(page, page.events[0].sequence, page.events[-1].sequence)


def _tell_of_others(page: EventPage, first: int, last: int) -> None:
    if page.has_earlier:
        echo(f"There are earlier events: add `--before {first}`, or `--limit` with a larger number.")
    if page.has_later:
        echo(f"There are later events: add `--after {last}`.")


def _severities(least: Severity) -> list[Severity]:
    """Return this severity and all above it; an empty list, which filters nothing, for the lowest."""
    order = list(Severity)
    return order[order.index(least) :] if least is not order[0] else []


def event_data(event: RecordedEvent) -> dict[str, Any]:
    """Return an event for programs."""
    return {
        "number": event.sequence,
        "at": event.at,
        "severity": event.severity.value,
        "event": event.type.value,
        "data": dict(event.data),
    }


def event_row(event: RecordedEvent) -> dict[str, Any]:
    """Return an event for people: one row of a table."""
    row = event_data(event)
    del row["data"]  # the widest column comes last
    return {**row, "by": event.data.get("by", ""), "data": _facts(event)}


def _facts(event: RecordedEvent) -> str:
    """Return the data of an event for people: node and tool first, then the rest without ids and without the name."""
    data, unsaid = event.data, _UNSAID
    if event.type.startswith("rollback."):
        unsaid += ("from", "to")
    rest = {key: item for key, item in data.items() if key not in unsaid and item is not None}
    where = [f"{data['node']}#{data['visit']}" if "visit" in data else data.get("node") or ""]
    where.append(rest.pop("tool", ""))
    if "ms" in rest:
        where.append(duration(rest.pop("ms") / 1000))
    if "usage" in rest:
        where.append(usage(rest.pop("usage")))
    if "calls" in rest:
        where.append(counted(len(rest.pop("calls")), "call"))
    return " ".join(filter(None, [*where, *(f"{key}={_text(item)}" for key, item in rest.items())]))


def _text(item: Any) -> str:
    """Return a value in one line; a list of names as people write it."""
    is_list = isinstance(item, list) and all(isinstance(each, str) for each in item)
    return text_of(", ".join(item) if is_list else item, str)
