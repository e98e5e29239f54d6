"""SqlTokenRepository and SqlSignInRepository: tokens and sign-ins in two tables.

The rows carry no seal. Whoever can write to the database can make a valid row anyway.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from wtb.domain.access import Caller, Role, SignIn, SignInKind, Token
from wtb.domain.errors import TokenNotFound
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.mapping import mapping
from wtb.infrastructure.timestamps import from_us, from_us_or_none, to_us, to_us_or_none

_TOKEN = "name, role, digest, created_by, created_at_us, expires_at_us, revoked_at_us"
_TOKENS = f"SELECT {_TOKEN} FROM wtb_tokens"
_SAVE = (
    f"INSERT INTO wtb_tokens ({_TOKEN}) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
    "role = excluded.role, digest = excluded.digest, created_by = excluded.created_by, "
    "created_at_us = excluded.created_at_us, expires_at_us = excluded.expires_at_us, "
    "revoked_at_us = excluded.revoked_at_us"
)
_SIGN_IN = "name, kind, role, digest, created_at_us, expires_at_us"


class SqlTokenRepository:
    """Tokens by name."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def save(self, token: Token) -> None:
        times = (to_us(token.created_at), to_us_or_none(token.expires_at), to_us_or_none(token.revoked_at))
        self._transaction.run(_SAVE, (token.name, token.role.value, token.digest, token.created_by, *times))

    def get(self, name: str) -> Token:
        row = self._transaction.row(f"{_TOKENS} WHERE name = ?", (name,))
        if row is None:
            raise TokenNotFound(name)
        return _token(row)

    def find(self, digest: bytes) -> Token | None:
        row = self._transaction.row(f"{_TOKENS} WHERE digest = ?", (digest,))
        return None if row is None else _token(row)

    def list_tokens(self) -> tuple[Token, ...]:
        found = map(_token, self._transaction.rows(_TOKENS, ()))
        return tuple(sorted(found, key=lambda token: token.name))  # databases sort texts differently


class SqlSignInRepository:
    """Sign-ins by digest."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def add(self, sign_in: SignIn) -> None:
        caller, times = sign_in.caller, (to_us(sign_in.created_at), to_us(sign_in.expires_at))
        facts = (caller.name, sign_in.kind.value, caller.role.value, sign_in.digest, *times)
        self._transaction.run(f"INSERT INTO wtb_sign_ins ({_SIGN_IN}) VALUES (?, ?, ?, ?, ?, ?)", facts)

    def find(self, digest: bytes) -> SignIn | None:
        row = self._transaction.row(f"SELECT {_SIGN_IN} FROM wtb_sign_ins WHERE digest = ?", (digest,))
        return None if row is None else _sign_in(row)

    def take(self, digest: bytes) -> SignIn | None:
        row = self._transaction.row(f"DELETE FROM wtb_sign_ins WHERE digest = ? RETURNING {_SIGN_IN}", (digest,))
        return None if row is None else _sign_in(row)

    def delete_expired(self, now: datetime) -> None:
        self._transaction.run("DELETE FROM wtb_sign_ins WHERE expires_at_us <= ?", (to_us(now),))


@mapping("token")
def _token(row: Any) -> Token:
    return Token(
        name=row[0],
        role=Role(row[1]),
        digest=bytes(row[2]),
        created_by=row[3],
        created_at=from_us(row[4]),
        expires_at=from_us_or_none(row[5]),
        revoked_at=from_us_or_none(row[6]),
    )


@mapping("sign-in of")
def _sign_in(row: Any) -> SignIn:
    return SignIn(
        digest=bytes(row[3]),
        kind=SignInKind(row[1]),
        caller=Caller(name=row[0], role=Role(row[2])),
        created_at=from_us(row[4]),
        expires_at=from_us(row[5]),
    )
