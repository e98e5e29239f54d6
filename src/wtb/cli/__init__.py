"""The command line: parse, call a service, print. Each group of commands has its own file."""

from __future__ import annotations

import errno
import logging
import sys
from itertools import chain
from typing import Any

import click

from wtb.cli.commands.audit import audit_group
from wtb.cli.commands.batch import batch
from wtb.cli.commands.db import db
from wtb.cli.commands.diff import diff
from wtb.cli.commands.effects import effects
from wtb.cli.commands.environment_server import environment_server
from wtb.cli.commands.evaluate import evaluate
from wtb.cli.commands.events import events
from wtb.cli.commands.files import export
from wtb.cli.commands.importing import import_group
from wtb.cli.commands.init import init
from wtb.cli.commands.look import history, ls, workflows
from wtb.cli.commands.mcp import mcp
from wtb.cli.commands.parity import parity
from wtb.cli.commands.report import report
from wtb.cli.commands.runs import pause, resume, run, stop
from wtb.cli.commands.serve import serve
from wtb.cli.commands.show import show_run
from wtb.cli.commands.tokens import token_group
from wtb.cli.commands.travel import checkpoint, delete, fork, redo, rollback
from wtb.cli.commands.upkeep import doctor, prune
from wtb.cli.commands.verdicts import baseline, compare, gate
from wtb.cli.commands.webhooks import webhook_group
from wtb.cli.exit_codes import EXIT_CODES, UNEXPECTED, USAGE
from wtb.cli.output import echo, shown
from wtb.cli.views.live import is_shown_live
from wtb.domain.errors import InvalidInput, WTBError

_WHOLE = 200
"""Longest help in the list of commands: long enough to show each first sentence in full."""

GROUPS: dict[str, tuple[click.Command, ...]] = {
    "Run and look": (init, run, resume, pause, stop, ls, workflows, show_run, history, events, diff, export),
    "Go back and branch": (rollback, redo, fork, checkpoint, delete),
    "Batches and verdicts": (batch, evaluate, compare, effects, baseline, gate, report, parity),
    "Serve": (serve, mcp, token_group, webhook_group),
    "Upkeep": (audit_group, prune, doctor, db, import_group, environment_server),
}
"""All commands, grouped by task."""


class _Group(click.Group):
    """Reports each WTBError in one sentence without a traceback, and lists the commands by task."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(command.name or "", command.get_short_help_str(_WHOLE)) for command in commands])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(*args, **extra)
        except click.ClickException as error:
            raise _legible(error) from error

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            raise _legible(error) from error
        except WTBError as error:
            echo(f"wtb: {error}", err=True)
            sys.exit(USAGE if isinstance(error, InvalidInput) else UNEXPECTED)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            echo(f"wtb: {error.filename or 'the output'} cannot be written: no space left on its device", err=True)
            sys.exit(UNEXPECTED)


def _legible(error: click.ClickException) -> click.ClickException:
    """Return an error that is safe to print: click quotes arguments as they are, control characters included."""
    text = error.format_message()
    if text == shown(text):
        return error
    return (
        click.UsageError(shown(text), error.ctx)
        if isinstance(error, click.UsageError)
        else click.ClickException(shown(text))
    )


class _Echo(logging.Handler):
    """Prints warnings to the current stderr, so that they appear above the spinner of a running run."""

    def emit(self, record: logging.LogRecord) -> None:
        if not is_shown_live(record):
            sys.stderr.write(f"{shown(self.format(record))}\n")  # click.echo would bypass the spinner's stderr


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="workflow-test-bench", prog_name="wtb")
def main() -> None:
    """Run agent workflows step by step, go back to any step, and find out which version is better.

    New here? `wtb init` creates a small project that you can run at once.

    Runs are stored in .wtb in this folder, unless WTB_URL or wtb.toml names another place.
    """
    logging.basicConfig(level=logging.WARNING, format="wtb: %(message)s", handlers=[_Echo()])


for command in chain(*GROUPS.values()):
    main.add_command(command)
