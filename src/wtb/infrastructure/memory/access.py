"""MemoryTokenRepository and MemorySignInRepository: tokens and sign-ins in dictionaries."""

from __future__ import annotations

from datetime import datetime

from wtb.domain.access import SignIn, Token
from wtb.domain.errors import TokenNotFound
from wtb.infrastructure.memory.tables import MemoryTransaction


class MemoryTokenRepository:
    """Tokens by name."""

    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction

    def save(self, token: Token) -> None:
        self._transaction.put("tokens", token.name, token)

    def get(self, name: str) -> Token:
        found: Token | None = self._transaction.find("tokens", name)
        if found is None:
            raise TokenNotFound(name)
        return found

    def find(self, digest: bytes) -> Token | None:
        return next((token for token in self._transaction.all("tokens") if token.digest == digest), None)

    def list_tokens(self) -> tuple[Token, ...]:
        return tuple(sorted(self._transaction.all("tokens"), key=lambda token: token.name))


class MemorySignInRepository:
    """Sign-ins by digest."""

    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction

    def add(self, sign_in: SignIn) -> None:
        self._transaction.put("sign_ins", sign_in.digest, sign_in)

    def find(self, digest: bytes) -> SignIn | None:
        found: SignIn | None = self._transaction.find("sign_ins", digest)
        return found

    def take(self, digest: bytes) -> SignIn | None:
        found = self.find(digest)
        if found is not None:
            self._transaction.drop("sign_ins", digest)
        return found

    def delete_expired(self, now: datetime) -> None:
        for sign_in in list(self._transaction.all("sign_ins")):
            if sign_in.expires_at <= now:
                self._transaction.drop("sign_ins", sign_in.digest)
