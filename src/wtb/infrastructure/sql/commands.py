"""SqlCommandRepository: commands of a server and its keyed requests in two tables."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime
from typing import Any

from wtb.domain.commands import AcceptedRequest, Command, CommandKind, CommandStatus
from wtb.domain.errors import AlreadyExists, CommandNotFound, Conflict
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.mapping import mapping
from wtb.infrastructure.timestamps import from_us, from_us_or_none, to_us, to_us_or_none

_FACTS = "id, kind, subject, arguments, created_by, created_at_us"
_PROGRESS = "status, owner, expires_at_us, started_at_us, ended_at_us, attempts, losses, result, error"
_SELECT = f"SELECT {_FACTS}, {_PROGRESS} FROM wtb_commands"
_ADD = f"INSERT INTO wtb_commands ({_FACTS}, {_PROGRESS}) VALUES ({', '.join('?' * 15)}) ON CONFLICT (id) DO NOTHING"
_SAVE = (
    f"UPDATE wtb_commands SET {', '.join(f'{name} = ?' for name in _PROGRESS.split(', '))} "
    "WHERE id = ? AND status = ? AND COALESCE(owner, '') = ?"
)
_REQUEST = "caller, key, digest, command_id, created_at_us"
_PUT_REQUEST = (
    f"INSERT INTO wtb_requests ({_REQUEST}) VALUES (?, ?, ?, ?, ?) ON CONFLICT (caller, key) DO UPDATE SET "
    "digest = excluded.digest, command_id = excluded.command_id, created_at_us = excluded.created_at_us"
)
_OPEN = (CommandStatus.PENDING.value, CommandStatus.RUNNING.value)


class SqlCommandRepository:
    """Commands inside one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def add(self, command: Command) -> None:
        facts = (command.id, command.kind.value, command.subject, _json(command.arguments), command.created_by)
        if not self._transaction.change(_ADD, (*facts, to_us(command.created_at), *_progress(command))):
            raise AlreadyExists(f"there is a command {command.id!r} already")

    def get(self, command_id: str) -> Command:
        row = self._transaction.row(f"{_SELECT} WHERE id = ?", (command_id,))
        if row is None:
            raise CommandNotFound(command_id)
        return _command(row)

    def save(self, command: Command, before: Command) -> None:
        known = (command.id, before.status.value, before.owner or "")
        if not self._transaction.change(_SAVE, (*_progress(command), *known)):
            raise Conflict(f"command {command.id!r} is in other hands by now; read it again")

    def list_commands(
        self,
        *,
        statuses: Collection[CommandStatus] = (),
        kinds: Collection[CommandKind] = (),
        subject: str | None = None,
        before: tuple[datetime, str] | None = None,
        limit: int,
    ) -> tuple[Command, ...]:
        wanted = ["1 = 1"]
        values: list[Any] = []
        for column, names in (("status", statuses), ("kind", kinds)):
            if names:
                wanted.append(f"{column} IN ({', '.join('?' * len(names))})")
                values += [name.value for name in names]
        if subject is not None:
            wanted.append("subject = ?")
            values.append(subject)
        if before is not None:
            wanted.append("(created_at_us < ? OR (created_at_us = ? AND id < ?))")
            values += [to_us(before[0]), to_us(before[0]), before[1]]
        statement = f"{_SELECT} WHERE {' AND '.join(wanted)} ORDER BY created_at_us DESC, id DESC LIMIT ?"
        return tuple(map(_command, self._transaction.rows(statement, (*values, limit))))

    def list_open(self, limit: int, after: tuple[datetime, str] | None = None) -> tuple[Command, ...]:
        wanted = "status IN (?, ?)"
        place: list[Any] = []
        if after is not None:
            wanted += " AND (created_at_us > ? OR (created_at_us = ? AND id > ?))"
            place = [to_us(after[0]), to_us(after[0]), after[1]]
        statement = f"{_SELECT} WHERE {wanted} ORDER BY created_at_us, id LIMIT ?"
        return tuple(map(_command, self._transaction.rows(statement, (*_OPEN, *place, limit))))

    def list_open_about(self, subject: str) -> tuple[Command, ...]:
        self._transaction.lock(f"commands about {subject}")
        statement = f"{_SELECT} WHERE status IN (?, ?) AND subject = ? ORDER BY created_at_us, id"
        return tuple(map(_command, self._transaction.rows(statement, (*_OPEN, subject))))

    def find_request(self, caller: str, key: str) -> AcceptedRequest | None:
        self._transaction.lock(f"request {key} of {caller}")
        statement = f"SELECT {_REQUEST} FROM wtb_requests WHERE caller = ? AND key = ?"
        row = self._transaction.row(statement, (caller, key))
        return None if row is None else _request(row)

    def put_request(self, request: AcceptedRequest) -> None:
        facts = (request.caller, request.key, request.digest, request.made_id, to_us(request.created_at))
        self._transaction.run(_PUT_REQUEST, facts)

    def delete_old(self, *, ended_before: datetime, requests_before: datetime) -> int:
        self._transaction.run("DELETE FROM wtb_requests WHERE created_at_us < ?", (to_us(requests_before),))
        return self._transaction.change("DELETE FROM wtb_commands WHERE ended_at_us < ?", (to_us(ended_before),))


def _progress(command: Command) -> tuple[Any, ...]:
    return (
        command.status.value,
        command.owner,
        to_us_or_none(command.expires_at),
        to_us_or_none(command.started_at),
        to_us_or_none(command.ended_at),
        command.attempts,
        command.losses,
        None if command.result is None else _json(command.result),
        None if command.error is None else _json(command.error),
    )


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


@mapping("command")
def _command(row: Any) -> Command:
    return Command(
        id=row[0],
        kind=CommandKind(row[1]),
        subject=row[2],
        arguments=json.loads(row[3]),
        created_by=row[4],
        created_at=from_us(row[5]),
        status=CommandStatus(row[6]),
        owner=row[7],
        expires_at=from_us_or_none(row[8]),
        started_at=from_us_or_none(row[9]),
        ended_at=from_us_or_none(row[10]),
        attempts=int(row[11]),
        losses=int(row[12]),
        result=None if row[13] is None else json.loads(row[13]),
        error=None if row[14] is None else json.loads(row[14]),
    )


@mapping("request")
def _request(row: Any) -> AcceptedRequest:
    return AcceptedRequest(caller=row[0], key=row[1], digest=bytes(row[2]), made_id=row[3], created_at=from_us(row[4]))
