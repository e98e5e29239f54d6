"""`wtb parity`: does a batch have the same results on every runner?"""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace

import click

from wtb.batches import load_batch
from wtb.bench import Bench
from wtb.cli.exit_codes import WORK_FAILED
from wtb.cli.output import as_json, echo, example, print_json, show_rows, url
from wtb.domain.display import counted
from wtb.domain.parity import ParityReport


@click.command()
@click.argument("file", metavar="FILE[:BATCH]")
@click.option(
    "--sample", type=click.IntRange(1), default=5, show_default=True, metavar="N", help="Run N cases, chosen at random."
)
@click.option(
    "--runner",
    "runners",
    multiple=True,
    metavar="NAME",
    help="Compare this runner; repeatable. Default: threads, processes, and ray if it is installed.",
)
@click.option("--ray-address", metavar="ADDRESS", help="Use this Ray cluster: `auto` or HOST:PORT.")
@url
@as_json
@example("wtb parity batch.py", "wtb parity batch.py --sample 2 --runner threads --runner processes")
def parity(
    *, file: str, sample: int, runners: tuple[str, ...], ray_address: str | None, url: str | None, as_json: bool
) -> None:
    """Run a sample of a batch on several runners, and show how their results differ.

    Status, errors, final states, scores and files of each job are compared. Times may differ. Every node runs anew on
    each runner, so external tools are called once for each. A node that answers differently every time also shows up
    here, whatever runs it.

    Each runner has a batch of its own, such as `support_qa on ray`. The command exits with 3 if results differ.
    """
    with Bench(url) as bench:
        bench.services.observer.start()
        test = load_batch(file)
        report = bench.parity(
            replace(test, ray_address=ray_address or test.ray_address), sample=sample, runners=runners
        )
    if as_json:
        print_json(report.to_data())
    else:
        _print(report)
    if not report.is_equal:
        sys.exit(WORK_FAILED)


def _print(report: ParityReport) -> None:
    took = ", ".join(f"{runner} {took_s:.1f} s" for runner, took_s in report.took_s.items())
    echo(f"{counted(report.jobs, 'job')} on each runner: {took}.")
    if report.is_equal:
        echo("All runners have the same results.")
        return
    echo(f"{counted(len(report.differences), 'difference')}:")
    rows = [{**each.to_data(), "runners": ", ".join(each.runners)} for each in report.differences]
    show_rows(rows, as_json=False, empty="")
    names = " ".join(shlex.quote(name) for name in report.batches.values())
    echo(f"The batches are kept: `wtb batch show NAME --cases` shows one. They are {names}.")
