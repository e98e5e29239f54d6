"""What the commands share: --json, --url, and how results are printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs instead of text for people.")
url = click.option(
    "--url",
    metavar="ADDRESS",
    help="sqlite:///path or postgresql://user@host/database; otherwise WTB_URL, wtb.toml or .wtb in this folder.",
)


def show(result: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Print the result for a program or for a person."""
    click.echo(json.dumps(result) if as_json else text)
