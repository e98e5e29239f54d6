"""ThreadRuns: the runs of a graph on a LangGraph thread. Each is a command, and a thread has one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from wtb.application.server.commands import Commands
from wtb.domain.commands import THREAD_KINDS, Command, CommandKind, CommandStatus
from wtb.domain.errors import (
    CommandCancelled,
    CommandNotFound,
    Conflict,
    ExecutionNotFound,
    InvalidInput,
    InvalidTransition,
)
from wtb.domain.execution import Execution
from wtb.domain.ids import ExecutionId
from wtb.domain.ports import Clock, UnitOfWork
from wtb.domain.values import evolve

_OPEN = (CommandStatus.PENDING, CommandStatus.RUNNING)
_TRIES = 5
_MOST = 1_000
"""How many runs of a thread are listed."""


def find_thread(uow: UnitOfWork, thread_id: str) -> Execution:
    """Return the row of a thread; raise ExecutionNotFound, or InvalidInput if a run that is no thread has this id."""
    try:
        execution = uow.executions.get(ExecutionId(thread_id))
    except ExecutionNotFound as error:
        raise ThreadNotFound(thread_id) from error
    if not execution.is_thread:
        raise InvalidInput(f"{thread_id!r} is a run of WTB, not a LangGraph thread; choose another thread_id")
    return execution


class ThreadNotFound(ExecutionNotFound):
    """No thread has this id."""

    noun = "thread"


class ThreadRunNotFound(CommandNotFound):
    """No run of a thread has this id. Runs are forgotten after a week."""

    noun = "run"


def is_busy(uow: UnitOfWork, thread_id: str) -> bool:
    """Whether a run or an update of a thread has not ended."""
    return bool(uow.commands.list_commands(statuses=_OPEN, kinds=THREAD_KINDS, subject=thread_id, limit=1))


def check_idle(uow: UnitOfWork, thread_id: str) -> None:
    """Raise InvalidTransition while a thread is busy."""
    if is_busy(uow, thread_id):
        raise InvalidTransition(
            f"thread {thread_id!r} is busy: its last run has not ended. Wait for it or cancel it; a second run at the "
            "same time is not offered"
        )


class ThreadRuns:
    """Accepts runs and finds them again. Ended ones are forgotten after a week, as all commands are."""

    def __init__(self, commands: Commands, clock: Clock) -> None:
        self._commands = commands
        self._clock = clock

    def accept(
        self, kind: CommandKind, thread_id: str, arguments: Mapping[str, Any], noted: Mapping[str, Any], *, by: str
    ) -> Command:
        """Accept a run or an update of an idle thread, and note which graph it uses; raise InvalidTransition."""

        def reserve(uow: UnitOfWork) -> None:
            execution = find_thread(uow, thread_id)
            check_idle(uow, thread_id)
            # The new version makes a second request at the same moment fail, also at another server.
            moved = execution.stepped(self._clock.now())
            uow.executions.save(evolve(moved, metadata={**execution.metadata, **noted}))

        for _ in range(_TRIES - 1):
            try:
                return self._commands.accept(kind, by=by, subject=thread_id, arguments=arguments, beside=reserve)
            except Conflict:
                continue
        return self._commands.accept(kind, by=by, subject=thread_id, arguments=arguments, beside=reserve)

    def get(self, thread_id: str, run_id: str) -> Command:
        """Return a run of a thread; raise ThreadRunNotFound."""
        with suppress(CommandNotFound):
            found = self._commands.get(run_id)
            if found.kind is CommandKind.THREAD_RUN and found.subject == thread_id:
                return found
        raise ThreadRunNotFound(run_id, f"thread {thread_id!r}")

    def list_runs(self, thread_id: str) -> list[Command]:
        """Return the runs of a thread, newest first."""
        return list(self._commands.list_commands(kinds=(CommandKind.THREAD_RUN,), subject=thread_id, limit=_MOST))


def was_cancelled(command: Command) -> bool:
    """Whether somebody ended a command before it ended by itself."""
    return (command.error or {}).get("type") == CommandCancelled.__name__
