"""create_app: the routes, and what every request passes on its way to them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse

from wtb.api.access import AccessCheck
from wtb.api.openapi import describe
from wtb.api.parts import ServerParts
from wtb.api.problems import LastResort, add_handlers
from wtb.api.routes import ROUTERS


def create_app(parts: ServerParts) -> FastAPI:
    """Return the app of a server. It neither opens nor closes the services of its parts."""
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
    for router in ROUTERS:
        app.router.routes.extend(router.routes)  # as they are: `include_router` would hide them from `app.routes`
    description = describe(app)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi(request: Request) -> JSONResponse:
        return JSONResponse(description)

    add_handlers(app)
    # The last one added is the first that a request meets.
    app.add_middleware(AccessCheck, parts=parts)
    app.add_middleware(LastResort)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Start what works beside the requests, and stop it in the reverse order."""
    async with AsyncExitStack():
        yield
