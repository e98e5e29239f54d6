"""Finds out who calls, by a bearer token or a session cookie, and checks the role that a route needs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from wtb.api import page
from wtb.api.origins import check_not_forged
from wtb.api.parts import ServerParts
from wtb.api.problems import send_problem
from wtb.api.rate_limits import FAILED_SIGN_INS_PER_MINUTE, RateLimit, Regulars
from wtb.domain.access import Caller, Role
from wtb.domain.errors import Unauthenticated, WTBError

PUBLIC = frozenset({"/healthz", "/readyz", "/sign-in/{link}", *page.ADDRESSES})
"""Routes for everybody. Every other request is refused without a caller, whatever its route declares."""

_OPEN_PATHS = ("/healthz", "/readyz")
_SIGN_IN = "/sign-in/"
_LANGGRAPH, _LANGGRAPH_HEADER = "/langgraph/", "x-api-key"
"""LangGraph's clients send their key in a header of their own; it counts for their routes only."""
CALLER = "wtb.caller"
"""Where the scope of a request has its caller."""

_ADVICE = (
    "send one in the header Authorization, as `Bearer wtb_…`; `wtb token create NAME --role viewer` makes one. A "
    "browser on the server's machine signs in with the link that `wtb serve --link` prints"
)


class AccessCheck:
    """Finds out who calls before the body of a request is read, and refuses strangers and those who send too much."""

    def __init__(self, app: ASGIApp, parts: ServerParts) -> None:
        self._app = app
        self._parts = parts
        self._requests = RateLimit(parts.server.requests_per_minute, time.monotonic)
        self._failures = RateLimit(FAILED_SIGN_INS_PER_MINUTE, time.monotonic)
        self._regulars = Regulars()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in _OPEN_PATHS or page.is_page(scope["path"]):
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        try:
            if scope["path"].startswith(_SIGN_IN):
                self._failures.take(_address(connection), "attempts to sign in")
            else:
                scope[CALLER] = await run_in_threadpool(self._caller, connection)
        except WTBError as error:
            await send_problem(error, scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _caller(self, connection: HTTPConnection) -> Caller:
        secret = _secret(connection, self._parts)
        if secret is None:
            raise Unauthenticated(f"this needs a token; {_ADVICE}")
        address = _address(connection)
        if not self._regulars.knows(secret):
            self._failures.check(address, "failed attempts to sign in")
        caller = find_caller(connection, self._parts)
        if caller is None:
            self._failures.take(address, "failed attempts to sign in")
            raise Unauthenticated(f"this token or session is unknown, revoked or expired; {_ADVICE}")
        self._regulars.remember(secret)
        self._requests.take(caller.name, f"requests of {caller.name!r}")
        return caller


def find_caller(connection: HTTPConnection, parts: ServerParts) -> Caller | None:
    """Return who calls, as the store knows it within a second; None for a stranger.

    Whoever answers for long, such as a feed, asks again from time to time: a token may be revoked or expire.
    """
    secret = _secret(connection, parts)
    if secret is None:
        return None
    if session_secret(connection, parts) is None:
        return parts.services.tokens.find_caller(secret)
    check_not_forged(connection)
    session = parts.services.sign_ins.find_session(secret)
    # A browser may have signed in with a token: its cookie is the token, so that revoking it ends the session, too.
    return parts.services.tokens.find_caller(secret) if session is None else session.caller


def session_secret(connection: HTTPConnection, parts: ServerParts) -> str | None:
    """Return the secret of a request's session; None if it has a token, which goes first."""
    return None if bearer_token(connection) is not None else connection.cookies.get(parts.cookie)


def bearer_token(connection: HTTPConnection) -> str | None:
    """Return the token of a request; one that cannot be valid if its header is of another kind."""
    header = connection.headers.get("authorization")
    if header is None:
        is_langgraph = connection.scope["path"].startswith(_LANGGRAPH)
        return connection.headers.get(_LANGGRAPH_HEADER) if is_langgraph else None
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _secret(connection: HTTPConnection, parts: ServerParts) -> str | None:
    """Return the token of a request, or else the secret of its session."""
    token = bearer_token(connection)
    return session_secret(connection, parts) if token is None else token


def _address(connection: HTTPConnection) -> str:
    return "" if connection.client is None else connection.client.host


@dataclass(frozen=True, slots=True)
class RoleCheck:
    """The dependency of a route that lets only a role in."""

    role: Role

    def __call__(self, connection: HTTPConnection) -> Caller:
        caller: Caller = connection.scope[CALLER]
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
