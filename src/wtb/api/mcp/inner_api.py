"""InnerApi: asks the routes of the API without a network, so that tools answer, mask and refuse exactly as they do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send

from wtb.api.access import CALLER
from wtb.domain.access import Caller
from wtb.domain.errors import InvalidInput, TooMuchToShow, WTBError

API = "/api/v1"
_MAY_HAVE_SLASHES = "cases"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteAnswer:
    """The answer of a route."""

    data: Any
    etag: str | None


@dataclass(frozen=True, slots=True)
class InnerApi:
    """The routes of a server, for one caller."""

    routes: ASGIApp
    caller: Caller

    async def get(self, *path: str | int, **query: Any) -> Any:
        """Return what a route that reads answers; raise its problem."""
        return (await self._ask("GET", path, params=_given(query))).data

    async def post(
        self, *path: str | int, body: Mapping[str, Any] | None = None, if_match: str | None = None, wait_s: float = 0
    ) -> RouteAnswer:
        """Return what a route that changes something answers; raise its problem."""
        headers = {"Content-Type": "application/json", **({} if if_match is None else {"If-Match": if_match})}
        content = None if body is None else _json(_given(body))
        return await self._ask("POST", path, params={"wait_s": wait_s}, content=content, headers=headers)

    async def _ask(self, method: str, path: tuple[str | int, ...], **more: Any) -> RouteAnswer:
        transport = httpx.ASGITransport(app=self._as_caller, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=None) as client:
            try:
                answer = await client.request(method, address_of(*path), **more)
            except httpx.InvalidURL as error:
                raise InvalidInput("an id, a name or a path in the arguments is far too long") from error
        if answer.status_code >= 400:
            raise _error(answer)
        return RouteAnswer(data=answer.json(), etag=answer.headers.get("etag"))

    async def _as_caller(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.routes({**scope, CALLER: self.caller}, receive, send)


def address_of(*path: str | int) -> str:
    """Return the address of something; refuse a name that would lead somewhere else. Ids of cases may have slashes."""
    parts = [str(part) for part in path]
    for before, part in zip([API, *parts], parts, strict=False):
        if part in {"", ".", ".."} or ("/" in part and before != _MAY_HAVE_SLASHES):
            raise InvalidInput(f"{part!r} is not the id or the name of anything here")
    return "/".join((API, *(quote(part, safe="") for part in parts)))


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name.rstrip("_"): value for name, value in values.items() if value is not None}


def _json(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, allow_nan=False).encode()
    except ValueError as error:
        raise InvalidInput(
            "the arguments hold a number that JSON does not have, NaN or an infinity; use null"
        ) from error


def _error(answer: httpx.Response) -> WTBError:
    """Return a problem as an error."""
    try:
        problem = answer.json()
        kind = TooMuchToShow if problem["code"] == "too-much-to-show" else WTBError
        return kind(str(problem["detail"]))
    except (ValueError, KeyError, TypeError):
        return WTBError(f"the request failed (status {answer.status_code}); the log of `wtb mcp` says why")
