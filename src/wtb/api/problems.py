"""Problem details (RFC 9457): every error becomes an answer here, with a stable code and never a stack trace."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.utils import ClientDisconnected

from wtb.api.models.problems import Problem
from wtb.application.server.commands import Commands
from wtb.domain import errors
from wtb.domain.commands import CommandKind, CommandStatus
from wtb.domain.errors import WTBError, error_with
from wtb.domain.secrets import Masker, masked_logger

MEDIA_TYPE = "application/problem+json"

STATUSES: dict[type[WTBError], HTTPStatus] = {
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.InvalidInput: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.InvalidTransition: HTTPStatus.CONFLICT,
    errors.MissingLibrary: HTTPStatus.NOT_IMPLEMENTED,
    errors.PreconditionRequired: HTTPStatus.PRECONDITION_REQUIRED,
    errors.Conflict: HTTPStatus.CONFLICT,
    errors.VersionMismatch: HTTPStatus.PRECONDITION_FAILED,
    errors.Unauthenticated: HTTPStatus.UNAUTHORIZED,
    errors.AccessDenied: HTTPStatus.FORBIDDEN,
    errors.TooManyRequests: HTTPStatus.TOO_MANY_REQUESTS,
    errors.CursorGone: HTTPStatus.GONE,
    errors.ServerStopping: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.CircuitOpen: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.EnvironmentAway: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.StorageUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.StorageReplaced: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.SchemaOutdated: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.SchemaTooNew: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.WTBError: HTTPStatus.INTERNAL_SERVER_ERROR,
}
"""The status of an error is that of its nearest class in this table."""

_CODES = {
    HTTPStatus.NOT_FOUND: ("not-found", "this server has no such address; /openapi.json lists those of its API"),
    HTTPStatus.METHOD_NOT_ALLOWED: (
        "method-not-allowed",
        "this address takes other methods; the header Allow has them",
    ),
    HTTPStatus.BAD_REQUEST: ("bad-request", "the request cannot be read"),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ("body-too-large", "the body of the request is too large"),
    HTTPStatus.UNPROCESSABLE_ENTITY: ("invalid-input", "the request cannot be used"),
    HTTPStatus.INTERNAL_SERVER_ERROR: ("internal-error", "the server failed; its log says why"),
}

_OPEN = (CommandStatus.PENDING, CommandStatus.RUNNING)
_MAKING = (CommandKind.RUN_START, CommandKind.RUN_FORK, CommandKind.BATCH_START)
"""Commands that make the run or the batch that is their subject."""

_MASKER = Masker()
_logger = masked_logger(__name__)


def status_of(error: WTBError | type[WTBError]) -> HTTPStatus:
    """Return the HTTP status of an error."""
    kind = error if isinstance(error, type) else type(error)
    return next(STATUSES[base] for base in kind.__mro__ if base in STATUSES)


def code_of(kind: type[WTBError]) -> str:
    """Return the stable code of an error: the name of its class in kebab case."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower()


def problem_of(error: WTBError) -> Problem:
    """Return an error as the problem that a caller sees."""
    faults = getattr(error, "faults", None)
    return _problem(
        status_of(error),
        code_of(type(error)),
        _MASKER.text(str(error)),
        faults=None if faults is None else [_MASKER.text(str(fault)) for fault in faults],
        command=getattr(error, "command", None),
    )


def response_of(error: WTBError) -> Response:
    """Return the answer for an error."""
    headers = {}
    if isinstance(error, errors.Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, errors.TooManyRequests):
        headers["Retry-After"] = str(error.retry_after_s)
    return _response(problem_of(error), headers)


async def send_problem(error: WTBError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request or a WebSocket handshake with a problem, from outside of all routes."""
    await _send(response_of(error), scope, receive, send)


async def send_refusal(status: HTTPStatus, detail: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request that was not even read to its end, and close its connection."""
    await _send(_response(_of_status(status, detail), {"Connection": "close"}), scope, receive, send)


def answers(*kinds: type[WTBError]) -> dict[int | str, dict[str, Any]]:
    """Return the documentation of the problems that a route may answer with, for its argument `responses`."""
    found: dict[int | str, dict[str, Any]] = {}
    for kind in kinds:
        status = status_of(kind)
        known = found.get(status.value)
        codes = f"{known['description']}, `{code_of(kind)}`" if known else f"`{code_of(kind)}`"
        found[status.value] = {"description": codes, "content": {MEDIA_TYPE: {"schema": SCHEMA}}}
    return found


SCHEMA = {"$ref": "#/components/schemas/Problem"}


def add_handlers(app: FastAPI) -> None:
    """Let an app answer every error with a problem, also those that FastAPI raises itself."""
    app.add_exception_handler(WTBError, _own)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _foreign)


