"""The routes, one module a noun."""

from __future__ import annotations

from fastapi import APIRouter

from wtb.api.routes import (
    audit,
    background_jobs,
    commands,
    events,
    health,
    rollbacks,
    run_changes,
    sessions,
    tokens,
    upkeep,
    webhooks,
    workflows,
)

ROUTERS: tuple[APIRouter, ...] = (
    health.router,
    sessions.router,
    tokens.router,
    workflows.router,
    run_changes.router,
    rollbacks.router,
    commands.router,
    events.router,
    audit.router,
    webhooks.router,
    background_jobs.router,
    upkeep.router,
)
"""All routers. Each names its whole prefix itself."""
