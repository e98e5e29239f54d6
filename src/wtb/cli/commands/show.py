"""`wtb show`: the status of a run, its events, figures and files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import click

from wtb.application.queries.lookup import Prefix
from wtb.application.queries.views import FileTotals, RunView
from wtb.bench import Bench
from wtb.cli.commands.events import EVENTS, show_events
from wtb.cli.commands.files import rows_for_people, rows_for_programs
from wtb.cli.commands.runs import advice, outcome
from wtb.cli.output import (
    as_json,
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
    url,
)
from wtb.cli.views.checkpoint_rows import checkpoint_data
from wtb.cli.views.half_done import calls_left, half_done
from wtb.cli.views.live import usage
from wtb.cli.views.replay import show_replay
from wtb.cli.views.scores import score_data, score_facts
from wtb.domain.checkpoint import Checkpoint
from wtb.domain.display import counted
from wtb.domain.errors import InvalidInput
from wtb.domain.events import Severity
from wtb.domain.execution import Execution, ExecutionStatus
from wtb.domain.summary import RunSummary
from wtb.domain.variants import label
from wtb.loading import load_workflow
from wtb.runs import Run, usage_data


@click.command("show")
@click.argument("run_id", metavar="RUN")
@click.option("--at", metavar="CHECKPOINT", help="Show the state at this step, node, node#2, name or id.")
@click.option("--traceback", is_flag=True, help="Show the traceback of the error.")
@click.option("--files", is_flag=True, help="List the files at the last step, or at the step of --at.")
@click.option("--events", is_flag=True, help="List the events of the run.")
@click.option(
    "--severity",
    type=click.Choice([severity.value for severity in Severity]),
    help="Only events of this severity or above: `warning` means warnings and errors.",
)
@click.option("--errors", is_flag=True, help="Only error events; same as --severity error.")
@click.option("--tools", is_flag=True, help="Only tool calls; same as --type tool.")
@click.option(
    "--type",
    "types",
    metavar="TYPE",
    multiple=True,
    help="Only events of this type, such as node.failed, or this group, such as `node`; repeatable.",
)
@click.option("--limit", type=click.IntRange(1), help=f"Show this many events. Default: {EVENTS}; with --json, all.")
@click.option("--before", type=click.IntRange(1), metavar="NUMBER", help="Show the events before this number.")
@click.option("--after", type=click.IntRange(0), metavar="NUMBER", help="Show the first events after this number.")
@click.option("--replay", is_flag=True, help="Check whether the current workflow would give the recorded steps.")
@click.option(
    "--workflow",
    metavar="WORKFLOW",
    help="Load this workflow first: for --replay, or if the state holds your own classes.",
)
@click.option(
    "--summary", is_flag=True, help="Show time, tokens and cost, figures for each node and tool, and event counts."
)
@url
@as_json
@example(
    "wtb show first --events --severity warning --limit 20",
    "wtb show first --at draft#2",
    "wtb show first --files --at draft#2",
)
def show_run(
    *,
    run_id: str,
    at: str | None,
    traceback: bool,
    files: bool,
    events: bool,
    replay: bool,
    workflow: str | None,
    summary: bool,
    url: str | None,
    as_json: bool,
    **filters: Any,
) -> None:
    """Show a run: its status, position, state, and error or question.

    RUN is the id of the run, or the start of it if no other run starts the same way. Options show its events, figures
    or files instead. Of the events you see the latest; --before and --after page through the others.

    With --replay, no node runs: WTB applies the recorded results of the nodes with the reducers and edges of the
    current workflow. The command exits with 3 if anything differs.
    """
    if workflow:
        load_workflow(workflow)
    with Bench(url) as bench:
        if files:
            _show_files(bench.get(run_id), at, as_json=as_json)
        elif at is not None:
            _show_checkpoint(bench.get(run_id), at, as_json=as_json)
        elif replay:
            show_replay(bench.get(run_id), workflow, as_json=as_json)
        elif summary:
            _show_summary(bench.services.queries.summary(Prefix(run_id)), as_json=as_json)
        elif events or filters["after"] is not None or any(filters.values()):
            show_events(bench.services.queries, Prefix(run_id), as_json=as_json, **filters)
        elif traceback and not as_json:
            _show_traceback(bench.services.queries.execution(Prefix(run_id)))
        else:
            _show_overview(bench.view(run_id), as_json=as_json)


def _show_files(run: Run, at: str | None, *, as_json: bool) -> None:
    tree = run.files(at)
    rows = rows_for_programs(tree) if as_json else rows_for_people(tree)
    show_rows(rows, as_json=as_json, empty="No files." if at is None else f"No files at {at}.")


def _show_checkpoint(run: Run, at: str, *, as_json: bool) -> None:
    view = run.at(at)
    checkpoint, totals = view.checkpoint, FileTotals.of(view.files)
    if as_json:
        print_json({"run": run.id, **checkpoint_data(checkpoint, totals), "state": view.state})
        return
    facts = {
        "run": run.id,
        "checkpoint": checkpoint.id,
        "step": where(checkpoint),
        "trigger": checkpoint.trigger.value,
        "at": _moment_by(checkpoint.created_at, checkpoint.created_by),
    }
    if not checkpoint.restore_point:
        facts["restore"] = "not possible: no rollback or fork can start here"
    if checkpoint.name:
        facts["name"] = checkpoint.name
    if totals.files:
        how = f"`wtb show {run.id} --files --at {checkpoint.step}` lists them"
        facts["files"] = f"{counted(totals.files, 'file')}, {size(totals.size_bytes)}; {how}"
    echo_facts(facts)
    echo_state(view.state)


def _show_traceback(execution: Execution) -> None:
    failure = execution.failure
    if failure is None:
        raise InvalidInput(f"run {execution.id!r} is {execution.status}; only a failed run has a traceback")
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


def _show_overview(view: RunView, *, as_json: bool) -> None:
    if as_json:
        found = None if view.neglect is None else view.neglect.value
        print_json({**outcome(view), "neglect": found, **_more(view)})
        return
    echo_facts(_facts(view))
    echo_state(view.state)
    is_half_done = view.execution.status is ExecutionStatus.ROLLING_BACK
    neglected = view.neglect is not None and not is_half_done
    echo(f"No process is running it: continue with `wtb resume {view.id}`." if neglected else advice(view))
    if left := calls_left(view):
        echo(left)


def _more(view: RunView) -> dict[str, Any]:
    """Return the facts that `wtb show --json` adds to the outcome."""
    execution, head, failure, times = view.execution, view.head, view.execution.failure, view.times
    is_completed = execution.status is ExecutionStatus.COMPLETED
    return {
        "source": execution.workflow_source,
        "variants": dict(execution.options.get("variants", {})),
        **_origin_data(view),
        "created": execution.created_at,
        "created_by": execution.created_by,
        "updated": execution.updated_at,
        "started": times.started_at,
        "paused": times.paused_at,
        "completed": times.ended_at if is_completed else None,
        "ended": times.ended_at,
        "duration": times.duration,
        "step": 0 if head is None else head.step,
        "next": () if head is None else head.next_nodes,
        "current": view.current_nodes,
        "branch": view.branch.name,
        "branches": [branch.name for branch in view.branches],
        "checkpoints": view.counts.checkpoints,
        "restore_points": view.counts.restore_points,
        "files": view.files.files,
        "file_bytes": view.files.size_bytes,
        "rollback": half_done(view),
        "failure": None if failure is None else asdict(failure),
        "usage": usage_data(view.usage),
        "spent": usage_data(view.spent),
        "scores": [score_data(score) for score in view.scores.all],
    }


def _origin_data(view: RunView) -> dict[str, Any]:
    """Return the job of a batch that made a run, for programs."""
    origin = view.origin
    return {
        "batch": None if origin is None else {"id": origin.batch_id, "name": view.batch_name},
        "combination": None if origin is None else origin.combination,
        "case": None if origin is None else origin.case_id,
        "repeat": None if origin is None else origin.repeat,
    }


def _origin_facts(view: RunView) -> dict[str, str]:
    """Return the variants of a run, and the job of a batch that made it."""
    variants, origin = view.execution.options.get("variants", {}), view.origin
    facts = {"variants": label(variants)} if variants else {}
    if origin is None:
        return facts
    batch = view.batch_name or f"{origin.batch_id} (deleted)"
    fork = "a fork of a run of " if origin.is_fork else ""
    return {
        **facts,
        "batch": f"{fork}{batch}",
        "combination": origin.combination,
        "case": f"{origin.case_id}, repeat {origin.repeat}",
    }


def _facts(view: RunView) -> dict[str, str]:
    """Return the facts that `wtb show` prints above the state."""
    execution, failure, used, spent = view.execution, view.execution.failure, view.usage, view.spent
    status = execution.status.value
    facts = {
        "run": view.id,
        "workflow": " ".join(filter(None, (execution.workflow_name, execution.workflow_source))),
        **_origin_facts(view),
        "status": status if view.neglect is None else f"{status} ({view.neglect.value})",
        "created": _moment_by(execution.created_at, execution.created_by),
        **_times(view),
        "step": where(view.head),
        "branch": _branches(view),
        "checkpoints": _counts(view),
    }
    if view.current_nodes and execution.status is ExecutionStatus.RUNNING:
        facts["running"] = ", ".join(view.current_nodes)
    if failure is not None and failure.node is not None:
        facts["failed in"] = f"{failure.node}, visit {failure.visit}; `wtb show {view.id} --traceback` shows where"
    if any(used.totals().values()):
        facts["used"] = usage(usage_data(used))
    if _is_more(spent.totals(), used.totals()):
        facts["spent"] = f"{usage(usage_data(spent))}, including failed attempts and steps that were rolled back"
    facts |= score_facts(view)
    if view.files.files:
        how = f"`wtb show {view.id} --files` lists them"
        facts["files"] = f"{counted(view.files.files, 'file')}, {size(view.files.size_bytes)}; {how}"
    return facts


def _moment_by(at: datetime, who: str | None) -> str:
    return moment(at) if who is None else f"{moment(at)} by {who}"


def _times(view: RunView) -> dict[str, str]:
    """Return when a run started and stopped, as far as known, and how long it took."""
    times, status = view.times, view.execution.status.value
    facts = {}
    if times.started_at is not None:
        facts["started"] = moment(times.started_at)
    stopped_at = times.paused_at or times.ended_at
    if stopped_at is None:
        facts["updated"] = moment(view.execution.updated_at)
    else:
        facts[status] = moment(stopped_at)
    if times.duration is not None:
        facts["took"] = duration(times.duration)
    return facts


def _is_more(spent: Mapping[str, Any], used: Mapping[str, Any]) -> bool:
    """Whether a run spent more than its current line used; equal sums may differ in the last digit."""
    keys = ("input_tokens", "output_tokens", "cost_usd")
    return any(spent[key] > used[key] and not math.isclose(spent[key], used[key]) for key in keys)


def where(checkpoint: Checkpoint | None) -> str:
    """Return the step of a checkpoint with the node before it and the nodes after it."""
    if checkpoint is None:
        return "none"
    after = f" after {checkpoint.node}#{checkpoint.visit}" if checkpoint.node else ""
    before = f", next {', '.join(checkpoint.next_nodes)}" if checkpoint.next_nodes else ""
    return f"{checkpoint.step}{after}{before}"


def _counts(view: RunView) -> str:
    every, restore_points = view.counts
    return f"{every:,}" if every == restore_points else f"{every:,}, {restore_points:,} of them restore points"


def _branches(view: RunView) -> str:
    active = view.branch.name
    others = [branch.name for branch in view.branches if branch.name != active]
    return f"{active}; others: {', '.join(others)}" if others else active
