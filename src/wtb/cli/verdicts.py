"""`wtb compare`, `baseline`, `gate`: which combination is better, and whether the workflow has become worse."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from wtb.baselines import GateResult, known_combination
from wtb.batch_results import compare_results
from wtb.bench import Bench
from wtb.cli.batch_tables import ends, interval, number, verdict_data
from wtb.cli.output import as_json, counted, echo, example, show, show_rows, url
from wtb.domain.evaluation import Errors
from wtb.domain.workflow import BASELINE

if TYPE_CHECKING:
    from wtb.domain.statistics import Verdict

_FEW = 10
"""How many cases are named."""

_EXIT = {"fine": 0, "regression": 4, "inconclusive": 5}

what = click.argument("what", metavar="BATCH[:COMBINATION]")


@click.command()
@click.argument("name", metavar="BATCH")
@click.argument("after", metavar="[BATCH2]", required=False)
@click.option("--metric", "metrics", multiple=True, metavar="M", help="Only this one; may be given several times.")
@click.option(
    "--errors",
    type=click.Choice([each.value for each in Errors]),
    default=Errors.WORST.value,
    show_default=True,
    help="What a failed run counts as: the worst score, or nothing, with its case left out.",
)
@url
@as_json
@example(
    "wtb compare support_qa --metric token_f1",
    "wtb compare support_qa support_qa_new --metric token_f1",
    "wtb compare baseline/main support_qa",
)
def compare(
    *, name: str, after: str | None, metrics: tuple[str, ...], errors: str, url: str | None, as_json: bool
) -> None:
    """Compare every combination of a batch with its baseline, case by case.

    Given BATCH2, every combination that both have is compared with itself: what BATCH2 scored against what BATCH did,
    on the cases that both have. Either may be BATCH:COMBINATION, or baseline/NAME for what `wtb baseline` keeps.

    Better or worse is said only where chance is ruled out (5 %) among all comparisons that are shown: ask about the
    metrics that matter, and it takes fewer cases.
    """
    only: dict[str, dict[str, list[str]]] = {}
    with Bench(url) as bench:
        if after is None:
            result = bench.get_batch(name)
            found, against = result.compare(*metrics, errors=errors), result.baseline
        else:
            found, against, only = _across(bench, name, after, metrics, errors)
    several = len({each.comparison.metric.name for each in found}) > 1
    rows = [{**_for_programs(each), **only} if as_json else _for_people(each, named=several) for each in found]
    show_rows(rows, as_json=as_json, empty="There is only one combination: nothing to compare.")
    if found and not as_json:
        echo(f"Differences from {against}; p is adjusted for {counted(len(found), 'comparison')} (Holm);")
        echo("w/t/l: cases won, tied and lost; needed: about how many cases in all would tell.")
        _print_dropped(found, only)


def _across(
    bench: Bench, name: str, after: str, metrics: Sequence[str], errors: str
) -> tuple[tuple[Verdict, ...], str, dict[str, dict[str, list[str]]]]:
    """Compare two batches; return the verdicts, what they are against, and what only one of the batches has."""
    (first, one), (second, other) = split(name), split(after)
    old, new = bench.get_batch(first), bench.get_batch(second)
    pairs = []
    if one is not None or other is not None:
        pairs = [(known_combination(old, one or other), known_combination(new, other or one))]
    found = compare_results(old, new, metrics, pairs=pairs, errors=errors)
    only = {"cases_only_in": _alone(first, old.cases, second, new.cases)}
    if pairs:
        return found, f"{first}:{pairs[0][0]}", only
    only["combinations_only_in"] = _alone(first, old.combinations, second, new.combinations)
    return found, f"the same combination in {first}", only


def _alone(first: str, theirs: Sequence[str], second: str, ours: Sequence[str]) -> dict[str, list[str]]:
    sides = ((first, theirs, set(ours)), (second, ours, set(theirs)))
    return {batch: [name for name in own if name not in others] for batch, own, others in sides if set(own) - others}


def _print_dropped(found: Sequence[Verdict], only: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
    """Name what could not be compared."""
    for what, batches in only.items():
        for batch, names in batches.items():
            few = "; ".join(names[:_FEW]) + ("; …" if names[_FEW:] else "")
            echo(f"{counted(len(names), what.partition('s_')[0])} only in {batch}, left out: {few}")
    if not only and any(each.comparison.dropped for each in found):
        echo("Not all cases have a score on both sides: --json has how many.")


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
        "needed": f"{needed:,}" if needed is not None and verdict.finding.value == "no evidence" else "",
    }


def signed(value: float | None) -> str:
    """Return a difference with its sign."""
    return f"+{number(value)}" if value is not None and value > 0 else number(value)


@click.group()
def baseline() -> None:
    """Keep what a combination has scored, for `wtb gate`."""


@baseline.command("set")
@click.argument("name", metavar="NAME")
@what
@url
@as_json
@example("wtb baseline set main support_qa", "wtb baseline set main 'support_qa:answer=long'")
def set_baseline(*, name: str, what: str, url: str | None, as_json: bool) -> None:
    """Keep what a combination of a batch has scored as NAME; by default that of the batch's baseline.

    It is kept as it is now: running the batch again does not change it, setting NAME again does.
    """
    batch, combination = split(what)
    with Bench(url) as bench:
        kept = bench.set_baseline(name, batch, combination)
        result = bench.get_batch(kept.batch_id)
    count, total = len(result.results), len(result.batch.plan["cases"]) * result.batch.plan["repeats"]
    text = f"{name} is {kept.combination} of {batch}, {counted(count, 'result')}."
    if count < total:
        text += f" {total - count:,} of {total:,} are missing: the batch was not finished."
    show({"baseline": name, "combination": kept.combination, "results": count, "of": total}, text, as_json=as_json)


@baseline.command("ls")
@url
@as_json
@example("wtb baseline ls")
def list_baselines(*, url: str | None, as_json: bool) -> None:
    """List baselines by name."""
    with Bench(url) as bench:
        rows = [
            {
                "baseline": each.name,
                "workflow": (kept := bench.get_batch(each.batch_id)).batch.workflow_name,
                "combination": each.combination,
                "results": len(kept.results),
                "made": each.created_at,
            }
            for each in bench.list_baselines()
        ]
    show_rows(rows, as_json=as_json, empty="No baselines here yet; `wtb baseline set NAME BATCH` makes one.")


@click.command()
@what
@click.option("--baseline", "against", required=True, metavar="NAME", help="What to hold it against.")
@click.option("--metric", required=True, metavar="M", help="What to look at.")
@click.option("--max-drop", type=click.FloatRange(0), default=0.0, show_default=True, help="How much worse it may be.")
@click.option("--non-inferior", is_flag=True, help="Pass only with proof that it is not worse than that.")
@url
@as_json
@example("wtb gate support_qa --baseline main --metric token_f1 --max-drop 0.02")
def gate(
    *,
    what: str,
    against: str,
    metric: str,
    max_drop: float,
    non_inferior: bool,
    url: str | None,
    as_json: bool,
) -> None:
    """Say whether a workflow has become worse.

    A combination of the batch, by default its baseline (the workflow as it is), is held against NAME, case by case.
    Exits with 0 when all is fine, 4 on a regression that the scores support, 5 when they do not tell.
    """
    batch, combination = split(what)
    with Bench(url) as bench:
        found = bench.gate(
            batch,
            baseline=against,
            metric=metric,
            max_drop=max_drop,
            non_inferior=non_inferior,
            combination=combination,
        )
    show(_gate_data(found), said(found), as_json=as_json)
    sys.exit(_EXIT[found.gate.outcome.value])


def split(what: str) -> tuple[str, str | None]:
    """Return the batch and the combination of BATCH[:COMBINATION]."""
    head, colon, tail = what.rpartition(":")
    return (head, tail) if colon and (tail.strip() == BASELINE or "=" in tail) else (what, None)


def said(found: GateResult) -> str:
    """Return what a gate says, for the log of a CI job: the outcome first, then what it was decided on."""
    gate, comparison = found.gate, found.comparison
    names = f"{comparison.metric.name} of {comparison.candidate} against baseline {found.baseline.name}"
    lines = [f"{gate.outcome.value.upper()}: {names}"]
    if gate.drop is None:
        return f"{lines[0]}\n  no case has a score on both sides: are the ids of the cases the same?"
    change = f"worse by {number(gate.drop)}" if gate.drop > 0 else f"better by {number(-gate.drop)}"
    lines.append(f"  {change if gate.drop else 'equal'}; it may be worse by {number(gate.allowed)}")
    if gate.at_least is not None and gate.at_most is not None:
        lines.append(f"  the true drop is at least {number(gate.at_least)}, at most {number(gate.at_most)} (95 % each)")
    dropped = f", {comparison.dropped:,} more not on both sides" if comparison.dropped else ""
    lines.append(
        f"  {counted(comparison.pairs, 'case')}{dropped}: "
        f"{comparison.wins} better, {comparison.ties} equal, {comparison.losses} worse"
    )
    if gate.outcome.value == "inconclusive":
        lines.append("  these cases do not tell: run more of them, or allow a larger drop")
    return "\n".join(lines)


def _gate_data(found: GateResult) -> dict[str, Any]:
    gate, comparison = found.gate, found.comparison
    return {
        "outcome": gate.outcome.value,
        "baseline": found.baseline.name,
        "candidate": comparison.candidate,
        "metric": comparison.metric.name,
        "drop": gate.drop,
        "allowed": gate.allowed,
        "at_least": gate.at_least,
        "at_most": gate.at_most,
        "difference": comparison.difference,
        "interval": ends(comparison.interval),
        "cases": comparison.pairs,
        "dropped": comparison.dropped,
        "wins": comparison.wins,
        "ties": comparison.ties,
        "losses": comparison.losses,
    }
