"""Who may do what on a server: roles, tokens, sign-ins, and the caller of a request."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from wtb.domain.errors import Forbidden, InvalidInput

TOKEN_PREFIX = "wtb_"
"""Every token begins with it, so that people, maskers and scanners of repositories recognise one."""

LONGEST_NAME = 100
NAME_PATTERN = r"^[\w.@:+-]+( [\w.@:+-]+)*$"
"""What a token may be called: a name is typed on command lines and stands in addresses."""


class Role(StrEnum):
    """What a caller may do. Each role may do everything that the one before it may."""

    VIEWER = "viewer"
    """Reads everything."""
    OPERATOR = "operator"
    """Changes runs and batches."""
    ADMIN = "admin"
    """Deletes, prunes, and keeps tokens and webhooks."""

    def includes(self, other: Role) -> bool:
        """Whether this role may do what the other one may."""
        order = list(Role)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who sends a request: the name of a token or of a signed-in person, and the role that it has."""

    name: str
    role: Role

    def require(self, role: Role) -> Caller:
        """Return this caller if it has the role, or raise Forbidden."""
        if not self.role.includes(role):
            raise Forbidden(f"{self.name!r} has the role {self.role}, but this needs {role}; ask an admin for a token")
        return self


def digest_of(secret: str) -> bytes:
    """Return what is stored of a secret. It is long and random, so that a plain hash cannot be guessed backwards."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """The right to call a server. The token itself is shown once, and only its digest is stored."""

    name: str
    role: Role
    digest: bytes
    created_by: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def __post_init__(self) -> None:
        if len(self.name) > LONGEST_NAME:
            raise InvalidInput(f"the name of a token has {len(self.name)} characters; {LONGEST_NAME} are allowed")
        if re.fullmatch(NAME_PATTERN, self.name) is None:
            raise InvalidInput(
                f"{self.name!r} is no name for a token; use letters, digits, single spaces and . @ : + - _, such as ci"
            )

    @property
    def caller(self) -> Caller:
        """Who calls with it."""
        return Caller(name=self.name, role=self.role)

    def is_valid(self, now: datetime) -> bool:
        """Whether it may be used."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def status(self, now: datetime) -> str:
        """Return `valid`, `revoked` or `expired`."""
        if self.revoked_at is not None:
            return "revoked"
        return "valid" if self.is_valid(now) else "expired"

    def revoked(self, now: datetime) -> Token:
        """Return it as it is after it was taken back."""
        if self.revoked_at is not None:
            raise InvalidInput(f"token {self.name!r} was revoked at {self.revoked_at:%Y-%m-%d %H:%M:%S} UTC")
        return replace(self, revoked_at=now)


class SignInKind(StrEnum):
    """What a sign-in is: a link that works once, or the session of a browser that used one."""

    LINK = "link"
    SESSION = "session"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """The right of a browser on the server's own machine. Only the digest of its secret is stored."""

    digest: bytes
    kind: SignInKind
    caller: Caller
    created_at: datetime
    expires_at: datetime
