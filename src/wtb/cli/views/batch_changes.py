"""Prints what a batch noticed: changes since the last run, and nodes whose dependencies are known only roughly."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from wtb.application.batches.forecast import ExternalTool, Forecast
from wtb.application.batches.planner import SETUP
from wtb.batch_results import BatchResult
from wtb.cli.output import echo
from wtb.domain.display import counted
from wtb.domain.printable import printable

_FEW = 5


def print_forecast(forecast: Forecast, name: str) -> None:
    """Print what a run of the batch would do."""
    echo(f"{name}: {counted(forecast.jobs, 'job')}")
    jobs = f"  jobs       {forecast.kept:,} kept, {forecast.run:,} to run"
    echo(jobs + (f", {forecast.scored:,} to score only" if forecast.scored else ""))
    echo(
        f"  node runs  {forecast.node_runs_kept:,} kept, about {forecast.node_runs_shared:,} shared, "
        f"{forecast.node_runs_executed:,} executed"
    )
    print_changes(forecast.changes)
    print_coarse(forecast.coarse)
    print_changing(forecast.changing)
    print_outside(forecast.outside, name)
    print_external(forecast)


def print_external(forecast: Forecast) -> None:
    """Name the external tools that the jobs to run may call, and what happens to their calls."""
    for tool in forecast.external:
        if tool.jobs:
            echo(f"  {printable(str(tool))}")


def print_changes(changes: Mapping[str, Sequence[str]]) -> None:
    """Print what has changed since the last run, one line per node."""
    if not changes:
        return
    echo("Changed since the last run:")
    for node, words in changes.items():
        what = node if node == SETUP or node.startswith("the ") else f"node {node}"
        echo(f"  {printable(what)}: {printable(_few(words))}")


def print_coarse(coarse: Mapping[str, Sequence[str]]) -> None:
    """Name the nodes whose code WTB cannot inspect, and what it watches instead."""
    for node, words in coarse.items():
        echo(f"  node {printable(node)}: {printable(_few(words))}.")
    if coarse:
        echo("  Use `depends_on=[…]` or `__wtb_fingerprint__()` to say more precisely what such a node depends on.")


def print_changing(changing: Sequence[str]) -> None:
    """Name the values that WTB ignores because the runs themselves change them."""
    if changing:
        echo(f"  Ignored, because runs change them: {printable(_few(changing))}.")


def print_outside(outside: Mapping[str, Sequence[str]], name: str) -> None:
    """Name the nodes whose kept results may be outdated, because a server may answer differently now."""
    if outside:
        nodes = ", ".join(f"{node} ({_few(names)})" for node, names in outside.items())
        echo(f"  {counted(len(outside), 'node')} used the network or other programs: {printable(nodes)}.")
        echo(f"  Kept results may be outdated; `--fresh` runs the nodes again ({shlex.quote(name)}).")


def _few(words: Sequence[str]) -> str:
    return ", ".join(words[:_FEW]) + (f" and {len(words) - _FEW} more" if words[_FEW:] else "")


def print_noticed(result: BatchResult) -> None:
    """Print what the last run of a batch noticed, other than changes."""
    record = result.batch.record
    print_coarse(record.coarse)
    print_changing(record.changing)
    print_outside(result.outside, result.batch.name)


def forecast_data(forecast: Forecast) -> dict[str, Any]:
    """Return a forecast for programs."""
    return {
        "jobs": {
            "total": forecast.jobs,
            "kept": forecast.kept,
            "score_only": forecast.scored,
            "run": forecast.run,
        },
        "node_runs": {
            "kept": forecast.node_runs_kept,
            "shared": forecast.node_runs_shared,
            "executed": forecast.node_runs_executed,
        },
        "changes": {node: list(words) for node, words in forecast.changes.items()},
        "coarse": {node: list(words) for node, words in forecast.coarse.items()},
        "changing": list(forecast.changing),
        "outside": {node: list(names) for node, names in forecast.outside.items()},
        "external": external_data(forecast.external),
    }


def external_data(tools: Sequence[ExternalTool]) -> list[dict[str, Any]]:
    """Return external tools for programs."""
    return [asdict(tool) for tool in tools]
