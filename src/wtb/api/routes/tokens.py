"""Tokens: list, create and revoke them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from wtb.api.access import Admin
from wtb.api.models.base import ListAnswer
from wtb.api.models.tokens import CreatedTokenAnswer, NewToken, TokenAnswer
from wtb.api.parts import Parts
from wtb.api.problems import answers
from wtb.domain.errors import AlreadyExists, TokenNotFound

router = APIRouter(prefix="/api/v1/tokens", tags=["access"])

Name = Annotated[str, Path(description="The name of the token.", examples=["ci"])]


@router.get("", operation_id="tokens_list", summary="List all tokens")
def list_tokens(parts: Parts, caller: Admin) -> ListAnswer[TokenAnswer]:
    """Return all tokens by name, revoked and expired ones included, in one page."""
    now = parts.services.clock.now()
    return ListAnswer(items=[TokenAnswer.of(token, now) for token in parts.services.tokens.list_tokens()])


@router.post(
    "", status_code=201, operation_id="tokens_create", summary="Create a token", responses=answers(AlreadyExists)
)
def create_token(parts: Parts, caller: Admin, body: NewToken) -> CreatedTokenAnswer:
    """Create a token and return it this once. A revoked or expired token gives its name back."""
    services = parts.services
    token, secret = services.tokens.create(body.name, body.role, by=caller.name, lasts=body.lasts)
    return CreatedTokenAnswer.with_secret(token, services.clock.now(), secret)


@router.delete("/{name}", operation_id="tokens_revoke", summary="Revoke a token", responses=answers(TokenNotFound))
def revoke_token(parts: Parts, caller: Admin, name: Name) -> TokenAnswer:
    """Revoke a token: this server refuses it at once, others within a second."""
    token = parts.services.tokens.revoke(name, by=caller.name)
    return TokenAnswer.of(token, parts.services.clock.now())
