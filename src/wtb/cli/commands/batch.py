"""`wtb batch`: run every combination on every case; continue, cancel and delete batches."""

from __future__ import annotations

import shlex
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from wtb.application.batches.attempt import Progress
from wtb.application.batches.forecast import ExternalTool, Forecast
from wtb.batch_results import BatchResult, failed_jobs, unscored_jobs
from wtb.batches import BatchTest, load_batch
from wtb.bench import Bench
from wtb.cli.commands.batch_look import list_batches, show_batch, show_status
from wtb.cli.commands.batch_options import (
    cases_file,
    external_rule,
    fresh_nodes,
    job_timeout_option,
    memory_option,
    ray_address_option,
    read_fresh,
    runner_name,
    workers_number,
)
from wtb.cli.exit_codes import UNEXPECTED, WORK_FAILED
from wtb.cli.interrupts import Interrupts
from wtb.cli.output import as_json, echo, example, print_json, show, url
from wtb.cli.views.batch_changes import (
    external_data,
    forecast_data,
    print_external,
    print_forecast,
)
from wtb.cli.views.batch_live import BatchDisplay
from wtb.cli.views.batch_overview import print_overview
from wtb.cli.views.batch_tables import (
    best_first,
    spending,
)
from wtb.domain.batch import BatchStatus
from wtb.domain.cases import Case
from wtb.domain.display import counted
from wtb.domain.errors import DatabaseAway, InvalidInput
from wtb.domain.job_limits import Resources
from wtb.domain.limits import ADAPTIVE, Limit, read_limits
from wtb.domain.spending import Budget
from wtb.domain.variants import label, parse_label
from wtb.infrastructure.cases import read_cases

_STOPPING = "Stopping: jobs that have started will finish; Ctrl-C again ends this process at once."


@click.group()
def batch() -> None:
    """Run every combination of variants on every case, and find out which is better."""


@batch.command()
@click.argument("file", metavar="FILE[:BATCH]")
@click.option(
    "--name", metavar="NAME", help="Use this name instead of the one in FILE. A new name is a separate batch."
)
@cases_file
@click.option(
    "--repeats",
    type=click.IntRange(1),
    metavar="N",
    help="Run each combination N times on each case. Default: as in FILE, else once.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="COMBINATION",
    help="Run only this combination, such as 'answer=long', and the baseline; repeatable. Others keep their results.",
)
@workers_number
@runner_name
@ray_address_option
@job_timeout_option
@memory_option
@click.option(
    "--budget-usd", type=click.FloatRange(0), metavar="X", help="Start no more jobs once the batch has cost this much."
)
@click.option(
    "--budget-tokens", type=click.IntRange(0), metavar="N", help="Start no more jobs once the batch has used N tokens."
)
@click.option(
    "--budget-s", type=click.FloatRange(0), metavar="S", help="Start no more jobs once the batch has run for S seconds."
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=N",
    help="Make at most N calls at a time that name this limit; repeatable. `openai=adaptive` finds the number itself.",
)
@fresh_nodes
@external_rule
@click.option("--no-share", is_flag=True, help="Run every node of every job; share and reuse no results.")
@click.option(
    "--remeasure",
    is_flag=True,
    help="Run the jobs side by side with the baseline again, so that latency and cost can be compared.",
)
@url
@as_json
@example(
    "wtb batch run batch.py",
    "wtb batch run batch.py --fresh",
    "wtb batch run batch.py --only 'answer=long, retrieve=bm25' --repeats 3",
)
def run(
    *,
    file: str,
    name: str | None,
    cases: Path | None,
    repeats: int | None,
    only: tuple[str, ...],
    workers: int | None,
    runner: str | None,
    ray_address: str | None,
    job_timeout_s: float | None,
    memory_gb: float | None,
    budget_usd: float | None,
    budget_tokens: int | None,
    budget_s: float | None,
    limits: tuple[str, ...],
    fresh: tuple[str, ...],
    external: str | None,
    no_share: bool,
    remeasure: bool,
    url: str | None,
    as_json: bool,
) -> None:
    """Run the batch test in a file: every combination on every case.

    FILE must contain `batch = wtb.BatchTest(…)`. If it has another name, give that name after the colon.

    Results are kept. Run the same command again, and only jobs that are missing, failed or out of date run. Ctrl-C
    finishes the jobs that have started, then stops; a second Ctrl-C ends the process at once.

    A budget covers all the times that you run the batch. Shared work counts once.

    --remeasure takes effect if jobs are left to run, or if some were not measured together with the baseline. Then
    every job of this command runs again, without shared results. Use --only to limit the jobs.

    The command exits with 3 if jobs or evaluators failed, if external calls could not be taken back, or if jobs are
    left because the budget ran out or somebody else cancelled the batch.
    """
    given = {
        "name": name,
        "cases": cases,
        "repeats": repeats,
        "workers": workers,
        "runner": runner,
        "ray_address": ray_address,
        "job_timeout_s": job_timeout_s,
        "external": external,
    }
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if no_share:
        changes["share"] = False
    if fresh:
        changes["fresh"] = read_fresh(fresh)
    with Bench(url) as bench:
        test = _loaded(bench, file)
        most = {"usd": budget_usd, "tokens": budget_tokens, "s": budget_s}
        more = {name: limit for name, limit in most.items() if limit is not None}
        if limits:
            changes["limits"] = _limits(test, limits)
        budget = Budget.of({**Budget.of(test.budget).limits(), **more})
        if memory_gb is not None:
            if changes.get("runner", test.runner) == "threads":
                raise InvalidInput("--memory-gb needs worker processes, which can be ended: add `--runner processes`")
            changes["resources"] = replace(Resources.of(test.resources), memory_gb=memory_gb)
        _run(bench, replace(test, budget=budget, **changes), only, remeasure=remeasure, as_json=as_json)


