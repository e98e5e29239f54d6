"""`wtb compare`, `baseline`, `gate`: which combination is better, and has the workflow become worse?"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from wtb.application.batches.baselines import known_combination
from wtb.application.queries.batch_data import verdict_data
from wtb.batch_results import BatchResult, compare_results
from wtb.bench import Bench
from wtb.cli.output import as_json, echo, example, print_with_texts, show, show_rows, url
from wtb.cli.views.batch_tables import interval, signed
from wtb.domain.batch import Baseline
from wtb.domain.display import counted
from wtb.domain.errors import BatchNotFound, InvalidInput
from wtb.domain.evaluation import FAILED, Errors
from wtb.domain.workflow import BASELINE
from wtb.gate_text import gate_data, said

if TYPE_CHECKING:
    from wtb.domain.statistics.verdicts import Verdict

_FEW = 10
"""How many names are listed."""

_EXIT = {"fine": 0, "regression": 4, "inconclusive": 5}

what = click.argument("what", metavar="BATCH[:COMBINATION]")


@click.command()
@click.argument("name", metavar="BATCH")
@click.argument("after", metavar="[BATCH2]", required=False)
@click.option("--metric", "metrics", multiple=True, metavar="M", help="Show only this metric; repeatable.")
@click.option(
    "--errors",
    type=click.Choice([each.value for each in Errors]),
    default=Errors.WORST.value,
    show_default=True,
    help="How to count a failed run: as the worst score (if the metric has none, as a lost case), or not at all: its "
    "case is dropped.",
)
@click.option(
    "--max-errors",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Never call a combination better if it fails on more than N cases on which the baseline does not fail.",
)
@url
@as_json
@example(
    "wtb compare support_qa --metric token_f1",
    "wtb compare support_qa support_qa_new --metric token_f1",
    "wtb compare baseline/main support_qa",
)
def compare(
    *,
    name: str,
    after: str | None,
    metrics: tuple[str, ...],
    errors: str,
    max_errors: int,
    url: str | None,
    as_json: bool,
) -> None:
    """Compare every combination of a batch with its baseline, case by case.

    With BATCH2, compare each combination in BATCH2 with the same combination in BATCH, on the cases that both have.
    Either may be BATCH:COMBINATION, or baseline/NAME for a baseline that you set with `wtb baseline`. If a batch has
    that very name, the batch is meant.

    A verdict says better or worse only if chance is ruled out (5 %). The primary metric decides who wins; all
    combinations are judged together on it. The other metrics and the share of failed runs are judged together as a
    second group. --metric changes only what you see.
    """
    only: dict[str, dict[str, list[str]]] = {}
    with Bench(url) as bench:
        if after is None:
            result = _batch_or_baseline(bench, name)
            found = result.compare(*metrics, errors=errors, max_errors=max_errors)
            against, notes = result.baseline, result.notes
        else:
            found, against, only, notes = _across(bench, name, after, metrics, errors=errors, max_errors=max_errors)
    if errors == Errors.DROP:
        echo(
            "Warning: --errors drop leaves out failed cases, which flatters combinations that fail on hard ones.",
            err=True,
        )
    shown = found if as_json or metrics else _worth_a_row(found)
    several = len({each.comparison.metric.name for each in shown}) > 1
    rows = [{**_for_programs(each), **only} if as_json else _for_people(each, named=several) for each in shown]
    if rows and not as_json:
        print_with_texts(rows, "why", ("combination", "metric"))
    else:
        show_rows(rows, as_json=as_json, empty="There is only one combination, so there is nothing to compare.")
    if found and not as_json:
        _print_legend(shown, against)
        _print_dropped(found, only)
        for note in notes:
            echo(f"Note: {note}")


def _worth_a_row(found: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts; leave out the share of failed runs if no run failed."""
    failed = {each.comparison.metric.name for each in found if each.comparison.wins or each.comparison.losses}
    return [each for each in found if each.comparison.metric != FAILED or FAILED.name in failed]


def _print_legend(shown: Sequence[Verdict], against: str) -> None:
    families = dict.fromkeys(each.family for each in shown)
    text = "; ".join(f"{family}{' (primary)' if family.is_primary else ''}" for family in families)
    echo(f"Differences from {against}. p is adjusted (step-down maxT) for {text}.")
    echo("w/t/l: cases won, tied and lost; needed: about how many cases would show the difference.")


