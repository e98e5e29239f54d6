"""The routes, one module a noun."""

from __future__ import annotations

from fastapi import APIRouter

from wtb.api.routes import health, sessions, tokens

ROUTERS: tuple[APIRouter, ...] = (health.router, sessions.router, tokens.router)
"""All routers. Each names its whole prefix itself."""
