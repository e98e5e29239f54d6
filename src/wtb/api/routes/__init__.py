"""The routes, one module a noun."""

from __future__ import annotations

from fastapi import APIRouter

from wtb.api.routes import background_jobs, health, sessions, tokens, upkeep, webhooks

ROUTERS: tuple[APIRouter, ...] = (
    health.router,
    sessions.router,
    tokens.router,
    webhooks.router,
    background_jobs.router,
    upkeep.router,
)
"""All routers. Each names its whole prefix itself."""
