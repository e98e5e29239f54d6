"""What a server keeps beside runs and batches."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from wtb.domain.commands import AcceptedRequest, Command, CommandStatus


class CommandRepository(Protocol):
    """Accepted commands by id, and the requests with an Idempotency-Key by caller and key.

    A command is saved only by whoever knows its present owner and status: of two servers that take the same one, the
    second gets Conflict, and so does a worker whose command was given to another.
    """

    def add(self, command: Command) -> None:
        """Store a new command; raise AlreadyExists if the id is taken."""
        ...

    def get(self, command_id: str) -> Command:
        """Return a command; raise CommandNotFound."""
        ...

    def save(self, command: Command, before: Command) -> None:
        """Store a change of a command; raise Conflict unless its status and its owner are still those of `before`."""
        ...

    def list_commands(
        self,
        *,
        statuses: Collection[CommandStatus] = (),
        subject: str | None = None,
        before: tuple[datetime, str] | None = None,
        limit: int,
    ) -> tuple[Command, ...]:
        """Return commands, newest first, by time and then id; with `before`, only those before this time and id."""
        ...

    def list_open(self, limit: int) -> tuple[Command, ...]:
        """Return commands that have not ended, oldest first."""
        ...

    def find_request(self, caller: str, key: str) -> AcceptedRequest | None:
        """Return the request of a caller with a key, however old; let nobody else add one until this unit ends."""
        ...

    def put_request(self, request: AcceptedRequest) -> None:
        """Store a request; it replaces the one with the same caller and key."""
        ...

    def delete_old(self, *, ended_before: datetime, requests_before: datetime) -> int:
        """Delete commands that ended before a time, and requests that came before one; return how many commands."""
        ...
