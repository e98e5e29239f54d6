"""`wtb prune` and `wtb doctor`: keep the store small, and check it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from wtb.application.upkeep.integrity import IntegrityReport
from wtb.application.upkeep.retention import RunPruning, Watch
from wtb.application.upkeep.workspace_collection import CollectedFolder
from wtb.bench import Bench
from wtb.cli.output import Terminal, as_json, duration, example, print_table, show, size, url
from wtb.domain.display import counted
from wtb.domain.errors import DamagedData, UnknownFormat
from wtb.domain.integrity import Fault, FaultKind
from wtb.domain.ports.upkeep import Swept
from wtb.domain.retention import Reason, RetentionPolicy

_EXPLAINED = {
    Reason.BEYOND_LAST: "because their run keeps only its last ones",
    Reason.TOO_OLD: "because they are too old",
    Reason.OFF_LINE: "because they are not on the active line of their run",
}

_KEPT_SHOWN = 5
"""How many kept workspaces are named without `--verbose`."""


@click.command()
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing.")
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--run", "run_id", metavar="RUN", help="Only this run.")
@click.option(
    "--verbose", is_flag=True, help="List every run that loses checkpoints, and every workspace that is kept."
)
@url
@as_json
@example("wtb prune --dry-run", "wtb prune --workflow support --verbose")
def prune(
    *, dry_run: bool, workflow: str | None, run_id: str | None, verbose: bool, url: str | None, as_json: bool
) -> None:
    """Delete old checkpoints, workspaces and unused data.

    A running `wtb serve` does the same once a day; without one, run this command regularly. --dry-run shows what would
    go.

    Each run keeps its last 20 automatic checkpoints, for at most 90 days. Change that under `[retention]` in wtb.toml,
    for all workflows or for one. These always stay: checkpoints that a person made, the start of a run, heads and
    branch points. Steps that were rolled back stay for `wtb redo` as long as the rollback is not too old.

    The workspaces of a run go a week after it has ended (`keep_workspaces_days`), unless they hold ignored files or
    somebody has changed them. WTB restores them when they are needed.
    """
    with Bench(url) as bench:
        retention = bench.services.retention
        wanted = None if run_id is None else bench.get(run_id).id
        with _progress() as (watch, tell):
            go = retention.plan if dry_run else retention.prune
            found = [each for each in go(workflow=workflow, run=wanted, watch=watch) if each.counts or each.problem]
            tell("checking the workspaces of ended runs")
            collection = bench.services.collection
            look = collection.plan if dry_run else collection.collect
            folders = list(look(workflow=workflow, run=wanted))
            tell("deleting unused data")
            swept, problem = Swept(), None
            try:
                swept = retention.count_garbage() if dry_run else retention.sweep()
            except (DamagedData, UnknownFormat) as error:
                problem = str(error)
        settings = bench.services.settings
        kept = {each.workflow: settings.retention.policy(each.workflow) for each in found}
        collected = _collected(swept, problem, settings.sweep_grace_s, dry_run=dry_run)
    result = {
        **_for_programs(found, swept, problem, dry_run=dry_run),
        "workspaces": _folders_for_programs(folders),
        "kept": {name: asdict(policy) for name, policy in kept.items()},
    }
    said = [*_for_people(found, kept, dry_run=dry_run), *_folders_for_people(folders, dry_run=dry_run, verbose=verbose)]
    show(result, "\n".join([*said, collected]), as_json=as_json)
    if verbose and found and not as_json:
        print_table([_run_row(each) for each in found])


def _for_programs(found: list[RunPruning], swept: Swept, problem: str | None, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "checkpoints": sum(_total(found).values()),
        "reasons": {reason.value: count for reason, count in sorted(_total(found).items())},
        "size": sum(each.size_bytes for each in found),
        "swept": {**swept._asdict(), "problem": problem},
        "runs": [
            {
                "run": each.execution_id,
                "workflow": each.workflow,
                "reasons": {reason.value: count for reason, count in each.counts.items()},
                "size": each.size_bytes,
                "steps": each.steps,
                "problem": each.problem,
            }
            for each in found
        ],
    }


def _for_people(found: list[RunPruning], kept: Mapping[str, RetentionPolicy], *, dry_run: bool) -> Iterator[str]:
    total, verb = _total(found), "Would delete" if dry_run else "Deleted"
    runs = sum(1 for each in found if each.counts)
    stored = f" ({size(sum(each.size_bytes for each in found))})" if total else ""
    yield f"{verb} {counted(sum(total.values()), 'checkpoint')} of {counted(runs, 'run')}{stored}."
    yield from (f"  {count:,} {_EXPLAINED[reason]}" for reason, count in sorted(total.items()))
    for workflow, policy in sorted(kept.items()) if total else ():
        yield f"  {workflow}: each run keeps its last {policy.keep_last:,}, for {policy.keep_days:g} days"
    yield from (f"Skipped run {each.execution_id}: {each.problem}" for each in found if each.problem)


def _folders_for_programs(folders: list[CollectedFolder]) -> dict[str, Any]:
    gone = [each for each in folders if each.kept is None]
    return {
        "removed": len(gone),
        "size": sum(each.size_bytes for each in gone),
        "kept": [
            {"run": each.execution_id, "folder": str(each.folder), "reason": each.kept} for each in folders if each.kept
        ],
    }


def _folders_for_people(folders: list[CollectedFolder], *, dry_run: bool, verbose: bool) -> Iterator[str]:
    gone = [each for each in folders if each.kept is None]
    kept = [each for each in folders if each.kept is not None]
    if gone:
        verb = "Would remove" if dry_run else "Removed"
        yield f"{verb} {counted(len(gone), 'workspace')} ({size(sum(each.size_bytes for each in gone))})."
    yield from (f"Kept {each.folder}: {each.kept}" for each in (kept if verbose else kept[:_KEPT_SHOWN]))
    if len(kept) > _KEPT_SHOWN and not verbose:
        yield f"Kept {len(kept) - _KEPT_SHOWN:,} more; `--verbose` lists all."


def _collected(swept: Swept, problem: str | None, grace_s: float, *, dry_run: bool) -> str:
    if problem is not None:
        return f"Deleted no unused data: {problem}"
    if any(swept):
        return f"{'Would delete' if dry_run else 'Deleted'} unused data: {_parts(swept)}."
    waits = f" (data used within the last {duration(grace_s)} is kept)" if grace_s else ""
    return f"There is no unused data to delete{waits}."


def _parts(swept: Swept) -> str:
    parts = (counted(swept.blobs, "blob"), counted(swept.commits, "file commit"), counted(swept.objects, "object"))
    return f"{', '.join(parts)} ({size(swept.size_bytes)})"


def _total(found: Iterable[RunPruning]) -> Counter[Reason]:
    total: Counter[Reason] = Counter()
    for each in found:
        total.update(each.counts)
    return total


def _run_row(pruning: RunPruning) -> dict[str, Any]:
    return {
        "run": pruning.execution_id,
        "workflow": pruning.workflow,
        **{reason.value: pruning.counts.get(reason, 0) for reason in Reason},
        "steps": "" if pruning.steps is None else f"{pruning.steps[0]} to {pruning.steps[1]}",
        "size": pruning.size_bytes,
    }


@contextmanager
def _progress() -> Iterator[tuple[Watch, Callable[[str], None]]]:
    """Show counts and the current task if stderr is a terminal; otherwise show nothing."""
    if not sys.stderr.isatty():
        yield lambda what, count: None, lambda text: None
        return
    counts: Counter[str] = Counter()
    with Terminal(stderr=True).status("checking") as status:

        def watch(what: str, count: int) -> None:
            counts[what] += count
            status.update(", ".join(f"{counts[each]:,} checkpoints {each}" for each in sorted(counts, reverse=True)))

        yield watch, status.update


@click.command()
@click.option("--repair", is_flag=True, help="Repair what can be repaired, and delete unused data.")
@url
@as_json
@click.pass_context
@example("wtb doctor", "wtb doctor --repair")
def doctor(context: click.Context, *, repair: bool, url: str | None, as_json: bool) -> None:
    """Check all stored data for damage.

    WTB checks hashes and checksums, chains, references, blobs, objects, events, database pages, leases and workspaces.
    External calls that a batch has not taken back yet count as faults, too. Each fault is named with the runs that it
    concerns. The command exits with 0 if nothing is wrong or everything was
    repaired, else with 1.
    """
    with Bench(url) as bench, _watched() as watch:
        integrity = bench.services.integrity
        report = integrity.repair(watch) if repair else integrity.check(watch)
        grace_s = bench.services.settings.sweep_grace_s
    show(_report_for_programs(report), _report_for_people(report, grace_s, repair=repair), as_json=as_json)
    if not report.is_healthy:
        context.exit(1)


def _report_for_programs(report: IntegrityReport) -> dict[str, Any]:
    return {
        "healthy": report.is_healthy,
        "faults": [asdict(fault) for fault in report.faults],
        "looked_at": report.looked_at,
        "garbage": report.garbage._asdict(),
        "swept": None if report.swept is None else report.swept._asdict(),
    }


def _report_for_people(report: IntegrityReport, grace_s: float, *, repair: bool) -> str:
    looked_at = ", ".join(counted(count, kind) for kind, count in report.looked_at.items())
    lines = [f"Checked {looked_at}." if looked_at else "The store is empty."]
    lines += [line for fault in report.faults for line in _fault_lines(fault, repair=repair)]
    left = sum(not fault.repaired for fault in report.faults)
    repaired = len(report.faults) - left
    if repaired:
        lines.append(f"Repaired {counted(repaired, 'fault')}.")
    if left:
        lines.append(
            f"{counted(left, 'fault')} {'remain' if repair and left > 1 else 'remains' if repair else 'found'}."
        )
    else:
        lines.append("No faults." if not repaired else "No faults remain.")
    if report.swept is not None:
        lines.append(_collected(report.swept, None, grace_s, dry_run=False))
    elif any(report.garbage):
        lines.append(f"Unused data: {_parts(report.garbage)}; `wtb prune` deletes it unless it was used lately.")
    return "\n".join(lines)


_LEFT_TO_YOU = (FaultKind.LEASE, FaultKind.ABANDONED_RUN)
"""Faults that lose no data: a backup would not help."""


def _fault_lines(fault: Fault, *, repair: bool) -> Iterator[str]:
    sign = "repaired" if fault.repaired else "FAULT"
    yield f"{sign}: {fault.problem}"
    if fault.runs:
        yield f"  affects {counted(len(fault.runs), 'run')}: {', '.join(fault.runs)}"
    if fault.remedy is None and fault.kind in (FaultKind.ANCHOR, FaultKind.OPEN_REVERSAL):
        return  # its message already says what to do
    if fault.remedy is None and fault.kind in _LEFT_TO_YOU:
        yield "  --repair does not touch it: its process may still be alive, or has left something unfinished"
    elif fault.remedy is None:
        yield "  cannot be repaired: restore a backup, or delete the runs that it affects"
    elif not fault.repaired and repair:
        yield "  could not be repaired from the stored data: restore a backup, or delete the runs that it affects"
    elif not fault.repaired:
        yield f"  `wtb doctor --repair` {fault.remedy}"


@contextmanager
def _watched() -> Iterator[Callable[[str], None]]:
    """Show counts if stderr is a terminal; otherwise show nothing."""
    if not sys.stderr.isatty():
        yield lambda kind: None
        return
    counts: Counter[str] = Counter()
    with Terminal(stderr=True).status("checking") as status:

        def watch(kind: str) -> None:
            counts[kind] += 1
            if sum(counts.values()) % 500 == 0:
                status.update(f"{counts[kind]:,} × {kind}")

        yield watch
