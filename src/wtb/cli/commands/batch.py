"""`wtb batch`: run every combination on every case, and show and manage the results."""

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
from wtb.application.queries.batch_data import MatrixRow
from wtb.batch_results import BatchResult, CaseText, JobResult, error_line, failed_jobs, unscored_jobs
from wtb.batches import BatchTest, load_batch
from wtb.bench import Bench
from wtb.cli.exit_codes import UNEXPECTED, WORK_FAILED
from wtb.cli.interrupts import Interrupts
from wtb.cli.output import as_json, counted, echo, example, print_json, show, show_rows, url
from wtb.cli.views.batch_changes import (
    external_data,
    forecast_data,
    print_changes,
    print_external,
    print_forecast,
    print_noticed,
)
from wtb.cli.views.batch_live import BatchDisplay
from wtb.cli.views.batch_status import dead_rows, print_runner_hint, print_status
from wtb.cli.views.batch_tables import (
    best_first,
    failure_rows,
    print_cases,
    print_crowding,
    print_evaluation_counts,
    print_evaluation_failures,
    print_failures,
    print_flaky,
    print_matrix,
    print_measured_apart,
    print_not_taken_back,
    print_sharing,
    print_spent,
    print_tags,
    spending,
)
from wtb.domain.batch import Batch, BatchStatus, JobStatus
from wtb.domain.cases import Case
from wtb.domain.errors import DatabaseAway, InvalidInput
from wtb.domain.job_limits import Resources
from wtb.domain.limits import ADAPTIVE, Limit, read_limits
from wtb.domain.spending import Budget
from wtb.domain.tool_answers import External
from wtb.domain.variants import label, parse_label
from wtb.infrastructure.cases import read_cases

_STOPPING = "Stopping: jobs that have started will finish; Ctrl-C again ends this process at once."

EVERYTHING = "*"

cases_file = click.option(
    "--cases",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Use the cases in this JSONL or CSV file instead.",
)
fresh_nodes = click.option(
    "--fresh",
    multiple=True,
    is_flag=False,
    flag_value=EVERYTHING,
    metavar="[NODE]",
    help="Ignore earlier results of NODE, or of all nodes if you name none. Put it after FILE; repeatable.",
)
external_rule = click.option(
    "--external",
    type=click.Choice([rule.value for rule in External]),
    help="Make calls of external tools (run), make them and take them back after the job (reverse), or refuse them.",
)
workers_number = click.option(
    "--workers", type=click.IntRange(1), metavar="N", help="How many jobs to run at the same time."
)

runner_name = click.option(
    "--runner",
    default=None,
    metavar="NAME",
    help="What runs the jobs: threads, processes, ray, an installed runner, or `file.py:Runner`.",
)
ray_address_option = click.option(
    "--ray-address",
    metavar="ADDRESS",
    help="With --runner ray: the cluster, as `auto` or HOST:PORT. Without it, Ray starts on this machine.",
)
job_timeout_option = click.option(
    "--job-timeout-s",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="Let a job that takes longer than S seconds fail. In processes and on Ray its worker is ended.",
)
memory_option = click.option(
    "--memory-gb",
    type=click.FloatRange(0, min_open=True),
    metavar="X",
    help="In processes and on Ray: end a worker that uses more than X GB of memory. Its job fails.",
)


@click.group()
def batch() -> None:
    """Run every combination of variants on every case, and find out which is better."""


