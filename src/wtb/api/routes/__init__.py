"""The routes, one module a noun."""

from __future__ import annotations

from fastapi import APIRouter

from wtb.api.routes import checkpoints, execution_reads, health, run_history

ROUTERS: tuple[APIRouter, ...] = (
    health.router,
    execution_reads.router,
    checkpoints.router,
    run_history.router,
)
"""All routers. Each names its whole prefix itself."""
