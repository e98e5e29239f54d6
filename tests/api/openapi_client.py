"""A client made of an OpenAPI file alone: it knows no address, no method and no shape but what the file says."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import httpx
from jsonschema import Draft202012Validator


class OpenApiClient:
    """Calls operations by their ids, and checks every request and every answer against the file."""

    def __init__(self, http: httpx.Client, description: dict[str, Any]) -> None:
        self._http = http
        self._description = description
        self._operations = {
            operation["operationId"]: (method, path, operation)
            for path, item in description["paths"].items()
            for method, operation in item.items()
        }
        self.called: set[str] = set()

    def call(self, operation_id: str, body: Any = None, **parameters: Any) -> httpx.Response:
        """Send a request with these parameters, each where the file says: in the path, the query or a header."""
        method, path, operation = self._operations[operation_id]
        self.called.add(operation_id)
        places = {_argument(each["name"]): each for each in operation.get("parameters", [])}
        query: dict[str, str] = {}
        headers: dict[str, str] = {}
        for name, value in parameters.items():
            place = places[name]  # a parameter that the file does not know is an error of the caller
            if place["in"] == "path":
                path = path.replace("{" + place["name"] + "}", quote(str(value), safe=""))
            else:
                (query if place["in"] == "query" else headers)[place["name"]] = str(value)
        assert "{" not in path, f"{operation_id} needs {re.findall('{(.*?)}', path)}"
        if body is not None:
            self._check(operation["requestBody"]["content"]["application/json"]["schema"], body)
        response = self._http.request(method, path, params=query, headers=headers, json=body)
        self._check_answer(operation, response)
        return response

    def done(self, operation_id: str, body: Any = None, **parameters: Any) -> Any:
        """Call an operation that has to succeed, and return its answer."""
        response = self.call(operation_id, body, **parameters)
        assert response.is_success, response.text
        return response.json() if response.content else None

    def _check_answer(self, operation: dict[str, Any], response: httpx.Response) -> None:
        documented = operation["responses"][str(response.status_code)]
        if "content" not in documented:
            assert response.content == b""
            return
        kind = response.headers["content-type"].partition(";")[0]
        schema = documented["content"][kind].get("schema", {})
        if kind.endswith("json"):
            self._check(schema, response.json())

    def _check(self, schema: dict[str, Any], data: Any) -> None:
        whole = {**schema, "components": self._description["components"]}
        Draft202012Validator(whole).validate(data)


def _argument(name: str) -> str:
    return name.lower().replace("-", "_")
