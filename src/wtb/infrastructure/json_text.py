"""JSON texts: as stored (the same ASCII text for equal data, which every database keeps unchanged), and from people."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from wtb.domain.errors import InvalidInput
from wtb.domain.ids import WorkflowId

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def json_text(value: Any, what: str) -> str:
    """Return plain data as text, or raise InvalidInput that names the data that is not plain."""
    if value == {}:
        return "{}"
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{what} must be plain JSON: {error}") from error


def read_json(text: str, what: str) -> Any:
    """Return the data of a JSON text from a person, or raise InvalidInput that says what is wrong with it."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise InvalidInput(f"{what} is nested too deeply; make it flatter") from error
    except ValueError as error:
        if "integer string conversion" in str(error):
            raise InvalidInput(f"{what} holds an integer with too many digits; give it as a text") from error
        raise InvalidInput(f"{what} is not valid JSON: {error}") from error


def workflow_id_of(definition_text: str) -> WorkflowId:
    """Return the id of a workflow definition: a hash of its text."""
    return WorkflowId(hashlib.sha256(definition_text.encode()).hexdigest()[:32])
