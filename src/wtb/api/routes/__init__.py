"""The routes, one module a noun."""

from __future__ import annotations

from fastapi import APIRouter

from wtb.api.routes import health

ROUTERS: tuple[APIRouter, ...] = (health.router,)
"""All routers. Each names its whole prefix itself."""
