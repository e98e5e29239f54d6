"""All routes for LangGraph's clients. The last router answers what no other one knows."""

from __future__ import annotations

from fastapi import APIRouter

from wtb.api.langgraph import assistants, not_offered, runs, threads

ROUTERS: tuple[APIRouter, ...] = (threads.router, runs.router, assistants.router, not_offered.router)
