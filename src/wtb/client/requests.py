"""Requests and replies as values: what a verb asks for, whichever client sends it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from pydantic import BaseModel

from wtb.client.problems import error_of
from wtb.domain.errors import WTBError

Query = Mapping[str, Any]
Names = Collection[str] | str
"""Some names, or a single one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. Sent again, it has the same headers, so that a keyed one is carried out once."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    patience_s: float = 0.0
    """How long the server may take beyond the usual time before it answers."""

    @property
    def is_repeatable(self) -> bool:
        """Whether it may be sent again although the server may have carried it out."""
        return self.method == "GET" or "Idempotency-Key" in self.headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        """The body as JSON data."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise WTBError(
                f"the answer (status {self.status}) is not JSON; check that the address is that of a WTB server"
            ) from None

    @property
    def is_accepted(self) -> bool:
        """Whether the server does it later: a worker carries out a command."""
        return self.status == 202

    def checked(self) -> Reply:
        """Return it, or raise the problem that it tells."""
        if self.status >= 400:
            raise error_of(self.body, self.status)
        return self


def get(path: str, /, **query: Any) -> Request:
    """Return a request that reads."""
    return Request(method="GET", path=path, query=query_of(query), patience_s=query.get("wait_s") or 0.0)


def post(
    path: str,
    body: BaseModel | Mapping[str, Any] | None = None,
    *,
    if_match: str | None = None,
    keyed: bool = True,
    patience_s: float = 0.0,
    **query: Any,
) -> Request:
    """Return a request that makes or changes something.

    A keyed one may be sent again. What a worker carries out, and a new webhook, the server makes once; other routes do
    not look at the key, and doing the same twice does no harm there.
    """
    headers = {"Idempotency-Key": uuid4().hex} if keyed else {}
    if if_match is not None:
        headers["If-Match"] = if_match
    if body is not None:
        headers["Content-Type"] = "application/json"
    return Request(
        method="POST",
        path=path,
        query=query_of(query),
        body=None if body is None else _json(body),
        headers=headers,
        patience_s=patience_s + (query.get("wait_s") or 0.0),
    )


def delete(path: str, **query: Any) -> Request:
    """Return a request that deletes."""
    return Request(method="DELETE", path=path, query=query_of(query))


def each_of(names: Names) -> list[str]:
    """Return names as a list; a single text is one name, not its letters."""
    return [names] if isinstance(names, str) else list(names)


def query_of(values: Query) -> tuple[tuple[str, str], ...]:
    """Return the parameters of an address; None is left out, and each item of a list is one."""
    found: list[tuple[str, str]] = []
    for name, value in values.items():
        items = value if isinstance(value, list | tuple | set | frozenset) else [value]
        found.extend((name, _text(item)) for item in items if item is not None)
    return tuple(found)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _json(body: BaseModel | Mapping[str, Any]) -> bytes:
    if isinstance(body, BaseModel):
        return body.model_dump_json(exclude_unset=True).encode()
    return json.dumps(body, allow_nan=False).encode()
