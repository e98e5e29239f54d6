"""Host, Origin and CSRF: a page of another site cannot use the browser of somebody who is signed in here."""

from __future__ import annotations

import re
from ipaddress import ip_address

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from wtb.api.parts import ServerParts
from wtb.api.problems import send_problem
from wtb.domain.errors import Forbidden, WTBError

_HOST = re.compile(r"(?:\[(?P<digits>[0-9a-f:.]+)\]|(?P<name>[^][:/@]+))(?::\d{1,5})?")
_READING = frozenset({"GET", "HEAD"})
_OWN_PAGES = (None, "same-origin", "none")


class OriginCheck:
    """Refuses requests for another host (DNS rebinding), and those that a page of another origin sends."""

    def __init__(self, app: ASGIApp, parts: ServerParts) -> None:
        self._app = app
        self._names = {"localhost", parts.server.host.lower(), *map(str.lower, parts.server.allowed_hosts)}
        self._scheme = "https" if parts.is_encrypted else "http"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            try:
                self._check(HTTPConnection(scope))
            except WTBError as error:
                await send_problem(error, scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, connection: HTTPConnection) -> None:
        hosts = connection.headers.getlist("host")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            raise Forbidden(
                f"this server does not answer to the name {', '.join(hosts)!r}; if that is its name, add it to the "
                "setting server.allowed_hosts"
            )
        origins = connection.headers.getlist("origin")
        if any(origin.lower() != f"{self._scheme}://{hosts[0]}".lower() for origin in origins):
            raise Forbidden(f"a page of {', '.join(origins)} may not use this server; only its own pages may")

    def _is_ours(self, host: str) -> bool:
        """Whether a Host header names this server. An address in digits does: no page can make it point elsewhere."""
        found = _HOST.fullmatch(host.lower())
        return found is not None and (found["name"] in self._names or _is_address(found["name"] or found["digits"]))


def check_not_forged(connection: HTTPConnection) -> None:
    """Raise Forbidden unless a request with a session comes from a page of ours, or only reads.

    SameSite alone does not tell two ports of one machine apart. Browsers send Origin with every request that is not
    GET or HEAD, and with every WebSocket, and OriginCheck has compared it.
    """
    if connection.headers.get("sec-fetch-site") not in _OWN_PAGES:
        raise Forbidden("a page of another site may not use your session; open the server's own page")
    is_reading = connection.scope["type"] == "http" and connection.scope["method"] in _READING
    if not is_reading and "origin" not in connection.headers:
        raise Forbidden("a request with a session needs the header Origin; programs use a token instead")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
