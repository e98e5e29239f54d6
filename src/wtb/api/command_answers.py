"""Accepts a command for a request, waits for it as long as the caller wants, and answers."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Header, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.responses import Response

from wtb.api.models.commands import CommandAnswer
from wtb.api.models.parameters import IdempotencyKey
from wtb.api.models.run_changes import RunChange
from wtb.api.parts import Parts
from wtb.api.problems import problem_of
from wtb.application.server.command_errors import error_from
from wtb.application.server.command_server import CommandServer
from wtb.application.server.commands import LOOK_S, Commands
from wtb.domain.access import Caller
from wtb.domain.commands import Command, CommandKind, CommandStatus
from wtb.domain.errors import (
    Conflict,
    ExecutionNotFound,
    IdempotencyMismatch,
    InvalidInput,
    InvalidTransition,
    MissingLibrary,
    PreconditionRequired,
    VersionMismatch,
    WorkerFailed,
)

MAY_FAIL = (
    ExecutionNotFound,
    Conflict,
    InvalidTransition,
    InvalidInput,
    IdempotencyMismatch,
    MissingLibrary,
    WorkerFailed,
)
"""How a command about a run may fail."""

ACCEPTED: dict[int | str, dict[str, Any]] = {202: {"model": RunChange, "description": "Accepted; ask for the command"}}
"""The answer to a command about a run that has not ended yet, for the documentation of its route."""

_TAG = re.compile(r'"(\d{1,18})(?:-([0-9a-f]{32}))?"')

Wait = Annotated[float, Query(ge=0, le=60, description="How many seconds to wait for the end.")]
"""The type of the argument `wait_s`."""


def command_server_of(connection: HTTPConnection) -> CommandServer:
    """Return what carries out the commands of the server that answers this request."""
    server: CommandServer = connection.app.state.command_server
    return server


Commanding = Annotated[CommandServer, Depends(command_server_of)]
"""The type of a route's argument that gives commands."""


@dataclass(frozen=True, slots=True)
class IfMatch:
    """The version, and the plan, that a request wants to change."""

    version: int
    digest: str | None = None


def read_if_match(header: str | None, what: str) -> IfMatch:
    """Return what If-Match names; raise PreconditionRequired without one, VersionMismatch if it is no tag of ours."""
    if header is None:
        raise PreconditionRequired(f"this needs the version that you have seen; send the ETag of {what} as If-Match")
    found = _TAG.fullmatch(header.strip())
    if found is None:
        unquoted = _TAG.fullmatch(f'"{header.strip()}"') is not None
        advice = "send it with its double quotes" if unquoted else "read it again"
        raise VersionMismatch(f"If-Match {header[:80]!r} is not the ETag of {what}; {advice}")
    return IfMatch(int(found[1]), found[2])