def _across(
    bench: Bench, name: str, after: str, metrics: Sequence[str], *, errors: str, max_errors: int
) -> tuple[tuple[Verdict, ...], str, dict[str, dict[str, list[str]]], list[str]]:
    """Compare two batches; return the verdicts, the name of the old side, what only one side has, and notes."""
    (first, one), (second, other) = split(name), split(after)
    old, new = _batch_or_baseline(bench, first), _batch_or_baseline(bench, second)
    pairs = []
    if one is not None or other is not None:
        pairs = [(known_combination(old.batch, one or other), known_combination(new.batch, other or one))]
    found = compare_results(old, new, metrics, pairs=pairs, errors=errors, max_errors=max_errors)
    only = {"cases_only_in": _only_in_one(first, old.cases, second, new.cases)}
    if pairs:
        return found, f"{first}:{pairs[0][0]}", only, new.notes
    only["combinations_only_in"] = _only_in_one(first, old.combinations, second, new.combinations)
    return found, f"the same combination in {first}", only, new.notes


def _batch_or_baseline(bench: Bench, name: str) -> BatchResult:
    """Return a batch; if there is none of this name, baseline NAME may be meant, written as baseline/NAME."""
    try:
        return bench.get_batch(name)
    except BatchNotFound:
        prefix, slash, baseline = name.partition("/")
        if not slash or prefix != BASELINE:
            raise
        return bench.get_baseline(baseline)


def _only_in_one(first: str, theirs: Sequence[str], second: str, ours: Sequence[str]) -> dict[str, list[str]]:
    sides = ((first, theirs, set(ours)), (second, ours, set(theirs)))
    return {batch: [name for name in own if name not in others] for batch, own, others in sides if set(own) - others}


