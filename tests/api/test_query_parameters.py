"""A query parameter that a route does not know is refused, on every route."""

from __future__ import annotations

import re

from fastapi import FastAPI
from fastapi.routing import APIRoute

from tests.api.client import TestClient


def test_every_route_refuses_an_unknown_query_parameter_and_names_it(app: FastAPI, admin: TestClient) -> None:
    asked = 0
    for route in app.routes:
        if isinstance(route, APIRoute) and route.path.startswith("/api/"):
            path = re.sub(r"\{.*?\}", "x", route.path)
            for method in route.methods or ():
                answer = admin.request(method, path, params={"nonsense": "1"}, json={})
                assert (answer.status_code, answer.json()["code"]) == (422, "invalid-input"), (method, path)
                assert "'nonsense'" in answer.json()["detail"]
                asked += 1
    assert asked > 80


def test_a_typo_in_a_filter_gets_the_name_that_was_meant(viewer: TestClient) -> None:
    answer = viewer.get("/api/v1/executions", params={"statu": "failed", "limit": "5"})
    assert answer.status_code == 422
    assert answer.json()["detail"] == ("this address does not know the query parameter 'statu'; did you mean 'status'?")
    far = viewer.get("/api/v1/executions/x/branches", params={"q": "1", "r": "2"})
    assert far.json()["detail"] == "this address does not know the query parameters 'q', 'r'; it takes none"
