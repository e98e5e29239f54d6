"""The results of a batch as tables for people."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from wtb.application.evaluation_engine import error_of
from wtb.application.queries.batch_data import MatrixRow
from wtb.batch_results import BatchResult, JobResult, error_line, failed_jobs, unscored_jobs
from wtb.cli.output import Terminal, cut, dollars, duration, echo, print_table, print_with_texts, shown
from wtb.cli.views.run_ids import short_ids
from wtb.domain.batch import JobStatus
from wtb.domain.display import counted, figure_or_dash
from wtb.domain.evaluation import Metric
from wtb.domain.printable import printable
from wtb.domain.spending import Spent
from wtb.domain.statistics.measurement import is_measured
from wtb.infrastructure.evaluators.builtin import Latency

if TYPE_CHECKING:
    from wtb.domain.statistics.intervals import Interval

_MARKS = {"better": ("▲", "green"), "worse": ("▼", "red"), "no evidence": ("·", "dim")}
_LONGEST = 300
"""Characters of an input or an output that people see; --json has all."""
_NEWLINE = "\n"
_FEW = 5
"""How many failures are listed."""


def interval(found: Interval | None) -> str:
    """Return an interval as text; empty if there is none."""
    return "" if found is None else f"[{figure_or_dash(found.low)}, {figure_or_dash(found.high)}]"


def signed(value: float | None) -> str:
    """Return a difference with its sign; a dash for None."""
    return f"+{figure_or_dash(value)}" if value is not None and value > 0 else figure_or_dash(value)


def best_first(result: BatchResult) -> list[MatrixRow]:
    """Return the matrix: the baseline first, then the others by the primary metric, best first."""
    first = result.metrics[result.primary]

    def place(row: MatrixRow) -> tuple[bool, float]:
        mean = row.summaries[first.name].mean
        return not row.is_baseline, math.inf if mean is None else -mean * first.direction.sign

    return sorted(result.matrix, key=place)


def print_matrix(result: BatchResult, rows: Sequence[MatrixRow]) -> None:
    """Print a row per combination with mean, verdict and interval of each metric; on two lines if it is too wide."""
    console = Terminal.whole_lines()
    metrics = list(result.shown_metrics.values())
    if _width(console, _matrix(metrics, rows, " ")) <= console.width:
        console.print(_matrix(metrics, rows, " "))
    else:
        _print_blocks(console, metrics, rows)
    if len(result.combinations) > 1:
        echo(f"▲ better, ▼ worse than {result.baseline}, · no evidence either way; ↑ higher, ↓ lower is better.")
        if len(result.shown_metrics) > 1:
            echo(f"{result.primary} decides who wins; the other metrics are judged together.")
    print_notes(result)


def _print_blocks(console: Terminal, metrics: Sequence[Metric], rows: Sequence[MatrixRow]) -> None:
    """Print as many metrics side by side as fit; the names of combinations are cut last."""
    left = list(metrics)
    while left:
        fitting = [
            count for count in range(1, len(left) + 1) if _width(console, _matrix(left[:count], rows)) <= console.width
        ]
        count = max(fitting, default=1)
        console.print(_matrix(left[:count], rows))
        left = left[count:]
        if left:
            echo()


def _width(console: Terminal, table: Table) -> int:
    return console.measure(table, options=console.options.update(width=1_000)).maximum


def print_notes(result: BatchResult) -> None:
    """Print the notes on how to read the verdicts."""
    if result.clusters:
        count = len({*result.clusters.values()}) + sum(case not in result.clusters for case in result.cases)
        echo(f"{counted(len(result.cases), 'case')} in clusters count as {count:,}.")
    for note in result.notes:
        echo(f"Note: {note}")


def _matrix(metrics: Sequence[Metric], rows: Sequence[MatrixRow], between: str = "\n") -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("combination", overflow="fold")
    for metric in metrics:
        table.add_column(shown(f"{metric.name} {'↑' if metric.direction.sign > 0 else '↓'}"), no_wrap=True)
    for row in rows:
        name = Text(shown(row.combination), style="bold" if row.is_baseline else "")
        table.add_row(name, *(_cell(row, metric.name, between) for metric in metrics))
    return table


def _cell(row: MatrixRow, metric: str, between: str) -> Text:
    summary = row.summaries[metric]
    text = Text(figure_or_dash(summary.mean))
    if metric in row.verdicts:
        mark, style = _MARKS[row.verdicts[metric].finding.value]
        text.append(f" {mark}", style=style)
    if summary.interval is not None:
        text.append(f"{between}{interval(summary.interval)}", style="dim")
    if summary.errors:
        text.append(f"{between}{counted(summary.errors, 'error')}", style="red")
    if summary.leaves_out_errors and summary.scored:
        text.append(f",{between}mean of {counted(summary.scored, 'scored run')}", style="yellow")
    if summary.missing:
        text.append(f"{between}{summary.missing:,} missing", style="yellow")
    return text


def print_sharing(result: BatchResult) -> None:
    """Print how many node runs were executed and shared, and which could not be shared."""
    sharing = result.sharing
    echo(f"{counted(sharing['executed'], 'node run')} executed, {sharing['shared']:,} shared.")
    for node, why in sharing["not_shareable"].items():
        echo(f"  {node} was not shared: {why}")


def print_crowding(result: BatchResult) -> None:
    """Warn if more jobs ran at a time than the machine has cores: then times are too long."""
    if result.crowding is not None and Latency().name in result.metrics:
        workers, cores = result.crowding
        echo(f"{workers} jobs ran at a time on {counted(cores, 'core')}, so computing nodes slowed each other down.")
        echo(f"  `--name quiet --workers {cores} --no-share` measures the times again.")


def print_measured_apart(result: BatchResult) -> None:
    """Name the combinations that were measured apart from the baseline: do not compare their latency or cost."""
    measured = [name for name in result.metrics if is_measured(name, result.weights)]
    ways: dict[str, list[str]] = {}
    for name, how in result.measured_apart.items():
        ways.setdefault(how, []).append(name)
    for how, names in ways.items():
        few = "; ".join(names[:_FEW]) + ("; …" if names[_FEW:] else "")
        echo(f"{few} and {result.baseline} were measured {how}:")
        echo(f"  that may explain differences in {', '.join(measured)}. --remeasure runs them side by side.")


def print_spent(result: BatchResult) -> None:
    """Print the cost, and the models whose price is unknown."""
    if result.spent.usd or result.spent.tokens:
        echo(f"Spent: {spending(result.spent)}.")
    if result.unpriced:
        models = ", ".join(result.unpriced)
        echo(f"No price is known for {models}: their cost is missing from all figures and budgets.")
        echo("  Report it with ctx.usage(cost_usd=…), or `pip install 'workflow-test-bench[prices]'`.")
        echo("  Finished runs do not change: `--name priced --no-share` runs the batch again.")


def spending(spent: Spent) -> str:
    """Return the money, tokens and time that a batch has used."""
    money = [dollars(spent.usd)] if spent.usd else []
    return ", ".join([*money, f"{spent.tokens:,} tokens", duration(spent.s)])


def print_failures(result: BatchResult) -> None:
    """List the first failed jobs, with the commands that open their runs."""
    failed = failed_jobs(result)
    if failed:
        echo(f"{counted(len(failed), 'job')} failed:")
    for job in failed[:_FEW]:
        echo(f"  {job.combination} on {job.case_id}: {printable(error_line(job))}")
        if job.run_id is not None:
            echo(f"    wtb show {job.run_id} --errors")
    if len(failed) > _FEW:
        echo(f"  … `wtb batch show {shlex.quote(result.batch.name)} --failed` lists all.")


def print_evaluation_failures(result: BatchResult) -> None:
    """Print how often each evaluator failed, with its first error and the run."""
    failed = unscored_jobs(result)
    for metric, jobs in failed.items():
        first = jobs[0]
        echo(f"{_how_often(result, metric, jobs)}; the first, {first.combination} on {first.case_id}:")
        echo(f"  {printable(error_of(first.scores[metric]) or '')}")
        echo(f"    wtb show {first.run_id}")
    if failed:
        name = shlex.quote(result.batch.name)
        echo(f"  `wtb batch show {name} --failed` lists all. Once you have fixed the evaluator,")
        echo(f"  `wtb batch retry {name} FILE` scores these runs again, without running the workflow.")


def print_not_taken_back(result: BatchResult) -> None:
    """List the first runs whose external calls are still in effect although they should have been taken back."""
    left = result.not_taken_back
    if left:
        echo(f"External calls of {counted(len(left), 'run')} were not taken back:")
    for each in left[:_FEW]:
        echo(f"  {each.combination} on {each.case_id}, run {each.run_id}: {printable(each.error)}")
    if left:
        name = shlex.quote(result.batch.name)
        more = f"  … `wtb batch show {name} --json` lists all. " if len(left) > _FEW else "  "
        echo(f"{more}Run the batch again to try again. `wtb show RUN` says more, also how to keep the calls.")


def print_evaluation_counts(result: BatchResult) -> None:
    """Print how often each evaluator failed."""
    for metric, jobs in unscored_jobs(result).items():
        echo(f"{_how_often(result, metric, jobs)}.")


def _how_often(result: BatchResult, metric: str, jobs: Sequence[JobResult]) -> str:
    finished = sum(job.status == JobStatus.COMPLETED for job in result.results)
    return f"Evaluator {metric} failed on {len(jobs):,} of {counted(finished, 'run')}"


def print_cases(result: BatchResult, jobs: Sequence[JobResult], metrics: Sequence[str]) -> None:
    """Print each case with its input and its expected value, and under it the output of every combination."""
    ids = short_ids(job.run_id for job in result.results if job.run_id is not None)
    for case, own in groupby(jobs, key=lambda job: job.case_id):
        text = result.case_texts[case]
        tags = f"  ({', '.join(text.tags)})" if text.tags else ""
        echo(f"{case}{tags}")
        for name, said in {"input": text.input, "expected": text.expected}.items():
            if said is not None:
                echo(f"  {name:<8}  {cut(said, _LONGEST).replace(_NEWLINE, _NEWLINE + ' ' * 12)}")
        rows = _answer_rows([*own], metrics, ids, has_repeats=result.batch.record.repeats > 1)
        print_with_texts(rows, "output", ("combination", "repeat"))
        echo()


def _answer_rows(
    jobs: Sequence[JobResult], metrics: Sequence[str], ids: Mapping[str, str], *, has_repeats: bool
) -> list[dict[str, Any]]:
    return [
        {
            "combination": job.combination,
            **({"repeat": job.repeat} if has_repeats else {}),
            **{metric: _score(job, metric) for metric in metrics},
            "output": _output(job),
            "run": ids.get(job.run_id or "", ""),
        }
        for job in jobs
    ]


def print_tags(result: BatchResult) -> None:
    """Print the means by tag of the best combinations; they are exploratory, so they have no verdicts."""
    tags = result.tags
    if not tags:
        return
    means = result.means_by_tag()
    few = [*tags][:_FEW]
    best = [row.combination for row in best_first(result)]
    shown = dict.fromkeys((result.baseline, *best[: _FEW + 1]))
    echo(f"Means of {result.primary} by tag (exploratory: no test stands behind these):")
    names = {tag: f"{tag} ({counted(len(tags[tag]), 'case')})" for tag in few}
    print_table(
        [{"combination": name, **{names[tag]: figure_or_dash(means[tag][name]) for tag in few}} for name in shown]
    )
    left = {"tag": len(tags) - len(few), "combination": len(best) - len(shown)}
    more = " and ".join(counted(number, f"more {noun}") for noun, number in left.items() if number > 0)
    if more:
        echo(f"{more}: --json has all.")
    echo()


def print_flaky(result: BatchResult) -> None:
    """List the cases on which repeats of one combination disagree, with the node at which their runs diverge."""
    found = result.flaky()
    if not found:
        return
    echo(f"{counted(len(found), 'flaky result')}: repeats of one combination disagree.")
    for each in found[:_FEW]:
        node = "" if each.node is None else f"; the runs part at {each.node}"
        echo(f"  {each.combination} on {each.case_id}: {', '.join(each.metrics)}{node}")
    if len(found) > _FEW:
        echo(f"  … {len(found) - _FEW:,} more: `wtb report {shlex.quote(result.batch.name)}` lists them.")


def _output(job: JobResult) -> str:
    if job.output is None:
        return error_line(job) or "–"
    return cut(job.output, _LONGEST)


def case_rows(results: Sequence[JobResult], metrics: Sequence[str]) -> list[dict[str, Any]]:
    """Return one row per job, with its run."""
    return [
        {
            "case": job.case_id,
            "combination": job.combination,
            **({"repeat": job.repeat} if any(each.repeat for each in results) else {}),
            **{metric: _score(job, metric) for metric in metrics},
            "run": job.run_id or "",
        }
        for job in results
    ]


def failure_rows(result: BatchResult) -> list[dict[str, Any]]:
    """Return one row per failed job and one per failed evaluation, with the error and the run."""
    found = [(job, error_line(job)) for job in failed_jobs(result)]
    for metric, jobs in unscored_jobs(result).items():
        found += [(job, error_of(job.scores[metric]) or "") for job in jobs]
    rows = case_rows([job for job, _ in found], ())
    return [{**row, "error": error} for row, (_, error) in zip(rows, found, strict=True)]


def _score(job: JobResult, metric: str) -> str:
    score = job.scores.get(metric)
    if score is None and job.status == JobStatus.COMPLETED:
        return "–"  # not scored yet
    return "error" if score is None or error_of(score) else figure_or_dash(float(score))
