"""`wtb show`: how a run stands, what was recorded of it, and its files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import click

from wtb.bench import Bench
from wtb.cli.commands.files import rows_for_people, rows_for_programs, totals
from wtb.cli.commands.runs import advice, outcome
from wtb.cli.output import (
    as_json,
    counted,
    duration,
    echo,
    echo_facts,
    echo_state,
    example,
    moment,
    print_json,
    print_table,
    show_rows,
    size,
    text_of,
    url,
)
from wtb.cli.views.half_done import half_done
from wtb.cli.views.live import usage
from wtb.cli.views.replay import show_replay
from wtb.domain.errors import InvalidInput
from wtb.domain.events import EventType, RecordedEvent, Severity
from wtb.domain.execution import ExecutionStatus, Neglect
from wtb.domain.history import ExecutionHistory
from wtb.domain.summary import RunSummary
from wtb.loading import load_workflow
from wtb.runs import Run

_NOUNS = sorted({kind.partition(".")[0] for kind in EventType})


@click.command("show")
@click.argument("run_id", metavar="RUN")
@click.option("--traceback", is_flag=True, help="Show where in the code the error was raised.")
@click.option("--files", is_flag=True, help="List the files of the last step.")
@click.option("--at", metavar="CHECKPOINT", help="With --files: those of this step, node, node#2, name or id.")
@click.option("--events", is_flag=True, help="List what was recorded of the run.")
@click.option(
    "--severity",
    type=click.Choice([severity.value for severity in Severity]),
    help="Only events at least that severe: warning means warnings and errors.",
)
@click.option("--errors", is_flag=True, help="Only errors; the same as --severity error.")
@click.option("--tools", is_flag=True, help="Only calls of tools; the same as --type tool.")
@click.option(
    "--type",
    "types",
    metavar="TYPE",
    multiple=True,
    help="Only events of this type, as node.failed, or of all types of a noun, as node; may be given several times.",
)
@click.option("--limit", type=click.IntRange(1), help="Only so many of the latest events.")
@click.option("--replay", is_flag=True, help="Compare the record with what the workflow as it is now makes of it.")
@click.option(
    "--workflow", metavar="WORKFLOW", help="Load it first: for classes of your own in the state, or --replay."
)
@click.option("--summary", is_flag=True, help="Show time, tokens and cost, by node and by tool; count events.")
@url
@as_json
@example("wtb show first --events --severity warning --limit 20", "wtb show first --files --at draft#2")
def show_run(
    *,
    run_id: str,
    traceback: bool,
    files: bool,
    at: str | None,
    events: bool,
    severity: str | None,
    errors: bool,
    tools: bool,
    types: tuple[str, ...],
    limit: int | None,
    replay: bool,
    workflow: str | None,
    summary: bool,
    url: str | None,
    as_json: bool,
) -> None:
    """Show how a run stands: status, where it is, state, error or question; or its events, figures or files.

    RUN is the id, or as much of its beginning as no other run has. With --replay it exits with 3 when something
    differs.
    """
    if workflow:
        load_workflow(workflow)
    with Bench(url) as bench:
        run = bench.get(run_id)
        if files or at is not None:
            _show_files(run, at, as_json=as_json)
        elif replay:
            show_replay(run, workflow, as_json=as_json)
        elif summary:
            _show_summary(run.summary(), as_json=as_json)
        elif events or severity or errors or tools or types or limit:
            wanted = (*types, "tool") if tools else types
            found = _events(run, Severity("error" if errors else severity or "info"), wanted, limit)
            show_rows(_event_rows(found, as_json=as_json), as_json=as_json, empty="Nothing was recorded.")
        elif traceback and not as_json:
            _show_traceback(run)
        else:
            _show_overview(bench, run, as_json=as_json)


def _show_files(run: Run, at: str | None, *, as_json: bool) -> None:
    tree = run.files(at)
    rows = rows_for_programs(tree) if as_json else rows_for_people(tree)
    show_rows(rows, as_json=as_json, empty="No files." if at is None else f"No files at {at}.")


def _events(run: Run, least: Severity, types: tuple[str, ...], limit: int | None) -> list[RecordedEvent]:
    order = list(Severity)
    for unknown in set(types) - set(EventType) - set(_NOUNS):
        raise InvalidInput(f"--type {unknown}: no event is called so; give one as node.failed, or {', '.join(_NOUNS)}")
    wanted = [kind for kind in EventType if kind in types or kind.partition(".")[0] in types]
    found = run.all_events(severities=order[order.index(least) :], types=wanted)
    return found if limit is None else found[-limit:]


def _event_rows(events: Sequence[RecordedEvent], *, as_json: bool) -> list[dict[str, Any]]:
    return [
        {
            "at": event.at,
            "severity": event.severity.value,
            "event": event.type.value,
            "data": dict(event.data) if as_json else _said(event.data),
        }
        for event in events
    ]


def _said(data: Mapping[str, Any]) -> str:
    """Return what an event tells people: the node first, then all but the ids."""
    rest = {key: item for key, item in data.items() if key not in ("node", "visit", "checkpoint", "call")}
    where = f"{data['node']}#{data['visit']}" if "visit" in data else data.get("node") or ""
    if "ms" in rest:
        where += f" {duration(rest.pop('ms') / 1000)}"
    if "usage" in rest:
        where += f" {usage(rest.pop('usage'))}"
    return " ".join([where, *(f"{key}={text_of(item, str)}" for key, item in rest.items())]).strip()


def _show_traceback(run: Run) -> None:
    failure = run.error
    if failure is None:
        raise InvalidInput(f"run {run.id!r} is {run.status}; only a failed one has a traceback")
    echo(failure.traceback.rstrip() or f"{failure.type}: {failure.message}")


def _show_summary(summary: RunSummary, *, as_json: bool) -> None:
    events = [{"event": kind.value, "count": count} for kind, count in summary.types.items()]
    severities = [{"severity": severity.value, "count": count} for severity, count in summary.severities.items()]
    tools: list[dict[str, Any]] = [
        {
            "tool": tool.tool,
            "kind": tool.kind.value,
            "calls": tool.calls,
            "failures": tool.failures,
            "total": tool.total,
            "mean": tool.mean,
        }
        for tool in summary.tools
    ]
    nodes: list[dict[str, Any]] = [
        {
            "node": node.node,
            "visits": node.visits,
            "failures": node.failures,
            "retries": node.retries,
            "total": node.total,
        }
        for node in summary.nodes
    ]
    line = {
        "steps": summary.line.steps,
        "latency": timedelta(seconds=summary.line.latency_s),
        **summary.line.usage.totals(),
        "tool_errors": summary.line.tool_errors,
    }
    tables = {"nodes": nodes, "tools": tools, "events": events, "severities": severities}
    if as_json:
        print_json({"line": line, **tables})
        return
    for number, rows in enumerate([[line], *(rows for rows in tables.values() if rows)]):
        if number:
            echo()
        print_table(rows)


def _show_overview(bench: Bench, run: Run, *, as_json: bool) -> None:
    neglect = bench.neglect(run.execution)
    if as_json:
        found = None if neglect is None else neglect.value
        print_json({**outcome(run), "neglect": found, **_more(run)})
        return
    echo_facts(_facts(run, neglect))
    echo_state(run.state)
    is_half_done = run.status is ExecutionStatus.ROLLING_BACK
    echo(advice(run) if neglect is None or is_half_done else f"Nobody gets on with it: `wtb resume {run.id}` does.")


def _more(run: Run) -> dict[str, Any]:
    """Return what `wtb show` tells programs beside the outcome."""
    execution, history, failure = run.execution, run.history, run.error
    head = history.latest()
    return {
        "source": execution.workflow_source,
        "created": execution.created_at,
        "updated": execution.updated_at,
        "step": 0 if head is None else head.step,
        "next": () if head is None else head.next_nodes,
        "branch": history.branch().name,
        "branches": [branch.name for branch in history.branches],
        "rollback": half_done(run),
        "failure": None if failure is None else asdict(failure),
        "usage": run.usage,
        "spent": run.spent,
    }


def _facts(run: Run, neglect: Neglect | None) -> dict[str, str]:
    """Return what `wtb show` tells people before the state."""
    execution, history, failure, used, spent = run.execution, run.history, run.error, run.usage, run.spent
    files, size_bytes = totals(run.files())
    facts = {
        "run": run.id,
        "workflow": " ".join(filter(None, (execution.workflow_name, execution.workflow_source))),
        "status": execution.status.value if neglect is None else f"{execution.status.value} ({neglect.value})",
        "created": moment(execution.created_at),
        "updated": moment(execution.updated_at),
        "step": _where(history),
        "branch": _branches(history),
    }
    if failure is not None and failure.node is not None:
        facts["failed in"] = f"{failure.node}, visit {failure.visit}; `wtb show {run.id} --traceback` tells where"
    if any(used.values()):
        facts["used"] = usage(used)
    if _is_more(spent, used):
        facts["spent"] = f"{usage(spent)}, with attempts that failed and lines that were left"
    if files:
        facts["files"] = f"{counted(files, 'file')}, {size(size_bytes)}; `wtb show {run.id} --files` lists them"
    return facts


def _is_more(spent: Mapping[str, Any], used: Mapping[str, Any]) -> bool:
    """Whether a run spent more than led to its head; sums of the same prices may differ in the last digit."""
    keys = ("input_tokens", "output_tokens", "cost_usd")
    return any(spent[key] > used[key] and not math.isclose(spent[key], used[key]) for key in keys)


def _where(history: ExecutionHistory) -> str:
    """Return the step that the run is at: after which node, before which ones."""
    head = history.latest()
    if head is None:
        return "none"
    after = f" after {head.node}#{head.visit}" if head.node else ""
    return f"{head.step}{after}, next {', '.join(head.next_nodes)}" if head.next_nodes else f"{head.step}{after}"


def _branches(history: ExecutionHistory) -> str:
    active = history.branch().name
    others = [branch.name for branch in history.branches if branch.name != active]
    return f"{active}; there are also {', '.join(others)}" if others else active
