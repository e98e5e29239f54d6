"""The routes, one module a noun."""

from __future__ import annotations

from fastapi import APIRouter

from wtb.api.routes import checkpoints, execution_reads, health, run_history, sessions, tokens

ROUTERS: tuple[APIRouter, ...] = (
    health.router,
    sessions.router,
    tokens.router,
    execution_reads.router,
    checkpoints.router,
    run_history.router,
)
"""All routers. Each names its whole prefix itself."""
