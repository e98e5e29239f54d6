"""Names with a slash: `%2F` in an address belongs to a name, and does not begin the next part of the address.

Servers decode an address before it is matched with the routes, so that `a%2Fb` would be two parts. Here each part is
decoded by itself, and a slash inside one is hidden from the routes until the route is found.
"""

from __future__ import annotations

from urllib.parse import unquote

from fastapi import FastAPI
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

_HIDDEN = "\udc2f"
"""Stands for a slash inside a name. Half a character is never the result of decoding an address."""


class HideSlashes:
    """Hides the slashes inside names. The innermost part of the app, so that all others see the usual path."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path") or b""
        if b"%2f" in raw.lower():
            parts = raw.partition(b"?")[0].decode("ascii", "replace").split("/")
            path = "/".join(unquote(part).replace("/", _HIDDEN) for part in parts)
            scope = {**scope, "path": path}
        await self._app(scope, receive, send)


def show_slashes(app: FastAPI) -> None:
    """Let every route see its parameters with their slashes."""
    for route in app.routes:
        if isinstance(route, APIRoute | APIWebSocketRoute):
            route.app = _ShowSlashes(route.app)


class _ShowSlashes:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _HIDDEN in scope["path"]:
            shown = {
                name: value.replace(_HIDDEN, "/") if isinstance(value, str) else value
                for name, value in scope["path_params"].items()
            }
            scope = {**scope, "path": scope["path"].replace(_HIDDEN, "/"), "path_params": shown}
        await self._app(scope, receive, send)
