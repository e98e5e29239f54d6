"""The routes, one module a noun."""

from __future__ import annotations

from fastapi import APIRouter

from wtb.api.routes import (
    audit,
    background_jobs,
    baselines,
    batch_changes,
    batch_results,
    batches,
    checkpoints,
    commands,
    events,
    execution_reads,
    health,
    rollbacks,
    run_changes,
    run_history,
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
    execution_reads.router,
    checkpoints.router,
    run_history.router,
    batches.router,
    batch_changes.router,
    batch_results.router,
    baselines.router,
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
