"""Who calls, and what may they: a bearer token, and the role that a route needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from wtb.api.parts import ServerParts
from wtb.api.problems import send_problem
from wtb.domain.access import Caller, Role
from wtb.domain.errors import Unauthenticated, WTBError

PUBLIC = frozenset({"/healthz", "/readyz", "/openapi.json"})
"""Paths for everybody. Every other path is refused without a caller, whatever its route declares."""

_CALLER = "wtb.caller"


class AccessCheck:
    """Finds out who calls before anything of a request is read, and refuses strangers."""

    def __init__(self, app: ASGIApp, parts: ServerParts) -> None:
        self._app = app
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in PUBLIC:
            await self._app(scope, receive, send)
            return
        try:
            scope[_CALLER] = await run_in_threadpool(self._caller, HTTPConnection(scope))
        except WTBError as error:
            await send_problem(error, scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _caller(self, connection: HTTPConnection) -> Caller:
        scheme, _, token = connection.headers.get("authorization", "").partition(" ")
        caller = self._parts.find_caller(token.strip()) if scheme.lower() == "bearer" else None
        if caller is None:
            raise Unauthenticated("send a valid token: `Authorization: Bearer wtb_…`; `wtb token create` makes one")
        return caller


@dataclass(frozen=True, slots=True)
class RoleCheck:
    """The dependency of a route that lets only a role in."""

    role: Role

    def __call__(self, connection: HTTPConnection) -> Caller:
        caller: Caller = connection.scope[_CALLER]
        return caller.require(self.role)


def needs(role: Role) -> Any:
    """Return the dependency of a route that needs a role; its value is the caller."""
    return Depends(RoleCheck(role))


Viewer = Annotated[Caller, needs(Role.VIEWER)]
"""The type of a route's argument: the caller, who may read."""

Operator = Annotated[Caller, needs(Role.OPERATOR)]
"""The type of a route's argument: the caller, who may change runs and batches."""

Admin = Annotated[Caller, needs(Role.ADMIN)]
"""The type of a route's argument: the caller, who may do everything."""
