"""TrustedProxy: if a proxy does TLS, only it may connect, and what it says about the caller is believed."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from wtb.api.parts import ServerParts
from wtb.api.problems import send_problem
from wtb.domain.errors import Forbidden, WTBError

_PROBES = ("/healthz", "/readyz")
"""Whoever watches the server asks it directly."""


class TrustedProxy:
    """Without the setting `trusted_proxy`, headers about forwarding are ignored."""

    def __init__(self, app: ASGIApp, parts: ServerParts) -> None:
        self._app = app
        proxy = parts.server.trusted_proxy
        self._network = None if proxy is None else ip_network(proxy)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._network is not None and scope["type"] != "lifespan" and scope["path"] not in _PROBES:
            try:
                self._enter(scope)
            except WTBError as error:
                await send_problem(error, scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _enter(self, scope: Scope) -> None:
        host, port = scope.get("client") or ("", 0)
        if not self._is_proxy(host):
            raise Forbidden("this server is only reached through its proxy; use the proxy's https address")
        headers = Headers(scope=scope)
        if headers.get("x-forwarded-proto", "https").lower() not in ("https", "wss"):
            raise Forbidden("the proxy received this request without TLS; use its https address")
        # The last address is the one that the proxy added itself; those before it are the caller's own claims.
        client = headers.get("x-forwarded-for", host).rpartition(",")[2].strip()
        scope["client"] = (client[:100] or host, port)

    def _is_proxy(self, host: str) -> bool:
        try:
            return self._network is not None and ip_address(host) in self._network
        except ValueError:
            return False
