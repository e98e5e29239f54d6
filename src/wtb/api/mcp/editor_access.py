"""EditorAccess: what the tools of `wtb mcp` may reach, and for whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mcp.server.mcpserver import Context
from starlette.types import ASGIApp

from wtb.api.access import CALLER
from wtb.api.mcp.inner_api import InnerApi
from wtb.domain.access import Caller


@dataclass(frozen=True, slots=True, kw_only=True)
class EditorAccess:
    """The routes of the API, the person who started `wtb mcp`, and whether changes go without a question."""

    routes: ASGIApp
    owner: Caller
    allow_changes: bool


Asking = Context[EditorAccess, Any]
"""The type of a tool's argument that says who asks, and what their editor can do."""


def access_of(ctx: Asking) -> EditorAccess:
    """Return what this tool may reach."""
    return ctx.request_context.lifespan_context


def caller_of(ctx: Asking) -> Caller:
    """Return who asks: over HTTP the owner of the token, else the person who started `wtb mcp`."""
    request = ctx.request_context.request
    caller: Caller = access_of(ctx).owner if request is None else request.scope[CALLER]
    return caller


def api_of(ctx: Asking) -> InnerApi:
    """Return the API for whoever asks."""
    return InnerApi(access_of(ctx).routes, caller_of(ctx))
