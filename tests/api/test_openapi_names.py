"""The OpenAPI description speaks with one voice, since clients are generated from its names."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

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
def test_parameters_and_fields_of_requests_are_described_and_bodies_have_an_example(
    description: dict[str, Any],
) -> None:
    bodies: set[str] = set()
    for methods in description["paths"].values():
        for operation in methods.values():
            for parameter in operation.get("parameters", []):
                assert parameter.get("description"), (operation["operationId"], parameter["name"])
            bodies |= _schemas_in(operation.get("requestBody", {}))
    schemas = description["components"]["schemas"]
    for name in bodies:
        assert schemas[name].get("examples"), name
    wanted = list(bodies)
    for name in wanted:  # it grows
        for field, schema in schemas[name].get("properties", {}).items():
            assert "description" in json.dumps(schema), (name, field)
            wanted += _schemas_in(schema) - set(wanted)
    assert {"StartRequest", "BatchOptions", "NewToken"} <= set(wanted)


@pytest.mark.parametrize("server_settings", ["sqlite"], indirect=True)
def test_answers_have_examples_and_every_example_fits_its_schema(description: dict[str, Any]) -> None:
    schemas, checked = description["components"]["schemas"], 0
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            for status, answer in operation["responses"].items():
                content = answer.get("content", {}).get("application/json")
                if status.startswith("2") and content is not None:
                    assert _has_example(content["schema"], schemas), (method, path)
                    checked += 1
    assert checked > 70
    for name, schema in schemas.items():
        for example in schema.get("examples", []):
            whole = {"$ref": f"#/components/schemas/{name}", "components": description["components"]}
            faults = [fault.message for fault in Draft202012Validator(whole).iter_errors(example)]
            assert faults == [], (name, faults)


def _has_example(schema: dict[str, Any], schemas: dict[str, Any]) -> bool:
    """Whether a schema shows what its values look like, itself or in a part."""
    wanted, seen = [schema], set[str]()
    for each in wanted:  # it grows
        if each.keys() & {"example", "examples", "enum", "const"}:
            return True
        new = _schemas_in(each) - seen
        seen |= new
        wanted += [*each.get("properties", {}).values(), *(schemas[name] for name in new)]
    return False


def _schemas_in(data: Any) -> set[str]:
    """Return the names of the schemas that a piece of the description refers to."""
    return set(re.findall('"#/components/schemas/([A-Za-z]+)"', json.dumps(data)))


@pytest.mark.parametrize("server_settings", ["sqlite"], indirect=True)
def test_lists_are_alike_and_schemas_have_plain_names(description: dict[str, Any]) -> None:
    schemas = description["components"]["schemas"]
    for name, schema in schemas.items():
        assert re.fullmatch(r"[A-Z][A-Za-z]+", name), name
        if name.endswith("ListAnswer"):
            assert {"items", "next"} <= schema["properties"].keys(), name
    assert {"TokenListAnswer", "ExecutionListAnswer", "ToolUseListAnswer"} <= schemas.keys()
