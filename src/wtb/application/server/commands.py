"""Commands: accepts work for a server's workers, hands it out, and tells those who wait when it has ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from wtb.application.server.command_errors import error_data
from wtb.application.server.keyed_requests import digest_of_request, find_request
from wtb.domain.commands import KEEP_ENDED, KEEP_REQUESTS, AcceptedRequest, Command, CommandKind, CommandStatus
from wtb.domain.errors import (
    AlreadyExists,
    CommandCancelled,
    CommandNotFound,
    Conflict,
    ExecutionNotFound,
    WorkerFailed,
)
from wtb.domain.event_catalogue import CommandWasCancelled
from wtb.domain.events import Event
from wtb.domain.ids import ExecutionId
from wtb.domain.ports import Clock, Ids, Owners, Storage, UnitOfWork
from wtb.domain.secrets import Masker

LOOK_S = 1.0
"""How often a waiter looks for itself: another server may carry the command out."""

_PAGE = 200
"""How many open commands a server reads at a time in search of one that it may take."""


class Commands:
    """The commands of one store, for any number of servers."""

    def __init__(self, storage: Storage, clock: Clock, ids: Ids, owners: Owners, masker: Masker) -> None:
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._owners = owners
        self._masker = masker
        self._waiting: dict[str, list[Callable[[], object]]] = {}
        self._lock = threading.Lock()
        self.on_accepted: Callable[[], None] = lambda: None
        """Called after each accepted command; the dispatcher of this server sets it."""

    def accept(
        self,
        kind: CommandKind,
        *,
        by: str,
        subject: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        key: str | None = None,
        asked: Mapping[str, Any] | None = None,
        is_new_run: bool = False,
        beside: Callable[[UnitOfWork], object] = lambda uow: None,
    ) -> Command:
        """Store a command, and return it. The same caller's key with the same request returns the first command.

        Without a subject the command gets a new id for the run or the batch that it creates. `asked` is what the
        request asks for, if the arguments hold more than that. `beside` may refuse or change something else in the same
        transaction. It raises IdempotencyMismatch if the key came with another request within 24 hours, and
        AlreadyExists if the subject is that of a new run and taken.
        """
        command = Command(
            id=self._ids.new(),
            kind=kind,
            subject=subject or self._ids.new(),
            arguments=arguments or {},
            created_by=by,
            created_at=self._clock.now(),
        )
        with self._storage.unit_of_work() as uow:
            if key is not None:
                digest = digest_of_request(kind, subject, (arguments if asked is None else asked) or {})
                known = self._known(uow, by, key, digest)
                if known is not None:
                    return known
                uow.commands.put_request(
                    AcceptedRequest(
                        caller=by, key=key, digest=digest, made_id=command.id, created_at=command.created_at
                    )
                )
            if is_new_run and subject is not None:
                _check_free(uow, subject)
            beside(uow)
            uow.commands.add(command)
            uow.commit()
        self.on_accepted()
        return command

    def find_accepted(
        self, kind: CommandKind, *, by: str, subject: str | None, asked: Mapping[str, Any], key: str
    ) -> Command | None:
        """Return the command of an earlier request with this key; raise IdempotencyMismatch if it asked for else."""
        with self._storage.unit_of_work(readonly=True) as uow:
            return self._known(uow, by, key, digest_of_request(kind, subject, asked))

    def _known(self, uow: UnitOfWork, by: str, key: str, digest: bytes) -> Command | None:
        known = find_request(uow, by, key, digest, self._clock.now())
        return None if known is None else uow.commands.get(known.made_id)

    def get(self, command_id: str) -> Command:
        """Return a command; raise CommandNotFound."""
        with self._storage.unit_of_work(readonly=True) as uow:
            return uow.commands.get(command_id)

    def list_commands(
        self,
        *,
        statuses: Collection[CommandStatus] = (),
        kinds: Collection[CommandKind] = (),
        subject: str | None = None,
        before: tuple[datetime, str] | None = None,
        limit: int = 100,
    ) -> tuple[Command, ...]:
        """Return commands, newest first."""
        with self._storage.unit_of_work(readonly=True) as uow:
            return uow.commands.list_commands(
                statuses=statuses, kinds=kinds, subject=subject, before=before, limit=limit
            )

    def when_ended(self, command_id: str, call: Callable[[], object]) -> Callable[[], None]:
        """Let a function be called when this server sees a command end; return what takes that back."""
        with self._lock:
            self._waiting.setdefault(command_id, []).append(call)

        def forget() -> None:
            with self._lock:
                calls = self._waiting.get(command_id, [])
                if call in calls:
                    calls.remove(call)
                if not calls:
                    self._waiting.pop(command_id, None)

        return forget

    def told_of_end(self, command_id: str) -> None:
        """Wake those who wait for a command; its worker has stored how it ended."""
        with self._lock:
            calls = self._waiting.pop(command_id, [])
        for call in calls:
            call()

    def wait_for(self, command_id: str, timeout_s: float) -> Command:
        """Return a command when it has ended, or as it is after this time."""
        ended = threading.Event()
        forget = self.when_ended(command_id, ended.set)
        until = time.monotonic() + timeout_s
        try:
            while not (found := self.get(command_id)).has_ended and (left := until - time.monotonic()) > 0:
                ended.wait(min(left, LOOK_S))
        finally:
            forget()
        return found

    def find_next(self, may_take: Callable[[Command], bool] = lambda command: True) -> Command | None:
        """Return the oldest command that nobody carries out and that this server may take."""
        after: tuple[datetime, str] | None = None
        while True:
            with self._storage.unit_of_work(readonly=True) as uow:
                now = uow.now()
                page = uow.commands.list_open(_PAGE, after)
            for each in page:
                if self._is_free(each, now) and may_take(each):
                    return each
            if len(page) < _PAGE:
                return None
            after = (page[-1].created_at, page[-1].id)

    def _is_free(self, command: Command, now: datetime) -> bool:
        gone = None if command.owner is None else self._owners.is_gone(command.owner)
        return command.may_be_taken(now, gone)

    def take(self, command: Command, owner: str) -> Command | None:
        """Give a command to a worker; return None if another server was quicker, or if it has no hope."""
        with self._storage.unit_of_work() as uow:
            now = uow.now()
            if command.is_hopeless:
                taken = command.failed(error_data(_hopeless(command), self._masker), now)
            else:
                taken = command.taken(owner, now)
            try:
                uow.commands.save(taken, command)
            except Conflict:
                return None
            uow.commit()
        if taken.has_ended:
            self.told_of_end(command.id)
            return None
        return taken

    def extend(self, command: Command) -> Command:
        """Extend the lease of a command; raise Conflict if it is in other hands."""
        with self._storage.unit_of_work() as uow:
            extended = command.extended(uow.now())
            uow.commands.save(extended, command)
            uow.commit()
        return extended

    def complete(self, command: Command, result: Mapping[str, Any]) -> Command:
        """Store the result of a command."""
        return self._save(command, command.completed(result, self._clock.now()))

    def fail(self, command: Command, error: BaseException) -> Command:
        """Store why a command failed."""
        return self._save(command, command.failed(error_data(error, self._masker), self._clock.now()))

    def cancel(self, command_id: str, *, by: str) -> Command:
        """End a command that has not ended; raise Conflict if it has. Its worker notices within seconds, and ends."""
        command = self.get(command_id)
        reason = CommandCancelled(
            f"{command.kind} of {command.subject!r} was cancelled by {by}; what it has stored stays"
        )
        told = CommandWasCancelled(command=command.id, kind=command.kind, subject=command.subject, by=by)
        now = self._clock.now()
        try:
            cancelled = self._save(
                command, command.failed(error_data(reason, self._masker), now), Event.of(told, at=now)
            )
        except Conflict:
            if self.get(command_id).has_ended:
                raise
            return self.cancel(command_id, by=by)  # a worker took it, or gave it back, in this very moment
        self.told_of_end(command_id)
        return cancelled

    def put_back(self, command: Command, so_far: Mapping[str, Any]) -> Command:
        """Let another worker take a command, because this server ends."""
        return self._save(command, command.put_back(so_far))

    def lose(self, command: Command, how: str) -> Command:
        """Let another worker take a command whose worker has ended, or fail it if that happened too often."""
        try:
            lost = command.lost()
            if not lost.is_hopeless:
                return self._save(command, lost)
            failed = lost.failed(error_data(_hopeless(lost, how), self._masker), self._clock.now())
            return self._save(command, failed)
        except (Conflict, CommandNotFound):  # it had stored the end before it ended itself
            return self.get(command.id)

    def _save(self, before: Command, after: Command, told: Event | None = None) -> Command:
        with self._storage.unit_of_work() as uow:
            uow.commands.save(after, before)
            if told is not None:
                uow.events.append(told)
            uow.commit()
        return after

    def forget_old(self) -> int:
        """Delete commands that ended a week ago, and keys that may be used again; return how many commands."""
        with self._storage.unit_of_work() as uow:
            now = self._clock.now()
            count = uow.commands.delete_old(ended_before=now - KEEP_ENDED, requests_before=now - KEEP_REQUESTS)
            uow.commit()
        return count


def _check_free(uow: UnitOfWork, run_id: str) -> None:
    """Raise AlreadyExists if there is such a run, or if a command that has not ended will make one."""
    if not uow.commands.list_open_about(run_id):
        try:
            uow.executions.get(ExecutionId(run_id))
        except ExecutionNotFound:
            return
    raise AlreadyExists(f"there is already a run {run_id!r}; give another id, or leave it out to get a new one")


def _hopeless(command: Command, how: str | None = None) -> WorkerFailed:
    ended = f"; the last one {how}" if how else ""
    return WorkerFailed(
        f"{command.kind} was given up after {command.attempts} attempts: its workers ended before it did{ended}. "
        f"What they stored of {command.subject!r} is intact; the server's log has their last words"
    )
