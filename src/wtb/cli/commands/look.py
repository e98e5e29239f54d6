"""`wtb ls`, `workflows`, `history`: list runs, workflows, and a run's checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import click

from wtb.application.queries.cursors import run_cursor
from wtb.application.queries.lookup import Prefix
from wtb.application.queries.service import Queries
from wtb.application.queries.views import CheckpointPage, Health, HistoryRow, RunPage, RunRow
from wtb.bench import Bench
from wtb.cli.output import (
    as_json,
    echo,
    example,
    print_json,
    print_json_rows,
    print_table,
    show_rows,
    url,
)
from wtb.cli.times import span
from wtb.cli.views.checkpoint_rows import row_data, rows_for_people
from wtb.cli.views.run_ids import short_ids
from wtb.cli.views.tree import print_tree
from wtb.domain.execution import ExecutionStatus
from wtb.domain.job_origin import JobOrigin
from wtb.domain.run_filters import RunFilters
from wtb.domain.tree import HistoryTree

EVERY_BATCH = "all"
CHECKPOINTS = 100
"""How many checkpoints people see by default."""
_TABLE = 500
"""How many checkpoints one table holds if all are shown."""


@click.command()
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([status.value for status in ExecutionStatus]),
    help="Only runs with this status; repeatable.",
)
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--by", metavar="PERSON", help="Only runs that this person created.")
@click.option("--since", metavar="AGE", help="Only runs created within this time: 30m, 12h, 7d, 2w.")
@click.option("--prefix", default="", metavar="ID", help="Only runs whose ids begin like this.")
@click.option(
    "--health",
    type=click.Choice([health.value for health in Health]),
    help="Only runs whose process is `gone`, that are `abandoned`, or that are `waiting` for a person.",
)
@click.option(
    "--batch", metavar="BATCH|all", help="Only the runs of this batch; `all` shows runs with and without a batch."
)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Show at most this many runs.")
@click.option("--before", metavar="RUN", help="Only runs that come after this one in the list: the next page.")
@url
@as_json
@example("wtb ls --status failed --status paused --since 7d")
def ls(
    *,
    statuses: tuple[str, ...],
    workflow: str | None,
    by: str | None,
    since: str | None,
    prefix: str,
    health: str | None,
    batch: str | None,
    limit: int,
    before: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """List runs, newest first, without those that batches made.

    The list shows the start of each id; that is enough for the other commands. A run that is recorded as running is
    marked `gone` if its process has ended, and `abandoned` if it has given no sign of life for an hour.
    """
    with Bench(url) as bench:
        queries = bench.services.queries
        last = None if before is None else queries.execution(Prefix(before))
        filters: RunFilters = {
            "batch": None if batch in (None, EVERY_BATCH) else queries.batch_record(batch).id,
            "without_batches": batch is None,
            "statuses": [ExecutionStatus(status) for status in statuses],
            "workflow": workflow,
            "created_by": by,
            "since": None if since is None else datetime.now(UTC) - span(since, "--since"),
            "prefix": prefix,
        }
        wanted = None if health is None else Health(health)
        cursor = None if last is None else run_cursor(last)
        page = _whole_page(queries, cursor, limit, wanted, filters)
    rows = [_run_row(row) for row in page.rows]
    if as_json:
        print_json(rows)
        return
    filtered = statuses or workflow or by or since or prefix or health or batch not in (None, EVERY_BATCH) or before
    empty = "No run matches." if filtered else "No runs here yet; `wtb run file.py` starts one."
    if batch is None:
        empty += " `--batch all` lists the runs of batches, too."
    show_rows(_for_people(rows, with_jobs=batch is not None), as_json=False, empty=empty)
    if page.next is not None:
        echo(f"There are more: add `--before {rows[-1]['run']}`.")
    if any(row["neglect"] and row["status"] == ExecutionStatus.RUNNING for row in rows):
        echo("No process is running those that are gone or abandoned; continue one with `wtb resume RUN`.")


def _whole_page(
    queries: Queries, cursor: str | None, limit: int, health: Health | None, filters: RunFilters
) -> RunPage:
    """Return as many runs as wanted: a page of those with a health may hold fewer, although others follow."""
    page = queries.run_page(cursor=cursor, limit=limit, health=health, **filters)
    while page.next is not None and len(page.rows) < limit:
        more = queries.run_page(cursor=page.next, limit=limit - len(page.rows), health=health, **filters)
        page = replace(more, rows=page.rows + more.rows)
    return page


def _run_row(row: RunRow) -> dict[str, Any]:
    execution, origin = row.execution, JobOrigin.find(row.execution.metadata)
    return {
        "run": execution.id,
        "workflow": execution.workflow_name,
        "status": execution.status.value,
        "neglect": None if row.neglect is None else row.neglect.value,
        "created": execution.created_at,
        "updated": execution.updated_at,
        "created_by": execution.created_by,
        "batch": None if origin is None else origin.batch_id,
        "combination": None if origin is None else origin.combination,
        "case": None if origin is None else origin.case_id,
        "repeat": None if origin is None else origin.repeat,
    }


def _for_people(rows: Sequence[dict[str, Any]], *, with_jobs: bool) -> list[dict[str, Any]]:
    """Return rows with ids just long enough to be distinct, and with `gone` or `abandoned` beside the status.

    Who created the runs is shown only if they are of several people. The runs of a batch show their case and
    combination instead of their workflow and their last change, so that a row fits into 80 columns.
    """
    people = {row["created_by"] for row in rows}
    has_workflow = not with_jobs or len({row["workflow"] for row in rows}) > 1
    ids = short_ids(row["run"] for row in rows)
    return [
        {
            "run": ids[row["run"]],
            **({"workflow": row["workflow"]} if has_workflow else {}),
            "status": f"{row['status']} ({row['neglect']})" if row["neglect"] else row["status"],
            "created": row["created"],
            **({} if with_jobs else {"updated": row["updated"]}),
            **({"by": row["created_by"] or ""} if len(people) > 1 else {}),
            **({"case": row["case"] or "", "combination": row["combination"] or ""} if with_jobs else {}),
        }
        for row in rows
    ]


@click.command()
@url
@as_json
@example("wtb workflows")
def workflows(*, url: str | None, as_json: bool) -> None:
    """List the workflows that have runs.

    For each workflow you see its versions, the number of runs, and when the first and the last run started.
    `definitions` counts the different sets of nodes, edges and settings that the runs used.
    """
    with Bench(url) as bench:
        found = bench.list_workflows()
    rows = [
        {
            "workflow": each.name,
            "versions": list(each.versions) if as_json else ", ".join(each.versions),
            "definitions": each.definitions,
            "runs": each.runs,
            "first": each.first_run_at,
            "last": each.last_run_at,
        }
        for each in found
    ]
    show_rows(rows, as_json=as_json, empty="No runs here yet; `wtb run file.py` starts one.")


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--tree", is_flag=True, help="Draw a tree of all branches, and of steps that were rolled back.")
@click.option(
    "--all", "everything", is_flag=True, help="Include steps that were rolled back. With --tree: show every step."
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    help=f"Show this many checkpoints. Default: {CHECKPOINTS}; with --json or --all, all of them.",
)
@click.option("--before", metavar="CHECKPOINT", help="Show the checkpoints before this step, node, node#2, name or id.")
@click.option(
    "--after", metavar="CHECKPOINT", help="Show the first checkpoints after this step, node, node#2, name or id."
)
@url
@as_json
@example("wtb history first", "wtb history first --before 900 --limit 50", "wtb history first --tree")
def history(
    *,
    run_id: str,
    tree: bool,
    everything: bool,
    limit: int | None,
    before: str | None,
    after: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """List the checkpoints of a run.

    Each row has the step, node, visit, trigger, size, files and time of a checkpoint. The list ends at the head, which
    is the current position of the run. For a long run you see the latest checkpoints; --before and --after page
    through the others.

    --tree shows every branch with its head, abandoned lines, and forks into other runs. It folds plain steps in a row
    into one line.
    """
    with Bench(url) as bench:
        queries, run = bench.services.queries, Prefix(run_id)
        is_bounded = bool(limit or before or after)
        if tree:
            _show_tree(queries.tree(run), unfolded=everything, as_json=as_json)
        elif not is_bounded and as_json:
            print_json_rows(map(row_data, queries.each_checkpoint(run, every=everything)))
        elif not is_bounded and everything:
            _show_each(queries.each_checkpoint(run, every=True))
        else:
            bounds: dict[str, Any] = {"before": before, "after": after, "limit": limit or CHECKPOINTS}
            _show_page(queries.history_page(run, every=everything, **bounds), by_id=everything, as_json=as_json)


def _show_each(rows: Iterable[HistoryRow]) -> None:
    """Print rows as they arrive, one table at a time."""
    rows, is_first = iter(rows), True
    while page := list(islice(rows, _TABLE)):
        print_table(rows_for_people(page), has_header=is_first)
        is_first = False
    if is_first:
        echo("No checkpoints.")


def _show_page(page: CheckpointPage, *, by_id: bool, as_json: bool) -> None:
    """Print a page. If it mixes several lines of history, only an id identifies the start of the next page."""
    if as_json:
        print_json([row_data(row) for row in page.rows])
        return
    show_rows(rows_for_people(page.rows), as_json=False, empty="No checkpoints.")
    if page.rows and page.has_earlier:
        first = page.rows[0].checkpoint
        cursor = first.id if by_id else first.step
        every = f"`--all` alone shows all {page.counts.checkpoints:,}"
        echo(f"There are earlier checkpoints: add `--before {cursor}`; {every}.")
    if page.rows and page.has_later and not by_id:
        echo(f"There are later checkpoints: add `--after {page.rows[-1].checkpoint.step}`.")


def _show_tree(tree: HistoryTree, *, unfolded: bool, as_json: bool) -> None:
    if as_json:
        print_json(tree.to_dict())
    else:
        print_tree(tree, unfolded=unfolded)
