"""Connection: what all verbs use to ask a server: one answer, all pages of a list, or the result of a command."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from wtb.api.models.base import Item, ListAnswer
from wtb.client.problems import error_from
from wtb.client.requests import Reply, Request, get
from wtb.client.transports import PatientSender
from wtb.domain.errors import NotFinished

Model = TypeVar("Model", bound=BaseModel)

API = "/api/v1"
LONGEST_WAIT_S = 30.0
"""How long one request waits for a command before it asks again."""


class Connection:
    """Asks one server."""

    def __init__(self, sender: PatientSender) -> None:
        self._sender = sender

    async def _send(self, request: Request) -> Reply:
        return await self._sender.send(request)

    async def _ask(self, answer: type[Model], request: Request) -> Model:
        """Return the answer to a request, as its model."""
        return answer.model_validate((await self._send(request)).data)

    async def _each(self, items: type[Item], path: str, **query: Any) -> AsyncGenerator[Item]:
        """Yield the items of all pages of a list."""
        page_model, cursor = ListAnswer[items], None  # type: ignore[valid-type]  # a model is made of its items
        while True:
            page = await self._ask(page_model, get(path, **query, cursor=cursor))
            for item in page.items:
                yield item
            cursor = page.next
            if cursor is None:
                return

    async def _carried_out(self, request: Request, timeout_s: float | None) -> Any:
        """Send a request that a worker carries out, and return its result; raise the error that ended it.

        Without a timeout it waits as long as it takes. What has not finished in time goes on: NotFinished says so.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        reply = await self._send(request)
        while reply.is_accepted or _is_open(reply):
            command = _command(reply)
            left_s = LONGEST_WAIT_S if deadline is None else deadline - time.monotonic()
            if left_s <= 0:
                raise NotFinished(
                    f"{command['kind']} has not finished within {timeout_s:g} s, and goes on: "
                    f"client.command({command['id']!r}) shows it"
                )
            reply = await self._send(get(f"{API}/commands/{command['id']}", wait_s=min(left_s, LONGEST_WAIT_S)))
        return _result(reply)


def _command(reply: Reply) -> Mapping[str, Any]:
    data = reply.data
    command: Mapping[str, Any] = data.get("command", data)
    return command


def _is_open(reply: Reply) -> bool:
    data = reply.data
    return isinstance(data, dict) and data.get("status") in ("pending", "running") and "kind" in data


def _result(reply: Reply) -> Any:
    data = reply.data
    if isinstance(data, dict) and "kind" in data and data.get("status") in ("completed", "failed"):
        if data["status"] == "failed":
            raise error_from(data["error"])
        return data["result"]
    return data


def path_of(*parts: str | int) -> str:
    """Return the path of something below the API; ids and names may hold any character."""
    return "/".join((API, *(quote(str(part), safe="") for part in parts)))
