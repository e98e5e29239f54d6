"""The routes, one module a noun."""

from __future__ import annotations

from fastapi import APIRouter

from wtb.api.routes import events, health

ROUTERS: tuple[APIRouter, ...] = (health.router, events.router)
"""All routers. Each names its whole prefix itself."""
