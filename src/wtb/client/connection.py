"""Connection: what all verbs use to ask a server: one answer, all pages of a list, or the result of a command."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from wtb.api.models.base import Item, ListAnswer
from wtb.api.models.commands import CommandAnswer
from wtb.client.problems import error_from
from wtb.client.requests import Reply, Request, get, post
from wtb.client.transports import PatientSender
from wtb.domain.errors import InvalidInput, NotFinished, WorkerFailed

Model = TypeVar("Model", bound=BaseModel)

API = "/api/v1"
LONGEST_WAIT_S = 30.0
"""How long one request waits for a command before it asks again."""
_ENDED = ("completed", "failed")


class Connection:
    """Asks one server."""

    def __init__(self, sender: PatientSender) -> None:
        self._sender = sender

    async def _send(self, request: Request) -> Reply:
        return await self._sender.send(request)

    async def _ask(self, answer: type[Model], request: Request) -> Model:
        """Return the answer to a request, as its model."""
        return answer.model_validate((await self._send(request)).data)

    async def _each(self, items: type[Item], path: str, **query: Any) -> AsyncGenerator[Item]:
        """Yield the items of all pages of a list."""
        page_model, cursor = ListAnswer[items], None  # type: ignore[valid-type]  # a model is made of its items
        while True:
            page = await self._ask(page_model, get(path, **query, cursor=cursor))
            for item in page.items:
                yield item
            cursor = page.next
            if cursor is None:
                return

    async def _accepted(self, request: Request) -> CommandAnswer:
        """Send a request that a worker carries out, and return its command, ended or not."""
        return CommandAnswer.model_validate((await self._send(request)).data["command"])

    async def _carried_out(self, request: Request, wait_s: float | None) -> dict[str, Any]:
        """Send a request that a worker carries out, and return its result; raise the error that ended it."""
        return await self._result(await self._accepted(request), wait_s)

    async def _result(self, command: CommandAnswer, wait_s: float | None) -> dict[str, Any]:
        """Wait for a command and return its result. Without a limit it waits as long as it takes."""
        deadline = None if wait_s is None else time.monotonic() + wait_s
        while command.status not in _ENDED:
            left_s = LONGEST_WAIT_S if deadline is None else deadline - time.monotonic()
            if left_s <= 0:
                raise NotFinished(
                    f"{command.kind} has not finished within {wait_s:g} s and goes on; "
                    f"client.wait_for({command.id!r}) waits for it again"
                )
            asked = get(path_of("commands", command.id), wait_s=min(left_s, LONGEST_WAIT_S))
            command = await self._ask(CommandAnswer, asked)
        if command.problem is None and command.result is None:  # an answer has its parts, and not the whole result
            command = await self._ask(CommandAnswer, get(path_of("commands", command.id)))
        if command.problem is not None:
            raise error_from(command.problem.model_dump())
        if command.result is None:
            raise WorkerFailed(f"command {command.id!r} failed and left no reason; look into the log of the server")
        return command.result

    async def command(self, command: str) -> CommandAnswer:
        """Return a command that the server has accepted: how far it is, and how it ended."""
        return await self._ask(CommandAnswer, get(path_of("commands", command)))

    async def wait_for(self, command: str | CommandAnswer, *, wait_s: float | None = None) -> CommandAnswer:
        """Wait until a command has ended and return it; raise the error that ended it.

        It raises `NotFinished` if that takes longer than `wait_s` seconds. The command goes on.
        """
        found = command if isinstance(command, CommandAnswer) else await self.command(command)
        await self._result(found, wait_s)
        return await self.command(found.id)

    async def cancel_command(self, command: str) -> CommandAnswer:
        """End a command that waits in line, or one that hangs; what it has stored stays. To end a run, stop the run."""
        return await self._ask(CommandAnswer, post(path_of("commands", command, "cancel")))

    async def list_commands(self, *, subject: str | None = None) -> AsyncGenerator[CommandAnswer]:
        """Return the commands that the server has accepted one by one, newest first; or those of a run or batch."""
        async for each in self._each(CommandAnswer, path_of("commands"), subject=subject, limit=500):
            yield each


def first_wait_s(wait_s: float | None) -> float:
    """Return how long the first request waits for its command."""
    return LONGEST_WAIT_S if wait_s is None else min(wait_s, LONGEST_WAIT_S)


def made(model: type[Model], **fields: Any) -> Model:
    """Return the body of a request; raise InvalidInput if it cannot be sent."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        raise InvalidInput("; ".join(faults)) from error


def path_of(*parts: str | int) -> str:
    """Return the path of something below the API; raise InvalidInput for a name that would lead somewhere else."""
    return inner_path(API, *map(str, parts))


def inner_path(path: str, *parts: str) -> str:
    """Return a path below another one. A slash in a part is written `%2F`; `..` would be another address: refused."""
    for part in parts:
        if part in {"", ".", ".."}:
            raise InvalidInput(f"{part!r} is no name that a server can be asked for")
    return "/".join((path, *(quote(part, safe="") for part in parts)))
