"""`wtb ls`, `show`, `history`: what runs there are and what they did."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from wtb.bench import Bench, Run
from wtb.cli.output import as_json, url
from wtb.cli.replay import show_replay
from wtb.cli.runs import report
from wtb.domain.checkpoint import Checkpoint
from wtb.domain.errors import InvalidInput
from wtb.domain.events import Severity
from wtb.domain.execution import ExecutionStatus

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@click.command()
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([status.value for status in ExecutionStatus]),
    help="Only these.",
)
@click.option("--workflow", help="Only runs of this workflow.")
@click.option("--since", metavar="AGE", help="Only runs begun within this time: 30m, 12h, 7d.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True)
@click.option("--offset", type=click.IntRange(0), default=0, help="Leave out so many of the newest.")
@url
@as_json
def ls(
    *,
    statuses: tuple[str, ...],
    workflow: str | None,
    since: str | None,
    limit: int,
    offset: int,
    url: str | None,
    as_json: bool,
) -> None:
    """List runs, newest first."""
    with Bench(url) as bench:
        executions = [
            run.execution
            for run in bench.list_runs(
                statuses=[ExecutionStatus(status) for status in statuses],
                workflow=workflow,
                since=None if since is None else datetime.now(UTC) - _age(since),
                limit=limit,
                offset=offset,
            )
        ]
    rows = [
        {
            "run": execution.id,
            "workflow": execution.workflow_name,
            "status": execution.status.value,
            "created": execution.created_at,
            "updated": execution.updated_at,
        }
        for execution in executions
    ]
    _print(rows, as_json=as_json, empty="No runs here yet; `wtb run file.py` makes one.")


@click.command("show")
@click.argument("run_id", metavar="RUN")
@click.option("--events", is_flag=True, help="Show what was recorded of the run instead.")
@click.option("--errors", is_flag=True, help="With --events: only errors.")
@click.option("--tools", is_flag=True, help="With --events: only calls of tools.")
@click.option("--replay", is_flag=True, help="Compare the record with what the workflow as it is now makes of it.")
@click.option("--workflow", metavar="WORKFLOW", help="With --replay: where the workflow is now, if not where it was.")
@url
@as_json
def show_run(
    *,
    run_id: str,
    events: bool,
    errors: bool,
    tools: bool,
    replay: bool,
    workflow: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Show how a run stands: status, state, error or question."""
    with Bench(url) as bench:
        run = bench.get(run_id)
        if replay:
            show_replay(run, workflow, as_json=as_json)
        elif events or errors or tools:
            _print(_events(run, errors=errors, tools=tools), as_json=as_json, empty="Nothing was recorded.")
        else:
            report(run, as_json=as_json)


def _events(run: Run, *, errors: bool, tools: bool) -> list[dict[str, Any]]:
    found = run.events(severities=[Severity.ERROR] if errors else (), limit=100_000)
    return [
        {"at": event.at, "event": event.type.value, "data": dict(event.data)}
        for event in found
        if not tools or event.type.startswith("tool.")
    ]


@click.command()
@click.argument("run_id", metavar="RUN")
@url
@as_json
def history(run_id: str, url: str | None, as_json: bool) -> None:
    """List the checkpoints of a run: step, node, visit, what made them, size and time."""
    with Bench(url) as bench:
        rows = [_row(checkpoint) for checkpoint in bench.get(run_id).history.lineage()]
    _print(rows, as_json=as_json, empty="No checkpoints.")


def _row(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "step": checkpoint.step,
        "node": checkpoint.node or "",
        "visit": checkpoint.visit or "",
        "trigger": checkpoint.trigger.value,
        "name": checkpoint.name or "",
        "size": checkpoint.size_bytes,
        "at": checkpoint.created_at,
        "checkpoint": checkpoint.id,
    }


def _print(rows: list[dict[str, Any]], *, as_json: bool, empty: str) -> None:
    if as_json:
        click.echo(json.dumps(rows, default=datetime.isoformat))
        return
    if not rows:
        click.echo(empty)
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in rows[0]:
        table.add_column(heading, overflow="fold", no_wrap=heading not in ("data", "name"))
    for row in rows:
        table.add_row(*(_cell(heading, value) for heading, value in row.items()))
    Console().print(table)


def _cell(heading: str, value: Any) -> str:
    """Return a value as a person reads it: local time, the part of a checkpoint's id that tells it from others."""
    if isinstance(value, datetime):
        return value.astimezone().strftime("%m-%d %H:%M:%S")
    if isinstance(value, dict):
        return " ".join(f"{key}={item}" for key, item in value.items() if key != "checkpoint")
    return value[:18] if heading == "checkpoint" else str(value)


def _age(text: str) -> timedelta:
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isdigit():
        raise InvalidInput(f"--since takes a number and m, h, d or w, as 12h; not {text!r}")
    return timedelta(**{_UNITS[unit]: int(number)})
