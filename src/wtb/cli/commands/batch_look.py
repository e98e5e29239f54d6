"""`wtb batch ls`, `show`, `status`: look at batches and their results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from wtb.batch_results import BatchResult, CaseText, JobResult, error_line
from wtb.bench import Bench
from wtb.cli.output import as_json, echo, example, print_json, show, show_rows, url
from wtb.cli.views.batch_overview import print_overview
from wtb.cli.views.batch_status import dead_rows, print_status
from wtb.cli.views.batch_tables import best_first, failure_rows, print_cases, print_evaluation_counts
from wtb.domain.batch import Batch, JobStatus
from wtb.domain.display import counted
from wtb.domain.errors import InvalidInput


@click.command("ls")
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


@click.command("show")
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
@click.option("--flaky", is_flag=True, help="Show only cases on which repeats of one combination disagree.")
@click.option("--case", "case", metavar="CASE", help="Show only this case.")
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
    flaky: bool,
    case: str | None,
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
        elif by_case or different is not None or flaky or case is not None:
            _show_cases(result, different, flaky=flaky, case=case, as_json=as_json)
        else:
            front = result.pareto(*pareto) if pareto else result.combinations
            rows = [row for row in best_first(result) if row.combination in front]
            if as_json:
                print_json(result.overview(rows).to_data())
            else:
                print_overview(result, rows)


def _write(result: BatchResult, path: Path, *, as_json: bool) -> None:
    try:
        result.to_csv(path)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error}") from error
    count = len(result.results)
    show({"file": str(path), "rows": count}, f"{counted(count, 'row')} written to {path}.", as_json=as_json)


def _show_cases(result: BatchResult, different: str | None, *, flaky: bool, case: str | None, as_json: bool) -> None:
    order = list(result.batch.record.cases) if different is None else result.different(different)
    if flaky:
        disagreeing = {each.case_id for each in result.flaky()}
        order = [each for each in order if each in disagreeing]
    if case is not None:
        if case not in result.batch.record.cases:
            raise InvalidInput(f"batch {result.batch.name!r} has no case {case!r}")
        order = [each for each in order if each == case]
    place = {case: number for number, case in enumerate(order)}
    columns = {name: number for number, name in enumerate(result.combinations)}
    jobs = [job for job in result.results if job.case_id in place]
    jobs.sort(key=lambda job: (place[job.case_id], columns[job.combination], job.repeat))
    if as_json:
        print_json([_plain(job, result.case_texts[job.case_id]) for job in jobs])
        return
    metrics = list(result.metrics) if different is None else [different]
    empty = "No results yet." if different is None else f"All combinations agree on {different}."
    if flaky and result.results:
        empty = "No case is flaky: all repeats agree."
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


@click.command("status")
@click.argument("name", metavar="BATCH")
@url
@as_json
@example("wtb batch status support_qa")
def show_status(*, name: str, url: str | None, as_json: bool) -> None:
    """Show how far a batch has come, and which jobs run right now.

    This works while `wtb batch run` runs in another terminal, or `bench.batch` in a program.
    """
    with Bench(url) as bench:
        found = bench.batch_status(name)
    if as_json:
        print_json(found.to_data())
    else:
        print_status(found)
