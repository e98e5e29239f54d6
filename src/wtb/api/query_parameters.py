"""Refuses query parameters that a route does not know: a typo in a filter must not show everything."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from wtb.api.problems import send_problem
from wtb.domain.errors import InvalidInput

_API = "/api/"
_MOST_NAMED = 5


def refuse_unknown_parameters(app: FastAPI) -> None:
    """Let every route of the API answer 422 to a query parameter that it does not take, whatever the route is."""
    for route in app.routes:
        if isinstance(route, APIRoute | APIWebSocketRoute) and route.path.startswith(_API):
            route.app = _KnownParameters(route.app, tuple(dict.fromkeys(_names(route.dependant))))


def _names(dependant: Dependant) -> Iterator[str]:
    yield from (parameter.alias for parameter in dependant.query_params)
    for each in dependant.dependencies:
        yield from _names(each)


class _KnownParameters:
    """Stands before a route, over HTTP and as a WebSocket."""

    def __init__(self, app: ASGIApp, names: tuple[str, ...]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        unknown = [name for name in HTTPConnection(scope).query_params if name not in self._names]
        if unknown:
            await send_problem(self._refusal(unknown), scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, unknown: list[str]) -> InvalidInput:
        close = [each for name in unknown for each in get_close_matches(name[:100], self._names, 1)]
        if close:
            advice = f"did you mean {', '.join(map(repr, dict.fromkeys(close)))}?"
        elif self._names:
            advice = f"it takes {', '.join(self._names)}"
        else:
            advice = "it takes none"
        named = ", ".join(repr(name[:100]) for name in unknown[:_MOST_NAMED])
        noun = "the query parameter" if len(unknown) == 1 else "the query parameters"
        return InvalidInput(f"this address does not know {noun} {named}; {advice}")
