"""`wtb ls`, `history`: what runs there are, and their checkpoints."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from wtb.bench import Bench
from wtb.cli.output import as_json, echo, example, print_json, show_rows, url
from wtb.cli.views.tree import print_tree
from wtb.domain.checkpoint import Checkpoint, Kind, Trigger
from wtb.domain.errors import InvalidInput
from wtb.domain.execution import Execution, ExecutionStatus, Neglect
from wtb.domain.ids import CheckpointId
from wtb.domain.tree import HistoryTree

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHORT_UUID = 13
"""The part of a run's id that is the millisecond of its making: as good as never shared, and short to type."""


@click.command()
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([status.value for status in ExecutionStatus]),
    help="Only these; may be given several times.",
)
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--since", metavar="AGE", help="Only runs begun within this time: 30m, 12h, 7d, 2w.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Show at most so many.")
@click.option("--offset", type=click.IntRange(0), default=0, help="Leave out so many of the newest.")
@url
@as_json
@example("wtb ls --status failed --status paused --since 7d")
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
    """List runs, newest first.

    A run that says it is running is marked `gone` when its process has ended, and `abandoned` when nothing was heard
    of it for an hour. The beginning of an id, as it is shown here, is enough for the other commands.
    """
    with Bench(url) as bench:
        executions = bench.list_executions(
            statuses=[ExecutionStatus(status) for status in statuses],
            workflow=workflow,
            since=None if since is None else datetime.now(UTC) - _age(since),
            limit=limit + 1,
            offset=offset,
        )
        rows = [_run_row(execution, bench.neglect(execution)) for execution in executions[:limit]]
    if as_json:
        print_json(rows)
        return
    filtered = statuses or workflow is not None or since is not None or offset
    empty = "No run fits." if filtered else "No runs here yet; `wtb run file.py` makes one."
    show_rows(_for_people(rows), as_json=False, empty=empty)
    if len(executions) > limit:
        echo(f"There are more: `--offset {offset + limit}`.")
    if any(row["neglect"] and row["status"] == ExecutionStatus.RUNNING for row in rows):
        echo("Nobody gets on with those that are gone or abandoned; `wtb resume RUN` does.")


def _run_row(execution: Execution, neglect: Neglect | None) -> dict[str, Any]:
    return {
        "run": execution.id,
        "workflow": execution.workflow_name,
        "status": execution.status.value,
        "neglect": None if neglect is None else neglect.value,
        "created": execution.created_at,
        "updated": execution.updated_at,
    }


def _for_people(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with ids as short as they can be told apart, and what is wrong with a run beside its status."""
    length = _SHORT_UUID
    while len({row["run"][:length] for row in rows}) < len(rows):
        length += 1
    return [
        {
            "run": row["run"][:length] if _UUID.fullmatch(row["run"]) else row["run"],
            "workflow": row["workflow"],
            "status": f"{row['status']} ({row['neglect']})" if row["neglect"] else row["status"],
            "created": row["created"],
            "updated": row["updated"],
        }
        for row in rows
    ]


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--tree", is_flag=True, help="Draw all branches, and what rollbacks left behind, as a tree.")
@click.option("--all", "everything", is_flag=True, help="Also what a rollback left behind; with --tree every step.")
@url
@as_json
@example("wtb history first", "wtb history first --all", "wtb history first --tree")
def history(*, run_id: str, tree: bool, everything: bool, url: str | None, as_json: bool) -> None:
    """List the checkpoints of a run up to its head: step, node, visit, what made them, size and time.

    The tree has every branch with its head, lines that no branch leads to any more, and forks into other runs; steps
    in a row of which there is nothing to say are one line.
    """
    with Bench(url) as bench:
        run = bench.get(run_id)
        if tree:
            _show_tree(run.tree(), unfolded=everything, as_json=as_json)
            return
        found = run.history
    line = found.lineage()
    way = [checkpoint.id for checkpoint in line]
    marks = dict.fromkeys(way[:-1], "") | dict.fromkeys(way[-1:], "head")
    rows = [_checkpoint_row(checkpoint, marks) for checkpoint in (found.checkpoints if everything else line)]
    if not as_json and not any(row["name"] for row in rows):  # so that it fits into 80 columns
        rows = [{heading: value for heading, value in row.items() if heading != "name"} for row in rows]
    show_rows(rows, as_json=as_json, empty="No checkpoints.")


def _show_tree(tree: HistoryTree, *, unfolded: bool, as_json: bool) -> None:
    if as_json:
        print_json(tree.to_dict())
    else:
        print_tree(tree, unfolded=unfolded)


def _checkpoint_row(checkpoint: Checkpoint, marks: Mapping[CheckpointId, str]) -> dict[str, Any]:
    aside = "safety" if checkpoint.kind is Kind.SYSTEM else "left"
    return {
        "mark": "deleted" if checkpoint.deleted else marks.get(checkpoint.id, aside),
        "step": checkpoint.step,
        "node": checkpoint.node or (checkpoint.description if checkpoint.trigger is Trigger.NODE_END else ""),
        "visit": checkpoint.visit or "",
        "trigger": checkpoint.trigger.value,
        "name": checkpoint.name or "",
        "size": checkpoint.size_bytes,
        "at": checkpoint.created_at,
        "checkpoint": checkpoint.id,
    }


def _age(text: str) -> timedelta:
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isdecimal() or len(number) > 4:
        raise InvalidInput(f"--since takes a number and m, h, d or w, as 12h; not {text!r}")
    return timedelta(**{_UNITS[unit]: int(number)})