@batch.command()
@click.argument("file", metavar="FILE[:BATCH]")
@click.option(
    "--name", metavar="NAME", help="Use this name instead of the one in FILE. A new name is a separate batch."
)
@cases_file
@click.option("--repeats", type=click.IntRange(1), metavar="N", help="Run each combination N times on each case.")
@click.option(
    "--only",
    multiple=True,
    metavar="COMBINATION",
    help="Run only this combination, such as 'answer=long', and the baseline; others keep their results. Repeatable.",
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
    help="Make at most N calls at a time that name this limit; openai=adaptive finds the number itself. Repeatable.",
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

    The command exits with 3 if jobs or evaluators failed, if external calls could not be taken back, or if the budget
    ran out before all jobs were done.
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
        changes["fresh"] = _fresh(fresh)
    with Bench(url) as bench:
        test = _loaded(bench, file)
        most = {"usd": budget_usd, "tokens": budget_tokens, "s": budget_s}
        more = {name: limit for name, limit in most.items() if limit is not None}
        if limits:
            changes["limits"] = _limits(test, limits)
        budget = Budget.of({**Budget.of(test.budget).limits(), **more})
        if memory_gb is not None:
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


def _fresh(nodes: Sequence[str]) -> bool | tuple[str, ...]:
    return True if EVERYTHING in nodes else tuple(nodes)


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
        changes["fresh"] = _fresh(fresh)
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
                test, only=only, remeasure=remeasure, stop=stop, on_planned=planned, on_progress=display.told
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
    if used_up or any(job.combination in ran for job in failed):
        sys.exit(WORK_FAILED)


def _report_pause(name: str, progress: Progress, error: DatabaseAway, *, as_json: bool) -> None:
    """Say that a batch has paused because its database is away, and how to continue."""
    done = progress.kept + progress.completed + progress.failed
    if as_json:
        jobs = {"total": progress.total, "failed": progress.failed, "left": progress.total - done}
        print_json({"name": name, "status": BatchStatus.PAUSED.value, "error": str(error), "jobs": jobs})
    echo(f"wtb: {error}", err=True)
    told = f"{name} is paused: {done:,} of {counted(progress.total, 'job')} done."
    echo(f"{told} When the database is back, run the same command again to continue.", err=True)


def _report(result: BatchResult, kept: int, *, used_up: Sequence[str], is_stopped: bool) -> None:
    _print(result, best_first(result))
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


def _print(result: BatchResult, rows: Sequence[MatrixRow]) -> None:
    record = result.batch.record
    repeats = f" × {counted(record.repeats, 'repeat')}" if record.repeats > 1 else ""
    print_changes(record.changes)
    sizes = f"{counted(len(record.combinations), 'combination')} × {counted(len(record.cases), 'case')}{repeats}"
    echo(f"{result.batch.name}: {result.status.replace('_', ' ')}, {sizes}\n")
    print_matrix(result, rows)
    echo()
    print_tags(result)
    print_flaky(result)
    print_sharing(result)
    print_noticed(result)
    print_crowding(result)
    print_runner_hint(result)
    print_measured_apart(result)
    print_spent(result)
    print_failures(result)
    print_evaluation_failures(result)
    print_not_taken_back(result)


@batch.command("ls")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Show at most this many batches.")
@url
@as_json
@example("wtb batch ls")
def list_batches(*, limit: int, url: str | None, as_json: bool) -> None:
    """List batches, newest first."""
    with Bench(url) as bench:
        found = bench.list_batches(limit)
    empty = "No batches here yet; `wtb batch run file.py` makes one."
    show_rows([_row(each) for each in found], as_json=as_json, empty=empty)


def _row(batch: Batch) -> dict[str, Any]:
    return {
        "batch": batch.name,
        "workflow": batch.workflow_name,
        "status": batch.status.value,
        "combinations": len(batch.record.combinations),
        "cases": len(batch.record.cases),
        "repeats": batch.record.repeats,
        "updated": batch.updated_at,
        "id": batch.id,
    }


@batch.command("show")
@click.argument("name", metavar="BATCH")
@click.option(
    "--cases",
    "by_case",
    is_flag=True,
    help="Show every case: input, expected value, and the output, scores and run of each combination.",
)
@click.option(
    "--different", metavar="METRIC", help="Show only cases on which combinations disagree, the widest spread first."
)
@click.option(
    "--pareto",
    multiple=True,
    metavar="METRIC",
    help="Show only combinations that are not shown to be beaten on these metrics; repeatable.",
)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Use only cases with this tag; repeatable.")
@click.option("--failed", is_flag=True, help="Show only failed jobs and failed evaluators, with their errors.")
@click.option(
    "--dead", is_flag=True, help="Show only jobs that were given up because they lost their worker three times."
)
@click.option(
    "--csv", "csv_file", type=click.Path(dir_okay=False, path_type=Path), help="Write one row per job to this file."
)
@url
@as_json
@example(
    "wtb batch show support_qa",
    "wtb batch show support_qa --different token_f1",
    "wtb batch show support_qa --pareto token_f1 --pareto latency_s",
)
def show_batch(
    *,
    name: str,
    by_case: bool,
    different: str | None,
    pareto: tuple[str, ...],
    tags: tuple[str, ...],
    failed: bool,
    dead: bool,
    csv_file: Path | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Show the results of a batch: scores, verdicts and failures.

    BATCH is the name or id of a batch. If it is still running or was stopped, you see the results so far.
    """
    with Bench(url) as bench:
        result = bench.get_batch(name)
        if tags:
            result = result.tagged(*tags)
        if csv_file is not None:
            _write(result, csv_file, as_json=as_json)
        elif dead:
            empty = "No job lost its worker so often that it was given up."
            show_rows(dead_rows(result, whole=as_json), as_json=as_json, empty=empty)
        elif failed:
            show_rows(failure_rows(result), as_json=as_json, empty="No job and no evaluator failed.")
            if not as_json:
                print_evaluation_counts(result)
        elif by_case or different is not None:
            _show_cases(result, different, as_json=as_json)
        else:
            front = result.pareto(*pareto) if pareto else result.combinations
            rows = [row for row in best_first(result) if row.combination in front]
            if as_json:
                print_json(result.overview(rows).to_data())
            else:
                _print(result, rows)


def _write(result: BatchResult, path: Path, *, as_json: bool) -> None:
    try:
        result.to_csv(path)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error}") from error
    count = len(result.results)
    show({"file": str(path), "rows": count}, f"{counted(count, 'row')} written to {path}.", as_json=as_json)


def _show_cases(result: BatchResult, different: str | None, *, as_json: bool) -> None:
    order = list(result.batch.record.cases) if different is None else result.different(different)
    place = {case: number for number, case in enumerate(order)}
    columns = {name: number for number, name in enumerate(result.combinations)}
    jobs = [job for job in result.results if job.case_id in place]
    jobs.sort(key=lambda job: (place[job.case_id], columns[job.combination], job.repeat))
    if as_json:
        print_json([_plain(job, result.case_texts[job.case_id]) for job in jobs])
        return
    metrics = list(result.metrics) if different is None else [different]
    empty = "No results yet." if different is None else f"All combinations agree on {different}."
    print_cases(result, jobs, metrics)
    if not jobs:
        echo(empty)
    else:
        echo("Open the run of a row with `wtb show RUN`; try something else from one of its steps with `wtb fork RUN`.")


def _plain(job: JobResult, case: CaseText) -> dict[str, Any]:
    return {
        "case": job.case_id,
        "combination": job.combination,
        "repeat": job.repeat,
        "status": job.status,
        "tags": case.tags,
        "input": case.input,
        "expected": case.expected,
        "output": job.output,
        "output_size": job.output_size,
        "scores": job.scores,
        "latency_s": job.latency_s,
        "error": error_line(job) if job.status == JobStatus.FAILED else None,
        "run": job.run_id,
        "worker": job.worker,
        "host": job.host,
        "started": None if job.started is None else job.started.isoformat(),
        "ended": None if job.ended is None else job.ended.isoformat(),
        "attempts": len(job.attempts),
        **({} if job.ray is None else {"ray_actor": job.ray.actor, "ray_task": job.ray.task}),
    }


@batch.command()
@click.argument("name", metavar="BATCH")
@url
@as_json
@example("wtb batch status support_qa")
def status(*, name: str, url: str | None, as_json: bool) -> None:
    """Show how far a batch has come, and which jobs run right now.

    This works while `wtb batch run` runs in another terminal, or `bench.batch` in a program.
    """
    with Bench(url) as bench:
        found = bench.batch_status(name)
    if as_json:
        print_json(found.to_data())
    else:
        print_status(found)


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
