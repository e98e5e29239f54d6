"""Options that several commands of `wtb batch` take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from wtb.domain.tool_answers import External

_EVERYTHING = "*"

cases_file = click.option(
    "--cases",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Use the cases in this JSONL or CSV file instead.",
)
fresh_nodes = click.option(
    "--fresh",
    multiple=True,
    is_flag=False,
    flag_value=_EVERYTHING,
    metavar="[NODE]",
    help="Ignore earlier results of NODE, or of all nodes if you name none. Put it after FILE; repeatable.",
)
external_rule = click.option(
    "--external",
    type=click.Choice([rule.value for rule in External]),
    help="Make calls of external tools (run), make them and take them back after the job (reverse), or refuse them.",
)
workers_number = click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="How many jobs to run at the same time. Default: as in FILE, else what suits the runner and this machine.",
)
runner_name = click.option(
    "--runner",
    default=None,
    metavar="NAME",
    help="What runs the jobs: threads, processes, ray, an installed runner, or `file.py:Runner`. Default: as in FILE, "
    "else threads.",
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
    help="Let a job that takes longer than S seconds fail. In processes and on Ray its worker is ended. "
    "Default: as in FILE, else job_timeout_s in wtb.toml (an hour).",
)
memory_option = click.option(
    "--memory-gb",
    type=click.FloatRange(0, min_open=True),
    metavar="X",
    help="In processes and on Ray: end a worker that uses more than X GB of memory. Its job fails. Default: as in "
    "FILE, else 2.",
)


def read_fresh(nodes: Sequence[str]) -> bool | tuple[str, ...]:
    """Return the nodes whose earlier results are ignored; True for all nodes."""
    return True if _EVERYTHING in nodes else tuple(nodes)
