"""MemoryCommandRepository: commands of a server and its keyed requests in dictionaries."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from wtb.domain.commands import AcceptedRequest, Command, CommandKind, CommandStatus
from wtb.domain.errors import AlreadyExists, CommandNotFound, Conflict
from wtb.infrastructure.memory.tables import MemoryTransaction


class MemoryCommandRepository:
    """Commands inside one transaction; only one transaction at a time writes, so a lock is not needed."""

    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction

    def add(self, command: Command) -> None:
        if self._transaction.find("commands", command.id) is not None:
            raise AlreadyExists(f"there is a command {command.id!r} already")
        self._transaction.put("commands", command.id, command)

    def get(self, command_id: str) -> Command:
        found: Command | None = self._transaction.find("commands", command_id)
        if found is None:
            raise CommandNotFound(command_id)
        return found

    def save(self, command: Command, before: Command) -> None:
        found: Command | None = self._transaction.find("commands", command.id)
        if found is None or (found.status, found.owner) != (before.status, before.owner):
            raise Conflict(f"command {command.id!r} is in other hands by now; read it again")
        self._transaction.put("commands", command.id, command)

    def list_commands(
        self,
        *,
        statuses: Collection[CommandStatus] = (),
        kinds: Collection[CommandKind] = (),
        subject: str | None = None,
        before: tuple[datetime, str] | None = None,
        limit: int,
    ) -> tuple[Command, ...]:
        found = [
            command
            for command in reversed(self._all())
            if (not statuses or command.status in statuses)
            and (not kinds or command.kind in kinds)
            and (subject is None or command.subject == subject)
            and (before is None or (command.created_at, command.id) < before)
        ]
        return tuple(found[:limit])

    def list_open(self, limit: int, after: tuple[datetime, str] | None = None) -> tuple[Command, ...]:
        found = [
            command
            for command in self._all()
            if not command.has_ended and (after is None or (command.created_at, command.id) > after)
        ]
        return tuple(found[:limit])

    def list_open_about(self, subject: str) -> tuple[Command, ...]:
        return tuple(command for command in self._all() if command.subject == subject and not command.has_ended)

    def _all(self) -> list[Command]:
        return sorted(self._transaction.all("commands"), key=lambda command: (command.created_at, command.id))

    def find_request(self, caller: str, key: str) -> AcceptedRequest | None:
        found: AcceptedRequest | None = self._transaction.find("accepted_requests", (caller, key))
        return found

    def put_request(self, request: AcceptedRequest) -> None:
        self._transaction.put("accepted_requests", (request.caller, request.key), request)

    def delete_old(self, *, ended_before: datetime, requests_before: datetime) -> int:
        for request in list(self._transaction.all("accepted_requests")):
            if request.created_at < requests_before:
                self._transaction.drop("accepted_requests", (request.caller, request.key))
        old = [command for command in self._all() if command.ended_at is not None and command.ended_at < ended_before]
        for command in old:
            self._transaction.drop("commands", command.id)
        return len(old)
