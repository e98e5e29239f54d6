"""AccessTokens: creates, lists, revokes and checks the tokens of a server."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from datetime import timedelta

from wtb.application.server.short_memory import ShortMemory
from wtb.domain.access import TOKEN_PREFIX, Caller, Role, Token, digest_of
from wtb.domain.errors import AlreadyExists, InvalidInput, TokenNotFound
from wtb.domain.event_catalogue import TokenCreated, TokenRevoked
from wtb.domain.events import Event
from wtb.domain.ports import Clock, Storage, UnitOfWork

_RANDOM_BYTES = 32
_LONGEST = timedelta(days=36_500)


class AccessTokens:
    """The tokens of one store. Every server on it accepts them."""

    def __init__(self, storage: Storage, clock: Clock, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._storage = storage
        self._clock = clock
        self._known: ShortMemory[Token] = ShortMemory(monotonic)

    def create(self, name: str, role: Role, *, by: str, lasts: timedelta | None = None) -> tuple[Token, str]:
        """Store a new token and return it with its secret, which nobody can read again later.

        A revoked or expired token gives its name back.
        """
        if lasts is not None and not timedelta() < lasts <= _LONGEST:
            raise InvalidInput(
                "a token lasts more than 0 seconds and at most 100 years; without a time it never expires"
            )
        secret = TOKEN_PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
        now = self._clock.now()
        end = None if lasts is None else now + lasts
        token = Token(name=name, role=role, digest=digest_of(secret), created_by=by, created_at=now, expires_at=end)
        with self._storage.unit_of_work() as uow:
            before = _find(uow, name)
            if before is not None and before.is_valid(now):
                raise AlreadyExists(
                    f"token {name!r} exists; choose another name, or revoke it: wtb token revoke {name}"
                )
            uow.tokens.save(token)
            body = TokenCreated(name=name, role=role.value, expires_at=None if end is None else end.isoformat(), by=by)
            uow.events.append(Event.of(body, at=now))
            uow.commit()
        return token, secret

    def revoke(self, name: str, *, by: str) -> Token:
        """Take a token back: this process refuses it at once, other servers within a second."""
        now = self._clock.now()
        with self._storage.unit_of_work() as uow:
            token = uow.tokens.get(name).revoked(now)
            uow.tokens.save(token)
            uow.events.append(Event.of(TokenRevoked(name=name, by=by), at=now))
            uow.commit()
        self._known.forget()
        return token

    def list_tokens(self) -> tuple[Token, ...]:
        """Return all tokens, valid or not, sorted by name."""
        with self._storage.unit_of_work(readonly=True) as uow:
            return uow.tokens.list_tokens()

    def has_valid(self) -> bool:
        """Whether anybody can use a server that only takes tokens."""
        now = self._clock.now()
        return any(token.is_valid(now) for token in self.list_tokens())

    def find_caller(self, secret: str) -> Caller | None:
        """Return who calls with this token; None if it is unknown, revoked or expired."""
        digest = digest_of(secret)
        token = self._known.find(digest, lambda: self._find_by(digest))
        if token is None or not hmac.compare_digest(token.digest, digest) or not token.is_valid(self._clock.now()):
            return None
        return token.caller

    def _find_by(self, digest: bytes) -> Token | None:
        with self._storage.unit_of_work(readonly=True) as uow:
            return uow.tokens.find(digest)


def _find(uow: UnitOfWork, name: str) -> Token | None:
    try:
        return uow.tokens.get(name)
    except TokenNotFound:
        return None
