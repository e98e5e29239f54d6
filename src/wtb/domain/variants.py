"""Combinations: one variant for each node, and the choice of combinations that a batch runs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wtb.domain.errors import InvalidInput
from wtb.domain.workflow import BASELINE

Combination = Mapping[str, str]
"""The variants that replace nodes' own implementations, by node; empty for the workflow as it is."""

Choices = Mapping[str, Sequence[str]]
"""The variants of each node that has any, without the node's own implementation."""


def label(combination: Combination) -> str:
    """Return a combination as a person writes it: `retrieve=dense, answer=long`, or `baseline`."""
    return ", ".join(f"{node}={name}" for node, name in sorted(combination.items())) or BASELINE


def parse_label(text: str) -> dict[str, str]:
    """Return the combination that a label names."""
    if text.strip() == BASELINE:
        return {}
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(equals and node.strip() and name.strip() for node, equals, name in pairs):
        raise InvalidInput(f"{text!r} is not a combination; write node=variant, node=variant, or {BASELINE}")
    return normal({node.strip(): name.strip() for node, _, name in pairs})


def normal(combination: Combination) -> dict[str, str]:
    """Return a combination sorted by node, without nodes that use their own implementation."""
    return {node: name for node, name in sorted(combination.items()) if name != BASELINE}


def combinations(choices: Choices, wanted: Any, *, baseline: Any, seed: int = 0) -> list[dict[str, str]]:
    """Return the wanted combinations without repeats, the baseline first.

    `wanted` is `all`, `one_at_a_time` (each variant alone against the baseline), `pairwise` (every two variants meet at
    least once), `random:N`, or a list of combinations.
    """
    if not isinstance(baseline, Mapping):
        raise InvalidInput(f"baseline={baseline!r} is not a combination; give {{'NODE': 'VARIANT'}}, or leave it out")
    base = normal(baseline)
    options = {node: [BASELINE, *names] for node, names in choices.items()}
    match wanted:
        case "all":
            found = _all(options)
        case "one_at_a_time":
            found = ({**base, node: name} for node, names in options.items() for name in names)
        case "pairwise":
            found = iter(_pairwise(options)) if len(options) > 1 else _all(options)  # one node has no pairs
        case str() if wanted.startswith("random:") and wanted[7:].isdecimal():
            found = iter(_random(options, int(wanted[7:]), seed))
        case list() | tuple() if all(isinstance(each, Mapping) for each in wanted):
            found = iter(wanted)
        case _:
            raise InvalidInput(
                f"variants={wanted!r}: give all, one_at_a_time, pairwise, random:N or a list of combinations"
            )
    unique = {tuple(normal(each).items()): normal(each) for each in (base, *found)}
    return list(unique.values())


def _all(options: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    for names in itertools.product(*options.values()):
        yield dict(zip(options, names, strict=True))


def _random(options: Mapping[str, Sequence[str]], count: int, seed: int) -> list[dict[str, str]]:
    everything = list(_all(options))
    return random.Random(seed).sample(everything, min(count, len(everything)))


def _pairwise(options: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Cover every pair of variants of two nodes, greedily: each combination covers as many missing pairs as it can."""
    missing = {
        frozenset({(one, first), (other, second)})
        for one, other in itertools.combinations(options, 2)
        for first in options[one]
        for second in options[other]
    }
    found: list[dict[str, str]] = []
    while missing:
        combination = dict(min(missing, key=sorted))
        for node, names in options.items():
            if node not in combination:
                combination[node] = max(names, key=lambda name: _covered({**combination, node: name}, missing))
        missing -= {pair for pair in missing if pair <= set(combination.items())}
        found.append(combination)
    return found


def _covered(combination: Mapping[str, str], missing: set[frozenset[tuple[str, str]]]) -> int:
    chosen = set(combination.items())
    return sum(pair <= chosen for pair in missing)