def _limits(test: BatchTest, given: Sequence[str]) -> dict[str, Limit]:
    """Return the limits of a batch test with those of the command; a limit keeps its breaker and its function."""
    known = read_limits(test.limits)
    for each in given:
        name, _, value = each.partition("=")
        if not name or (value != ADAPTIVE and not (value.isdecimal() and int(value))):
            raise InvalidInput(
                f"--limit {each!r} needs a number of at least 1; write NAME=N, as openai=20, or NAME=adaptive"
            )
        wanted = Limit.of(int(value) if value.isdecimal() else value, name)
        before = known.get(name, wanted)
        most = before.most if wanted.adaptive else wanted.most
        known[name] = replace(before, most=most, adaptive=wanted.adaptive, least=min(before.least, most))
    return read_limits(known)


def _loaded(bench: Bench, file: str) -> BatchTest:
    """Load a batch, and record which files it reads while it loads."""
    bench.services.observer.start()
    return load_batch(file)


@batch.command("plan")
@click.argument("file", metavar="FILE[:BATCH]")
@click.option("--name", metavar="NAME", help="Plan a batch with this name.")
@cases_file
@click.option("--repeats", type=click.IntRange(1), metavar="N", help="Plan N repeats of each case.")
@click.option(
    "--only", multiple=True, metavar="COMBINATION", help="Plan only this combination and the baseline; repeatable."
)
@fresh_nodes
@external_rule
@url
@as_json
@example("wtb batch plan batch.py", "wtb batch plan batch.py --fresh answer")
def plan_batch(
    *,
    file: str,
    name: str | None,
    cases: Path | None,
    repeats: int | None,
    only: tuple[str, ...],
    fresh: tuple[str, ...],
    external: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Show what `wtb batch run` would do, without running anything.

    You see how many jobs and node runs would be kept, shared and executed. You also see what has changed since the last
    run: functions, values, files that nodes read, environment variables.
    """
    given = {"name": name, "cases": cases, "repeats": repeats, "external": external}
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if fresh:
        changes["fresh"] = read_fresh(fresh)
    with Bench(url) as bench:
        test = replace(_loaded(bench, file), **changes)
        forecast = bench.plan(test, only=only)
    if as_json:
        print_json({"batch": test.name or test.flow.name, **forecast_data(forecast)})
    else:
        print_forecast(forecast, test.name or test.flow.name)


@batch.command("delete")
@click.argument("name", metavar="BATCH")
@url
@as_json
@example("wtb batch delete support_qa")
def delete_batch(*, name: str, url: str | None, as_json: bool) -> None:
    """Delete a batch with its results.

    The runs behind the results stay; `wtb delete RUN` deletes one. Baselines that you made from the batch stay too.
    Other batches can still share the results of its nodes, unless you run them with --fresh.
    """
    with Bench(url) as bench:
        deleted = bench.delete_batch(name)
    text = f"{deleted.name} is deleted."
    show({"batch": deleted.id, "name": deleted.name, "deleted": True}, text, as_json=as_json)


@batch.command()
@click.argument("name", metavar="BATCH")
@click.argument("file", metavar="FILE[:BATCH]")
@cases_file
@workers_number
@runner_name
@ray_address_option
@url
@as_json
@example("wtb batch retry support_qa batch.py")
def retry(
    *,
    name: str,
    file: str,
    cases: Path | None,
    workers: int | None,
    runner: str | None,
    ray_address: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Run failed jobs and failed evaluations of a batch again, and take back the external calls that are left.

    The current workflow and evaluators come from FILE; the combinations, cases and repeats are those of BATCH. Jobs
    that are missing or out of date run too. If only a score is missing, the evaluator runs again and the workflow does
    not. The command exits with 3 if anything fails again.
    """
    with Bench(url) as bench:
        before = bench.get_batch(name)
        if not failed_jobs(before) and not unscored_jobs(before) and not before.not_taken_back:
            raise InvalidInput(
                f"there is nothing to retry: no job and no evaluator of batch {before.batch.name!r} failed"
            )
        test = _loaded(bench, file)
        test = replace(
            test,
            name=before.batch.name,
            cases=_cases_of(before, cases or test.cases),
            repeats=before.batch.record.repeats,
            workers=workers or test.workers,
            runner=runner or test.runner,
            ray_address=ray_address or test.ray_address,
        )
        _run(bench, test, before.combinations, as_json=as_json)


def _cases_of(result: BatchResult, source: Any) -> list[Case]:
    """Return the cases of a batch with their current content."""
    now = {case.id: case for case in read_cases(source)}
    gone = [case for case in result.batch.record.cases if case not in now]
    if gone:
        raise InvalidInput(
            f"batch {result.batch.name!r} has a case {gone[0]!r}, which is missing here; use --cases to name the file "
            "that has it"
        )
    return [now[case] for case in result.batch.record.cases]


def _run(bench: Bench, test: BatchTest, only: Sequence[str], *, remeasure: bool = False, as_json: bool) -> None:
    name = test.name or test.flow.name
    display, stop = BatchDisplay(name, quiet=as_json), threading.Event()
    interrupts = Interrupts([(_STOPPING, stop.set)], display.say, display.stop)
    external: list[ExternalTool] = []
    try:
        with ExitStack() as stack:

            def planned(forecast: Forecast) -> None:  # mistakes are reported before the display starts
                external.extend(forecast.external)
                if not as_json:
                    print_external(forecast)
                stack.enter_context(display.shown())

            stack.enter_context(interrupts.handled())
            result = bench.batch(
                test, only=only, remeasure=remeasure, stop=stop, on_planned=planned, on_progress=display.on_progress
            )
    except DatabaseAway as error:
        if not display.progress.total:  # nothing has begun
            raise
        _report_pause(name, display.progress, error, as_json=as_json)
        sys.exit(UNEXPECTED)
    progress = display.progress
    is_stopped = progress.kept + progress.completed + progress.failed < progress.total
    used_up = Budget.of(test.budget).reached(result.spent) if is_stopped else ()
    if as_json:
        data = result.overview(best_first(result)).to_data()
        data["jobs"]["kept"] = progress.kept
        print_json({**data, "external": external_data(external)})
    else:
        _report(result, progress.kept, used_up=used_up, is_stopped=is_stopped)
    ran = {label(parse_label(each)) for each in only} | {result.baseline} if only else set(result.combinations)
    failed = [*failed_jobs(result), *(job for jobs in unscored_jobs(result).values() for job in jobs)]
    failed += [job for job in result.results if job.not_taken_back]
    if used_up or (progress.is_cancelled and is_stopped) or any(job.combination in ran for job in failed):
        sys.exit(WORK_FAILED)


def _report_pause(name: str, progress: Progress, error: DatabaseAway, *, as_json: bool) -> None:
    """Say that a batch has paused because its database is away, and how to continue."""
    done = progress.kept + progress.completed + progress.failed
    if as_json:
        jobs = {"total": progress.total, "failed": progress.failed, "left": progress.total - done}
        print_json({"name": name, "status": BatchStatus.PAUSED.value, "error": str(error), "jobs": jobs})
    echo(f"wtb: {error}", err=True)
    text = f"{name} is paused: {done:,} of {counted(progress.total, 'job')} done."
    echo(f"{text} When the database is back, run the same command again to continue.", err=True)


def _report(result: BatchResult, kept: int, *, used_up: Sequence[str], is_stopped: bool) -> None:
    print_overview(result, best_first(result))
    name = shlex.quote(result.batch.name)
    if kept:
        echo(f"{counted(kept, 'job')} of {result.batch.record.jobs:,} kept from an earlier run.")
    if result.left:
        left = f"{counted(result.left, 'job')} left to run"
        if used_up:
            larger = ", ".join(f"--budget-{name}" for name in used_up)
            echo(f"The budget is used up ({spending(result.spent)}) with {left}: raise {larger} to continue.")
        elif not is_stopped:
            echo(f"Other combinations have {left}: run the command without --only to run them.")
        else:
            echo(f"Stopped with {left}: run the same command again to continue.")
    echo(f"Next: `wtb compare {name}`, `wtb batch show {name} --cases`, `wtb report {name}`.")


@batch.command()
@click.argument("name", metavar="BATCH")
@url
@as_json
@example("wtb batch cancel support_qa")
def cancel(*, name: str, url: str | None, as_json: bool) -> None:
    """Cancel a running batch.

    This works for `wtb batch run` in another terminal, and for `bench.batch` in a program. Jobs that have started are
    finished, and all results are kept.
    """
    with Bench(url) as bench:
        cancelled = bench.cancel_batch(name)
    shown = cancelled.batch.name
    text = f"{shown} is cancelled: no more jobs start. Run it again to continue."
    show({"batch": cancelled.id, "name": shown, "status": cancelled.status}, text, as_json=as_json)


for command in (list_batches, show_batch, show_status):
    batch.add_command(command)