class LastResort:
    """Answers an error that nobody expected, logs it, and shows no stack trace. The outermost part of the app."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def sending(message: Any) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except ClientDisconnected:  # nobody is left to answer
            pass
        except Exception:  # logged with its traceback; the caller only learns that it happened
            _logger.exception("%s %s failed", scope.get("method", scope["type"]), scope.get("path", ""))
            if not has_begun and scope["type"] == "http":
                await _response(_of_status(HTTPStatus.INTERNAL_SERVER_ERROR))(scope, receive, send)


def _problem(status: HTTPStatus, code: str, detail: str, **more: Any) -> Problem:
    title = code.replace("-", " ").capitalize()
    return Problem(type=f"urn:wtb:problem:{code}", title=title, status=status.value, detail=detail, code=code, **more)


def _of_status(status: HTTPStatus, detail: str | None = None) -> Problem:
    code, usual = _CODES.get(status, (status.phrase.lower().replace(" ", "-"), status.description or status.phrase))
    return _problem(status, code, detail or usual)


def _response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    data = problem.model_dump(exclude_none=True)
    return JSONResponse(data, problem.status, headers=headers, media_type=MEDIA_TYPE)


async def _send(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    if _has_body(scope):
        response.headers["Connection"] = "close"  # or the server would go on to receive what nobody reads
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": ""})
        return
    await response(scope, receive, send)


def _has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


async def _own(request: Request, error: Exception) -> Response:
    assert isinstance(error, WTBError)
    if isinstance(error, errors.ExecutionNotFound | errors.BatchNotFound):
        return response_of(await run_in_threadpool(_not_begun, request, error))
    if status_of(error) == HTTPStatus.INTERNAL_SERVER_ERROR:
        _logger.error("%s %s failed: %s", request.method, request.url.path, error)
    return response_of(error)


def _not_begun(request: Request, error: WTBError) -> WTBError:
    """Return an error that names the command, if the run or the batch was accepted and has not begun."""
    name = getattr(error, "key", None)
    if not isinstance(name, str):
        return error
    commands: Commands = request.app.state.command_server.commands
    try:
        opened = commands.list_commands(statuses=_OPEN, kinds=_MAKING, subject=name, limit=1)
    except WTBError:  # the store is away by now
        return error
    for command in opened:
        address = f"/api/v1/commands/{command.id}"
        return error_with(
            type(error),
            f"{name!r} has not begun: command {command.id} is {command.status}; wait for it with GET "
            f"{address}?wait_s=30, or end it with POST {address}/cancel",
        )
    return error


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = [_MASKER.text(_fault(each)) for each in error.errors()]
    kind = errors.InvalidInput
    detail = f"the request cannot be used: {'; '.join(faults)}"
    return _response(_problem(status_of(kind), code_of(kind), detail, faults=faults))


def _fault(found: Mapping[str, Any]) -> str:
    """Return one thing that is wrong with a request, and where it is."""
    place, message = found["loc"], str(found["msg"]).removeprefix("Value error, ")
    if found["type"] == "json_invalid":
        return f"body: this is no JSON: {found['ctx']['error']} (character {place[-1]})"
    if place == ("body",) and found["type"] in ("missing", "model_attributes_type", "dict_type"):
        return "body: send a JSON object, with the header Content-Type: application/json"
    if found["type"] == "extra_forbidden":
        message = "there is no such field"
    return f"{'.'.join(map(str, place))}: {message}"


async def _foreign(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    headers = dict(error.headers or {})
    if status == HTTPStatus.METHOD_NOT_ALLOWED:  # Starlette names the methods of the first route with this path only
        headers["Allow"] = ", ".join(sorted(_methods(request)))
    return _response(_of_status(status), headers)


def _methods(request: Request) -> set[str]:
    found: set[str] = set()
    for route in request.app.routes:
        match, _ = route.matches(request.scope)
        if match is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return found
