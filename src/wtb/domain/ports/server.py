"""What a server keeps beside runs and batches."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from wtb.domain.access import SignIn, Token
from wtb.domain.commands import AcceptedRequest, Command, CommandKind, CommandStatus


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
        kinds: Collection[CommandKind] = (),
        subject: str | None = None,
        before: tuple[datetime, str] | None = None,
        limit: int,
    ) -> tuple[Command, ...]:
        """Return commands, newest first, by time and then id; with `before`, only those before this time and id."""
        ...

    def list_open(self, limit: int, after: tuple[datetime, str] | None = None) -> tuple[Command, ...]:
        """Return commands that have not ended, oldest first, by time and then id; with `after`, only those after it."""
        ...

    def list_open_about(self, subject: str) -> tuple[Command, ...]:
        """Return the commands about a subject that have not ended; let nobody else ask this until this unit ends."""
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


class TokenRepository(Protocol):
    """Tokens by name."""

    def save(self, token: Token) -> None:
        """Store a token; it replaces the one with the same name."""
        ...

    def get(self, name: str) -> Token:
        """Return a token, valid or not, or raise TokenNotFound."""
        ...

    def find(self, digest: bytes) -> Token | None:
        """Return the token with this digest, valid or not."""
        ...

    def list_tokens(self) -> tuple[Token, ...]:
        """Return all tokens, sorted by name."""
        ...


class SignInRepository(Protocol):
    """One-time links and sessions, by the digest of their secret."""

    def add(self, sign_in: SignIn) -> None:
        """Store a sign-in."""
        ...

    def find(self, digest: bytes) -> SignIn | None:
        """Return a sign-in, expired or not."""
        ...

    def take(self, digest: bytes) -> SignIn | None:
        """Return a sign-in and delete it: of several transactions that take it, only one gets it."""
        ...

    def delete_expired(self, now: datetime) -> None:
        """Delete what has expired."""
        ...
