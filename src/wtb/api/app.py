"""create_app: puts the routes together with the checks that every request passes first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from copy import copy
from importlib.metadata import version

from fastapi import APIRouter, FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse

from wtb.api import page
from wtb.api.access import AccessCheck, needs
from wtb.api.openapi import describe
from wtb.api.origins import OriginCheck
from wtb.api.parts import ServerParts
from wtb.api.problems import LastResort, add_handlers
from wtb.api.proxies import TrustedProxy
from wtb.api.query_parameters import refuse_unknown_parameters
from wtb.api.request_limits import BodyLimits
from wtb.api.routes import ROUTERS
from wtb.api.security_headers import SecurityHeaders
from wtb.api.slashed_names import HideSlashes, show_slashes
from wtb.application.server.command_server import CommandServer
from wtb.domain.access import Role
from wtb.domain.errors import MissingLibrary
from wtb.server_bootstrap import command_server


def create_app(parts: ServerParts) -> FastAPI:
    """Return the app of a server. It neither opens nor closes the services of its parts."""
    app = create_routes(parts)
    # The last one added is the first that a request meets: nothing of a stranger's body is read.
    app.add_middleware(BodyLimits, parts=parts)
    app.add_middleware(AccessCheck, parts=parts)
    app.add_middleware(OriginCheck, parts=parts)
    app.add_middleware(TrustedProxy, parts=parts)
    app.add_middleware(SecurityHeaders, parts=parts)
    app.add_middleware(LastResort)
    return app


def create_routes(parts: ServerParts) -> FastAPI:
    """Return the routes alone, for a caller in this process that has found out who asks."""
    app = FastAPI(
        title="WTB, the Workflow Test Bench",
        version=version("workflow-test-bench"),
        description="Run workflows step by step, go back to any step, and find out which version is better.",
        openapi_url=None,  # served below, completed
        docs_url=None,  # would load scripts from another host
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    app.state.parts = parts
    app.state.command_server = command_server(
        parts.services, (*parts.server.workflows, *parts.workflows), recorded=parts.serves_recorded
    )
    for router in (*ROUTERS, page.router, *(_langgraph_routers() if parts.server.langgraph else ())):
        # Copies, since each app wraps its own below; `include_router` would hide them from `app.routes`.
        app.router.routes.extend(copy(route) for route in router.routes)
    refuse_unknown_parameters(app)
    show_slashes(app)
    app.openapi_schema = describe(app)
    app.add_api_route("/openapi.json", _openapi, include_in_schema=False, dependencies=[needs(Role.VIEWER)])
    add_handlers(app)
    app.add_middleware(HideSlashes)
    return app


def _langgraph_routers() -> tuple[APIRouter, ...]:
    try:
        from wtb.api.langgraph.routes import ROUTERS as LANGGRAPH_ROUTERS
    except ImportError as error:
        raise MissingLibrary(
            "server.langgraph needs LangGraph: pip install 'workflow-test-bench[server,langgraph]'"
        ) from error
    return LANGGRAPH_ROUTERS


async def _openapi(request: Request) -> JSONResponse:
    return JSONResponse(request.app.openapi_schema)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Start what works beside the requests, and stop it in the reverse order."""
    parts: ServerParts = app.state.parts
    async with AsyncExitStack() as running:
        await run_in_threadpool(parts.services.feed.open)  # before anything writes: restored events come first
        command_server: CommandServer = app.state.command_server
        running.push_async_callback(run_in_threadpool, command_server.close)
        command_server.start()
        background = parts.server_services.background
        running.push_async_callback(run_in_threadpool, background.stop)
        background.start()
        yield