Prepare = Callable[[], Mapping[str, Any]]
"""Checks a request, and returns further arguments of its command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCall:
    """A request that becomes a command, and its answer."""

    server: CommandServer
    stopping: threading.Event
    """Set when the server ends: then nobody waits any longer."""
    key: str | None
    if_match: str | None
    response: Response

    async def carry_out(
        self,
        caller: Caller,
        kind: CommandKind,
        body: Mapping[str, Any],
        prepare: Prepare,
        *,
        subject: str | None = None,
        is_new_run: bool = False,
        wait_s: float,
        status: HTTPStatus = HTTPStatus.OK,
    ) -> Command:
        """Accept a command, wait for it and set the status; raise its error if it failed in time.

        `body` is what the caller asks for, as plain JSON. A repeated request is not prepared: its command exists. The
        subject may be the id that the caller chose for a new run.
        """
        accept = partial(self._accepted, caller, kind, body, prepare, subject, is_new_run=is_new_run)
        command = await run_in_threadpool(accept)
        command = await ended(self.server.commands, command, wait_s, self.stopping)
        self.response.headers["Location"] = f"/api/v1/commands/{command.id}"
        if command.status is CommandStatus.FAILED and command.error is not None:
            raise error_from(command.error)
        self.response.status_code = (status if command.has_ended else HTTPStatus.ACCEPTED).value
        return command

    def _accepted(
        self,
        caller: Caller,
        kind: CommandKind,
        body: Mapping[str, Any],
        prepare: Prepare,
        subject: str | None,
        *,
        is_new_run: bool,
    ) -> Command:
        commands, asked = self.server.commands, {"body": dict(body), "if_match": self.if_match}
        if self.key is not None:
            known = commands.find_accepted(kind, by=caller.name, subject=subject, asked=asked, key=self.key)
            if known is not None:
                return known
        arguments = {**body, **prepare()}
        return commands.accept(
            kind,
            by=caller.name,
            subject=subject,
            arguments=arguments,
            key=self.key,
            asked=asked,
            is_new_run=is_new_run,
        )

    def checked(self, run_id: str, verb: str | None, wanted: IfMatch | None = None) -> dict[str, Any]:
        """Check that a run exists, that its workflow is served, and that it has the version that the caller named.

        Without a verb the command needs no workflow. Return where the run is now, for a worker that takes it up again.
        """
        execution, mark = self.server.mark(run_id)
        if verb is not None:
            self.server.served.for_run(execution, verb)
        if wanted is None:
            return {"mark": mark.to_data()}
        execution.check_version(wanted.version)
        return {"mark": mark.to_data(), "version": wanted.version}

    def wanted(self, what: str = "the run") -> IfMatch:
        """Return what If-Match names; raise PreconditionRequired without it."""
        return read_if_match(self.if_match, what)


def _command_call(
    server: Commanding,
    parts: Parts,
    response: Response,
    *,
    idempotency_key: IdempotencyKey = None,
) -> CommandCall:
    return CommandCall(server=server, stopping=parts.stopping, key=idempotency_key, if_match=None, response=response)


Call = Annotated[CommandCall, Depends(_command_call)]
"""The type of a route's argument that gives a command."""


def _versioned_call(
    call: Call, *, if_match: Annotated[str | None, Header(description="The ETag of what is to be changed.")] = None
) -> CommandCall:
    return replace(call, if_match=if_match)


VersionedCall = Annotated[CommandCall, Depends(_versioned_call)]
"""The type of a route's argument that gives a command for the version that If-Match names."""


async def ended(commands: Commands, command: Command, wait_s: float, stopping: threading.Event) -> Command:
    """Wait without a thread: those of the server are for requests that have something to do."""
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    forget = commands.when_ended(command.id, lambda: loop.call_soon_threadsafe(told.set))
    until = loop.time() + wait_s
    try:
        while not command.has_ended and (left := until - loop.time()) > 0 and not stopping.is_set():
            command = await run_in_threadpool(commands.get, command.id)
            if not command.has_ended:
                with suppress(TimeoutError):
                    await asyncio.wait_for(told.wait(), min(left, LOOK_S))
                told.clear()
        return command if command.has_ended else await run_in_threadpool(commands.get, command.id)
    finally:
        forget()


def command_answer(command: Command) -> CommandAnswer:
    """Return a command with its result, as callers see it."""
    return CommandAnswer.of(command, None if command.error is None else problem_of(error_from(command.error)))


def accepted_answer(command: Command) -> CommandAnswer:
    """Return a command inside an answer that has the parts of its result itself."""
    return command_answer(replace(command, result=None))


def result_of(command: Command) -> Mapping[str, Any]:
    """Return what a command gave; nothing if it has not ended."""
    return command.result or {} if command.has_ended else {}


def run_change(call: CommandCall, command: Command) -> RunChange:
    """Return the answer of a command about a run, and set the ETag of the run."""
    result = result_of(command)
    found = result.get("run")
    if found is not None:
        call.response.headers["ETag"] = f'"{found["version"]}"'
    more = {name: result.get(name) for name in ("run", "checkpoint", "forked_from")}
    return RunChange.model_validate({"command": accepted_answer(command), **more})