def _print_dropped(found: Sequence[Verdict], only: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
    """Name the cases and combinations that could not be compared."""
    for what, batches in only.items():
        for batch, names in batches.items():
            few = "; ".join(names[:_FEW]) + ("; …" if names[_FEW:] else "")
            echo(f"{counted(len(names), what.partition('s_')[0])} only in {batch}, left out: {few}")
    if not only and any(each.comparison.dropped for each in found):
        echo("Some cases have no score on both sides and were left out; --json shows how many.")


def _for_programs(verdict: Verdict) -> dict[str, Any]:
    comparison = verdict.comparison
    return {
        "combination": comparison.candidate,
        "against": comparison.baseline,
        "metric": comparison.metric.name,
        **verdict_data(verdict),
    }


def _for_people(verdict: Verdict, *, named: bool) -> dict[str, Any]:
    comparison = verdict.comparison
    needed = verdict.needed_cases
    return {
        "combination": comparison.candidate,
        **({"metric": comparison.metric.name} if named else {}),
        "verdict": verdict.finding.value,
        "difference": f"{signed(comparison.difference)} {interval(comparison.interval)}",
        "p": f"{verdict.adjusted_p:.3f}" if verdict.adjusted_p >= 0.001 else "<0.001",
        "w/t/l": f"{comparison.wins}/{comparison.ties}/{comparison.losses}",
        "needed": str(needed) if needed is not None and verdict.finding.value == "no evidence" else "",
        "why": verdict.reason,
    }


@click.group()
def baseline() -> None:
    """Save scores under a name, to compare later batches with."""


@baseline.command("set")
@click.argument("name", metavar="NAME")
@click.argument("batches", metavar="BATCH[:COMBINATION]…", nargs=-1, required=True)
@url
@as_json
@example(
    "wtb baseline set main support_qa",
    "wtb baseline set main 'support_qa:answer=long'",
    "wtb baseline set main monday tuesday wednesday",
)
def set_baseline(*, name: str, batches: tuple[str, ...], url: str | None, as_json: bool) -> None:
    """Save the scores of a combination as baseline NAME.

    Without COMBINATION, the batch's baseline is saved. The scores are a copy: they do not change when you run the batch
    again, only when you set NAME again.

    With several batches of the same workflow, the runs of a case count as repeats, so that chance moves their average
    less. Run each batch with --no-share under its own name; shared results would be copies of each other.
    """
    named = [split(each) for each in batches]
    chosen = {combination for _, combination in named if combination is not None}
    if len(chosen) > 1:
        raise InvalidInput(f"name one combination for all batches, not {'; '.join(sorted(chosen))}")
    with Bench(url) as bench:
        kept = bench.set_baseline(name, [batch for batch, _ in named], next(iter(chosen), None))
        result = bench.get_baseline(kept.name)
    record = result.batch.record
    count, total = len(result.results), len(record.cases) * record.repeats
    text = f"Saved baseline {name}: {kept.combination} of {', '.join(record.pooled)}, {counted(count, 'result')}."
    if count < total:
        text += f" {total - count:,} of {total:,} are missing, because not every batch has run every case."
    if len(record.pooled) > 1 and record.copies:
        text += (
            f"\n{', '.join(record.copies)} executed nothing: its results are copies of another batch's, so they do not"
            " make the average more certain. Run it with --no-share."
        )
    data = {
        "baseline": name,
        "combination": kept.combination,
        "batches": list(record.pooled),
        "copies": list(record.copies),
    }
    show({**data, "results": count, "of": total}, text, as_json=as_json)


@baseline.command("ls")
@url
@as_json
@example("wtb baseline ls")
def list_baselines(*, url: str | None, as_json: bool) -> None:
    """List baselines by name."""
    with Bench(url) as bench:
        rows = [_baseline_row(each, bench.get_baseline(each.name)) for each in bench.list_baselines()]
    if not as_json:
        rows = [{**row, "batches": ", ".join(row["batches"])} for row in rows]
    show_rows(rows, as_json=as_json, empty="No baselines here yet; `wtb baseline set NAME BATCH` saves one.")


def _baseline_row(baseline: Baseline, kept: BatchResult) -> dict[str, Any]:
    record = kept.batch.record
    return {
        "baseline": baseline.name,
        "workflow": kept.batch.workflow_name,
        "combination": baseline.combination,
        "batches": list(record.pooled),  # empty in baselines of older versions
        "cases": len(record.cases),
        "repeats": record.repeats,
        "results": len(kept.results),
        "made": baseline.created_at,
    }


@baseline.command("delete")
@click.argument("name", metavar="NAME")
@url
@as_json
@example("wtb baseline delete main")
def delete_baseline(*, name: str, url: str | None, as_json: bool) -> None:
    """Delete a baseline with its saved results.

    The batches that it came from stay, and so do their runs.
    """
    with Bench(url) as bench:
        gone = bench.delete_baseline(name)
    show(
        {"baseline": gone.name, "combination": gone.combination, "deleted": True},
        f"Deleted baseline {gone.name}. Batches and runs stay; `wtb baseline set {gone.name} BATCH` saves it again.",
        as_json=as_json,
    )


@click.command()
@what
@click.option("--baseline", "against", required=True, metavar="NAME", help="Baseline to compare with.")
@click.option("--metric", required=True, metavar="M", help="Metric to compare.")
@click.option(
    "--max-drop",
    default="0",
    show_default=True,
    metavar="X|P%",
    help="Allow this drop: in units of the metric, or in percent of the baseline's score.",
)
@click.option(
    "--max-errors",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Allow N cases that fail now and do not fail with the baseline.",
)
@click.option("--non-inferior", is_flag=True, help="Pass only with proof that the drop is smaller than --max-drop.")
@url
@as_json
@example(
    "wtb gate support_qa --baseline main --metric token_f1 --max-drop 0.02",
    "wtb gate support_qa --baseline main --metric latency_s --max-drop 10%",
)
def gate(
    *,
    what: str,
    against: str,
    metric: str,
    max_drop: str,
    max_errors: int,
    non_inferior: bool,
    url: str | None,
    as_json: bool,
) -> None:
    """Check whether a workflow has become worse, for a CI job.

    WTB compares a batch with a baseline, case by case. Without COMBINATION, it checks the baseline combination of the
    batch: the workflow as it is.

    The command exits with 0 if no regression is shown. A drop may still be hidden; --non-inferior demands proof.

    It exits with 4 if the scores or the errors show a regression.

    It exits with 5 if the result is inconclusive: more cases fail than --max-errors allows, cases have not run, no case
    can be compared, or there are fewer than 5 cases and more was lost than --max-drop allows. With --non-inferior, also
    if there is no proof.
    """
    batch, combination = split(what)
    with Bench(url) as bench:
        found = bench.gate(
            batch,
            baseline=against,
            metric=metric,
            max_drop=max_drop,
            max_errors=max_errors,
            non_inferior=non_inferior,
            combination=combination,
        )
    show(gate_data(found), said(found), as_json=as_json)
    sys.exit(_EXIT[found.gate.outcome.value])


def split(what: str) -> tuple[str, str | None]:
    """Split BATCH[:COMBINATION] into the batch and the combination."""
    head, colon, tail = what.rpartition(":")
    return (head, tail) if colon and (tail.strip() == BASELINE or "=" in tail) else (what, None)
