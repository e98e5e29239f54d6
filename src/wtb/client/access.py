"""Verbs about the server itself, and about who may use it."""

from __future__ import annotations

from wtb.api.models.base import ListAnswer
from wtb.api.models.health import ReadinessAnswer, VersionAnswer
from wtb.api.models.tokens import CreatedTokenAnswer, NewToken, SessionAnswer, TokenAnswer
from wtb.client.connection import Connection, made, path_of
from wtb.client.requests import delete, get, post
from wtb.domain.access import Role


class AccessVerbs(Connection):
    """What a client asks about the server, and what an admin does with tokens."""

    async def version(self) -> VersionAnswer:
        """Return the version of the server and of its database."""
        return await self._ask(VersionAnswer, get(path_of("version")))

    async def ready(self) -> ReadinessAnswer:
        """Return if the server can work; raise why it cannot."""
        return await self._ask(ReadinessAnswer, get("/readyz"))

    async def whoami(self) -> SessionAnswer:
        """Return the name and the role of your token."""
        return await self._ask(SessionAnswer, get(path_of("session")))

    async def list_tokens(self) -> list[TokenAnswer]:
        """Return all tokens by name, without their secrets."""
        return (await self._ask(ListAnswer[TokenAnswer], get(path_of("tokens")))).items

    async def create_token(
        self, name: str, role: Role | str, *, expires_in_days: float | None = None
    ) -> CreatedTokenAnswer:
        """Create a token and return it with its secret, this once."""
        body = made(NewToken, name=name, role=role, expires_in_days=expires_in_days)
        return await self._ask(CreatedTokenAnswer, post(path_of("tokens"), body, keyed=False))

    async def revoke_token(self, name: str) -> TokenAnswer:
        """Revoke a token."""
        return await self._ask(TokenAnswer, delete(path_of("tokens", name)))
