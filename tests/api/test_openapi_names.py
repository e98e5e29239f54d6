"""The OpenAPI description speaks with one voice, since clients are generated from its names."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.api.client import TestClient

VERBS = re.compile(
    "_(abandon|cancel|check|compare|continue|count|create|delete|diff|download|end|fork|get|judge|list|pause|plan|prune|"
    "redo|resume|retry|revoke|rollback|run|set|stop|summarise|test|verify)(_|$)"
)


@pytest.fixture
def description(viewer: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = viewer.get("/openapi.json").json()
    return found


@pytest.mark.parametrize("server_settings", ["sqlite"], indirect=True)
def test_an_operation_is_named_by_a_noun_and_a_verb_and_has_one_tag(description: dict[str, Any]) -> None:
    for methods in description["paths"].values():
        for operation in methods.values():
            name = operation["operationId"]
            assert VERBS.search(name), f"{name} has no verb"
            assert len(operation["tags"]) == 1, name
            assert operation["summary"], name


@pytest.mark.parametrize("server_settings", ["sqlite"], indirect=True)
def test_lists_are_alike_and_schemas_have_plain_names(description: dict[str, Any]) -> None:
    schemas = description["components"]["schemas"]
    for name, schema in schemas.items():
        assert re.fullmatch(r"[A-Z][A-Za-z]+", name), name
        if name.endswith("ListAnswer"):
            assert {"items", "next"} <= schema["properties"].keys(), name
    assert {"TokenListAnswer", "ExecutionListAnswer", "ToolUseListAnswer"} <= schemas.keys()
