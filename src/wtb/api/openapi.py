"""The OpenAPI description: what FastAPI derives from the routes, with our problems and our ways to sign in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from wtb.api.access import RoleCheck
from wtb.api.models.problems import Problem
from wtb.api.problems import MEDIA_TYPE, SCHEMA
from wtb.domain.access import Role

_EVERYWHERE = {
    "400": "The request cannot be read.",
    "401": "`unauthenticated`",
    "403": "`forbidden`",
    "413": "`body-too-large`",
    "422": "`invalid-input`",
    "429": "`too-many-requests`",
    "500": "`internal-error`",
    "503": "The database is away, its tables have changed, or too many clients are connected.",
}
"""Problems that the server answers to any request."""


_LIST = re.compile(r"\bListAnswer[_[](\w+?)(?:Row)?(?:Answer)?[]_](?=\")")


def role_of(route: BaseRoute) -> Role | None:
    """Return the role that a route needs; None if it declares none."""
    return next(_roles(route.dependant), None) if hasattr(route, "dependant") else None


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI description of an app."""
    data = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components = data.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    cookie = {"type": "apiKey", "in": "cookie", "name": app.state.parts.cookie}
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}, "session": cookie}
    for route in app.routes:
        if isinstance(route, APIRoute) and route.include_in_schema:
            for method in route.methods or ():
                _complete(data["paths"][route.path_format][method.lower()], role_of(route))
    return _with_list_names(data)


def _with_list_names(data: dict[str, Any]) -> dict[str, Any]:
    """Return the description with TokenListAnswer for the name that pydantic gives, ListAnswer_TokenAnswer_."""
    named: dict[str, Any] = json.loads(_LIST.sub(r"\1ListAnswer", json.dumps(data)))
    return named


def _complete(operation: dict[str, Any], role: Role | None) -> None:
    operation["security"] = [] if role is None else [{"token": []}, {"session": []}]
    if role is not None:
        operation["x-role"] = role.value
    answers = operation["responses"]
    if answers.get("422", {}).get("content", {}).keys() == {"application/json"}:
        del answers["422"]  # FastAPI's own shape, which we never send
    for status, description in _EVERYWHERE.items():
        answers.setdefault(status, {"description": description, "content": {MEDIA_TYPE: {"schema": SCHEMA}}})


def _roles(dependant: Dependant) -> Iterator[Role]:
    for found in dependant.dependencies:
        if isinstance(found.call, RoleCheck):
            yield found.call.role
        yield from _roles(found)
