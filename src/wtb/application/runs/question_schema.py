"""Checks a person's answer against the schema of the question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.domain.errors import InvalidInput


def check_schema(schema: Any) -> None:
    """Raise InvalidInput unless this is a list of answers, a JSON schema, or None."""
    if schema is None or isinstance(schema, list):
        return
    if not isinstance(schema, Mapping):
        raise InvalidInput(f"the schema of a question is a list of answers or a JSON schema, not {schema!r}")
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(dict(schema))
    except SchemaError as error:
        raise InvalidInput(f"the schema of a question is not a JSON schema: {error.message}") from error


def check_answer(question: str, schema: Any, answer: Any) -> None:
    """Raise InvalidInput unless the answer fits the question."""
    if schema is None:
        return
    if isinstance(schema, list):
        if answer not in schema:
            choices = ", ".join(map(str, schema))
            raise InvalidInput(f"{answer!r} does not answer {question!r}; answer one of {choices}")
        return
    from jsonschema import Draft202012Validator
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:  # with the default registry, a `$ref` to an address would be fetched from the network
        faults = sorted(Draft202012Validator(schema, registry=Registry()).iter_errors(answer), key=str)
    except Unresolvable as error:
        raise InvalidInput(f"the schema of {question!r} refers to {error.ref}, which it does not hold") from error
    if faults:
        faults_text = "; ".join(f"{fault.json_path}: {fault.message}" for fault in faults)
        raise InvalidInput(f"{answer!r} does not answer {question!r}: {faults_text}")
