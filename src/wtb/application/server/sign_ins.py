"""SignIns: one-time links for the browser of this machine, and the sessions that they are exchanged for."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from datetime import timedelta

from wtb.application.server.short_memory import ShortMemory
from wtb.domain.access import Caller, SignIn, SignInKind, digest_of
from wtb.domain.errors import Unauthenticated
from wtb.domain.ports import Clock, Storage

LINK_LASTS = timedelta(minutes=5)
SESSION_LASTS = timedelta(days=7)

_RANDOM_BYTES = 32


class SignIns:
    """Links and sessions of one store."""

    def __init__(self, storage: Storage, clock: Clock, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._storage = storage
        self._clock = clock
        self._known: ShortMemory[SignIn] = ShortMemory(monotonic)

    def create_link(self, caller: Caller) -> str:
        """Return the secret of a link that signs a browser in as this caller, once and within five minutes."""
        _, secret = self._create(SignInKind.LINK, caller, LINK_LASTS)
        return secret

    def exchange(self, link: str) -> tuple[SignIn, str]:
        """Use a link up, and return the session that it opens with the session's secret."""
        now = self._clock.now()
        with self._storage.unit_of_work() as uow:
            found = uow.sign_ins.take(digest_of(link))
            if found is not None and found.kind is SignInKind.LINK:
                uow.commit()
        if found is None or found.kind is not SignInKind.LINK or found.expires_at <= now:
            raise Unauthenticated(
                "this link was used before or is older than five minutes; `wtb serve --link` prints another"
            )
        return self._create(SignInKind.SESSION, found.caller, SESSION_LASTS)

    def find_session(self, secret: str) -> SignIn | None:
        """Return a session that has not ended."""
        digest = digest_of(secret)
        found = self._known.find(digest, lambda: self._find_by(digest))
        if found is None or found.kind is not SignInKind.SESSION or found.expires_at <= self._clock.now():
            return None
        return found

    def end(self, secret: str) -> None:
        """End a session."""
        with self._storage.unit_of_work() as uow:
            uow.sign_ins.take(digest_of(secret))
            uow.commit()
        self._known.forget()

    def _create(self, kind: SignInKind, caller: Caller, lasts: timedelta) -> tuple[SignIn, str]:
        secret = secrets.token_urlsafe(_RANDOM_BYTES)
        now = self._clock.now()
        made = SignIn(digest=digest_of(secret), kind=kind, caller=caller, created_at=now, expires_at=now + lasts)
        with self._storage.unit_of_work() as uow:
            uow.sign_ins.delete_expired(now)
            uow.sign_ins.add(made)
            uow.commit()
        return made, secret

    def _find_by(self, digest: bytes) -> SignIn | None:
        with self._storage.unit_of_work(readonly=True) as uow:
            return uow.sign_ins.find(digest)
