"""Writes the description of the API: `python -m scripts.openapi FILE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from wtb.api.app import create_app
from wtb.api.parts import ServerParts
from wtb.bootstrap import bootstrap
from wtb.settings import Settings


def description() -> dict[str, object]:
    """Return the OpenAPI description of a server, which needs no database of anybody."""
    with TemporaryDirectory() as folder, bootstrap(Settings(folder=Path(folder))) as services:
        schema: dict[str, object] = create_app(ServerParts(services=services)).openapi_schema or {}
        return schema


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(description(), indent=1))
