"""Tokens, and who is signed in."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal, cast

from pydantic import Field

from wtb.api.models.base import AnswerModel, RequestModel, example
from wtb.domain.access import LONGEST_NAME, NAME_PATTERN, Caller, Role, Token

Status = Literal["valid", "revoked", "expired"]


class NewToken(RequestModel):
    """A token to create."""

    name: str = Field(
        min_length=1,
        max_length=LONGEST_NAME,
        pattern=NAME_PATTERN,
        description="Whatever is done with the token carries this name.",
    )
    role: Role = Field(description="What it may do.")
    expires_in_days: float | None = Field(
        default=None, ge=0.001, le=36_500, description="How long it is valid; null for no end."
    )

    model_config = example(name="ci", role="operator", expires_in_days=30)

    @property
    def lasts(self) -> timedelta | None:
        """How long it is valid."""
        return None if self.expires_in_days is None else timedelta(days=self.expires_in_days)


class TokenAnswer(AnswerModel):
    """A token, without its secret."""

    name: str = Field(examples=["ci"])
    role: Role
    status: Status
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    @classmethod
    def of(cls, token: Token, now: datetime) -> TokenAnswer:
        """Return a token as callers see it."""
        return cls(**_facts(token, now))


class CreatedTokenAnswer(TokenAnswer):
    """A new token, with its secret."""

    token: str = Field(description="The token itself. It is shown this once, and only its digest is stored.")

    @classmethod
    def with_secret(cls, token: Token, now: datetime, secret: str) -> CreatedTokenAnswer:
        """Return a new token as its creator sees it."""
        return cls(token=secret, **_facts(token, now))


class SessionAnswer(AnswerModel):
    """Who calls."""

    name: str = Field(description="The name that everything carries that you change.", examples=["alice"])
    role: Role
    kind: Literal["token", "session"] = Field(description="How you are signed in.")

    @classmethod
    def of(cls, caller: Caller, *, is_session: bool) -> SessionAnswer:
        """Return a caller as it sees itself."""
        return cls(name=caller.name, role=caller.role, kind="session" if is_session else "token")


def _facts(token: Token, now: datetime) -> dict[str, object]:
    return {
        "name": token.name,
        "role": token.role,
        "status": cast("Status", token.status(now)),
        "created_by": token.created_by,
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "revoked_at": token.revoked_at,
    }
