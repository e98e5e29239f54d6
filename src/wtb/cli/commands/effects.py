"""`wtb effects`: which node matters?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from wtb.application.queries.batch_data import effects_data
from wtb.bench import Bench
from wtb.cli.output import as_json, echo, example, show_rows, url
from wtb.cli.views.batch_tables import interval, signed
from wtb.domain.display import counted
from wtb.domain.evaluation import PRICES, Errors

if TYPE_CHECKING:
    from wtb.domain.statistics.effects import VariantEffect, VariantEffects

_FEW = 5
"""How many effects that cannot be told apart are listed."""


@click.command()
@click.argument("name", metavar="BATCH")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="M",
    help="Look only at this metric; repeatable. Default: all metrics.",
)
@click.option(
    "--errors",
    type=click.Choice([each.value for each in Errors]),
    default=Errors.WORST.value,
    show_default=True,
    help="How to count a failed run: as the worst score (if the metric has none, as a lost case), or not at all.",
)
@url
@as_json
@example("wtb effects support_qa", "wtb effects support_qa --metric token_f1 --json")
def effects(*, name: str, metrics: tuple[str, ...], errors: str, url: str | None, as_json: bool) -> None:
    """Show which node matters: the effect of each variant, averaged over the variants of all other nodes.

    For every case, the effect of a variant is its score less that of the node's default. An interaction says how much
    the effect of one variant changes with another; read it beside the effects, since these are averages. Chance is
    ruled out at 5 % for all effects of a metric together.
    """
    with Bench(url) as bench:
        result = bench.get_batch(name)
        chosen = metrics or tuple(result.metrics)
        wanted = chosen if as_json else (*chosen, *(metric for metric in result.metrics if metric in PRICES))
        found = {metric: result.effects(metric, errors=errors) for metric in wanted}
    if as_json:
        show_rows([row for metric in chosen for row in effects_data(found[metric])], as_json=True, empty="")
        return
    prices = [each for metric, each in found.items() if metric in PRICES]
    for number, metric in enumerate(chosen):
        if number:
            echo("")
        _print(found[metric], [] if metric in PRICES else prices)


def _print(found: VariantEffects, prices: Sequence[VariantEffects]) -> None:
    echo(found.sentence(prices))
    shown = [effect for effect in found.interactions if effect.is_shown]
    if found.main:
        show_rows([_for_people(effect) for effect in (*found.ranked, *shown)], as_json=False, empty="")
    hidden = len(found.interactions) - len(shown)
    if hidden:
        echo(f"{counted(hidden, 'interaction')} of two variants not shown to be there; --json has all of them.")
    if found.confounded:
        _print_confounded(found)
    elif not found.is_complete:
        echo("Not every combination has run on every case: effects of single variants assume no interactions.")


def _print_confounded(found: VariantEffects) -> None:
    single = [each for each in found.confounded if len(each.factors) == 1]
    for each in single[:_FEW]:
        echo(f"{each.name} cannot be told apart from {_listed(each.with_)} with these combinations.")
    pairs = len(found.confounded) - len(single)
    if pairs:
        echo(f"{counted(pairs, 'interaction')} cannot be told apart with these combinations, and the effects above")
        echo('  assume that there are none. `variants="all"` runs the whole grid.')


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_FEW]) + (", …" if names[_FEW:] else "")


def _for_people(effect: VariantEffect) -> dict[str, Any]:
    return {
        "variant": effect.name,
        "effect": "interaction" if effect.is_interaction else effect.finding.value,
        "difference": f"{signed(effect.difference)} {interval(effect.interval)}",
        "p": f"{effect.p_value:.3f}" if effect.p_value >= 0.001 else "<0.001",
        "cases": effect.units,
    }
