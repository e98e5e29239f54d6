"""What a server keeps about its callers."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from wtb.domain.access import SignIn, Token


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
