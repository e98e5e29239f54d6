"""`wtb evaluate`: score finished runs and batches, without running them again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from wtb.batch_results import BatchResult, unscored_jobs
from wtb.bench import Bench
from wtb.cli.commands.runs import read_value
from wtb.cli.exit_codes import WORK_FAILED
from wtb.cli.output import as_json, echo, example, print_json, print_table, url
from wtb.cli.views.batch_overview import print_overview
from wtb.cli.views.batch_tables import best_first
from wtb.cli.views.run_ids import short_ids
from wtb.cli.views.scores import score_data, score_text
from wtb.domain.errors import BatchNotFound, ExecutionNotFound, InvalidInput, NotFound
from wtb.domain.run_scores import RunScore
from wtb.evaluators import load_evaluator
from wtb.infrastructure.evaluators.named import read_evaluators
from wtb.loading import load_workflow
from wtb.runs import Run


class NothingToScore(NotFound):
    """Neither a run nor a batch has this name."""

    noun = "run or batch"
    hint = "; `wtb ls` lists runs, and `wtb batch ls` lists batches"


@click.command()
@click.argument("names", metavar="RUN|BATCH...", nargs=-1, required=True)
@click.option(
    "--evaluator",
    "evaluators",
    multiple=True,
    required=True,
    metavar="NAME",
    help="Score with this evaluator: a name such as `steps`, a name with a key of the state such as "
    "`exact_match:answer`, or your own as `file.py:evaluator`; repeatable.",
)
@click.option("--expected", metavar="JSON|TEXT", help="What a run should have given, for evaluators that compare.")
@click.option(
    "--cases",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="For a batch: use what the cases in this JSONL or CSV file expect, instead of the batch's own.",
)
@click.option("--workers", type=click.IntRange(1), metavar="N", help="For a batch: score N runs at the same time.")
@click.option("--workflow", metavar="WORKFLOW", help="Load this workflow first, if the state holds your own classes.")
@url
@as_json
@example(
    "wtb evaluate first --evaluator steps --evaluator exact_match:answer --expected Paris",
    "wtb evaluate support_qa --evaluator checks.py:is_polite",
)
def evaluate(
    *,
    names: tuple[str, ...],
    evaluators: tuple[str, ...],
    expected: str | None,
    cases: Path | None,
    workers: int | None,
    workflow: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Score finished runs or batches, without running them again.

    Name runs by their id or the start of it, and batches by name or id. The scores are kept: `wtb show RUN` shows those
    of a run, and `wtb batch show BATCH` those of a batch, where they count in verdicts, reports and gates. If a batch
    has scores of this name, they are made again where the evaluator or the expected value has changed.

    A run of a batch is compared with what its case expects, unless you give --expected.

    The command exits with 3 if an evaluator failed.
    """
    if workflow:
        load_workflow(workflow)
    chosen = read_evaluators([load_evaluator(name) for name in evaluators])
    metrics = [each.name for each in chosen]
    with Bench(url) as bench:
        found = [_found(bench, name) for name in names]
        _check_options(found, expected=expected, for_batches={"--cases": cases, "--workers": workers})
        runs: list[tuple[Run, list[RunScore]]] = []
        batches: list[BatchResult] = []
        for each in found:
            if isinstance(each, Run):
                bench.evaluate(each, chosen, expected=None if expected is None else read_value(expected, "--expected"))
                scores = each.scores
                runs.append((each, [scores[metric] for metric in metrics]))
            else:
                batches.append(bench.evaluate(each, chosen, cases=cases, workers=workers))
        if as_json:
            print_json([*map(_run_data, runs), *(each.overview(best_first(each)).to_data() for each in batches)])
        else:
            _print(runs, batches)
    failed = [score for _, scores in runs for score in scores if score.error is not None]
    if failed or any(unscored_jobs(batch).keys() & {*metrics} for batch in batches):
        sys.exit(WORK_FAILED)


def _found(bench: Bench, name: str) -> Run | BatchResult:
    try:
        return bench.get_batch(name)
    except BatchNotFound:
        try:
            return bench.get(name)
        except ExecutionNotFound:
            raise NothingToScore(name) from None


def _check_options(found: list[Run | BatchResult], *, expected: str | None, for_batches: dict[str, Any]) -> None:
    """Refuse an option that does nothing for what was named."""
    if expected is not None and not any(isinstance(each, Run) for each in found):
        raise InvalidInput("--expected is for runs; the cases of a batch say what they expect, see --cases")
    given = [name for name, value in for_batches.items() if value is not None]
    if given and all(isinstance(each, Run) for each in found):
        raise InvalidInput(f"{given[0]} is for batches, and you named none")


def _run_data(scored: tuple[Run, list[RunScore]]) -> dict[str, Any]:
    run, scores = scored
    return {"run": run.id, "scores": [score_data(score) for score in scores]}


def _print(runs: list[tuple[Run, list[RunScore]]], batches: list[BatchResult]) -> None:
    ids = short_ids(run.id for run, _ in runs)
    if runs:
        print_table([{"run": ids[run.id], **{each.metric: score_text(each) for each in own}} for run, own in runs])
    for run, scores in runs:
        for score in scores:
            if score.error is not None:
                echo(f"{ids[run.id]}: {score.error}")
    for number, batch in enumerate(batches):
        if runs or number:
            echo()
        print_overview(batch, best_first(batch))
