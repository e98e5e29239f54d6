"""The events of a run, as `wtb show --events` lists them: a page of them for people, all of them for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wtb.application.queries.service import Queries
from wtb.application.queries.views import EventPage
from wtb.cli.live import usage
from wtb.cli.output import duration, echo, print_json_rows, show_rows, text_of
from wtb.domain.errors import InvalidInput
from wtb.domain.events import EventType, RecordedEvent, Severity

EVENTS = 100
"""Events that people are shown unless they ask for another number."""
_NOUNS = sorted({kind.partition(".")[0] for kind in EventType})


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
    """Print events of a run that fit; programs get all of them unless they give a bound."""
    wanted: dict[str, Any] = {
        "types": _types((*types, "tool") if tools else types),
        "severities": _severities(Severity("error" if errors else severity or "info")),
    }
    if as_json and limit is None and before is None and after is None:
        print_json_rows(map(_data, queries.each_event(run, **wanted)))
        return
    page = queries.event_page(run, before=before, after=after, limit=limit or EVENTS, **wanted)
    rows = [_data(event) if as_json else _row(event) for event in page.events]
    show_rows(rows, as_json=as_json, empty="Nothing was recorded." if after is None else "Nothing was recorded later.")
    if not as_json and page.events:
        _tell_of_others(page)


def _tell_of_others(page: EventPage) -> None:
    first, last = page.events[0].sequence, page.events[-1].sequence
    if page.has_earlier:
        echo(f"There are earlier events: add `--before {first}`, or `--limit` with a larger number.")
    if page.has_later:
        echo(f"There are later events: add `--after {last}`.")


def _types(names: Sequence[str]) -> list[EventType]:
    for unknown in set(names) - set(EventType) - set(_NOUNS):
        raise InvalidInput(f"--type {unknown}: no event is called so; give one as node.failed, or {', '.join(_NOUNS)}")
    return [kind for kind in EventType if kind in names or kind.partition(".")[0] in names]


def _severities(least: Severity) -> list[Severity]:
    """Return the severities from this one on; none, which filters nothing, when that is all of them."""
    order = list(Severity)
    return order[order.index(least) :] if least is not order[0] else []


def _data(event: RecordedEvent) -> dict[str, Any]:
    return {
        "number": event.sequence,
        "at": event.at,
        "severity": event.severity.value,
        "event": event.type.value,
        "data": dict(event.data),
    }


def _row(event: RecordedEvent) -> dict[str, Any]:
    return {**_data(event), "data": _said(event.data)}


def _said(data: Mapping[str, Any]) -> str:
    """Return what an event tells people: the node first, then all but the ids."""
    rest = {key: item for key, item in data.items() if key not in ("node", "visit", "checkpoint", "call")}
    where = f"{data['node']}#{data['visit']}" if "visit" in data else data.get("node") or ""
    if "ms" in rest:
        where += f" {duration(rest.pop('ms') / 1000)}"
    if "usage" in rest:
        where += f" {usage(rest.pop('usage'))}"
    return " ".join([where, *(f"{key}={text_of(item, str)}" for key, item in rest.items())]).strip()
