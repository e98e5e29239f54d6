"""What a server's worker does for each kind of command, with the user's code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wtb.domain.commands import Command, CommandKind
from wtb.server_commands import batches, runs, threads
from wtb.server_commands.context import CommandContext

Handler = Callable[[CommandContext, Command], dict[str, Any]]
"""Carries out a command, or finds that it was carried out, and returns its result as plain JSON."""

HANDLERS: Mapping[CommandKind, Handler] = {
    CommandKind.RUN_START: runs.start,
    CommandKind.RUN_RESUME: runs.resume,
    CommandKind.RUN_PLAN_ROLLBACK: runs.plan_rollback,
    CommandKind.RUN_ROLLBACK: runs.rollback,
    CommandKind.RUN_CONTINUE_ROLLBACK: runs.continue_rollback,
    CommandKind.RUN_ABANDON_ROLLBACK: runs.abandon_rollback,
    CommandKind.RUN_REDO: runs.redo,
    CommandKind.RUN_FORK: runs.fork,
    CommandKind.RUN_CHECKPOINT: runs.checkpoint,
    CommandKind.BATCH_START: batches.start,
    CommandKind.BATCH_PLAN: batches.plan,
    CommandKind.EVALUATION_START: batches.evaluate,
    CommandKind.THREAD_RUN: threads.run,
    CommandKind.THREAD_UPDATE: threads.update,
}
