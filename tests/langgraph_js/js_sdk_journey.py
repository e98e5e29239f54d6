"""LangGraph's JavaScript SDK against a real server. `make soak-langgraph-js` runs it: it needs node and npm."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.api.conftest import server_settings, services  # noqa: F401  fixtures
from tests.api.langgraph_project import serving_graphs
from wtb.bootstrap import Services

INSTALLED = Path(__file__).parents[2] / "build" / "langgraph-js"


def test_a_program_in_javascript_streams_forks_asks_and_finds(
    empty_folder: Path,
    services: Services,  # noqa: F811
) -> None:
    if not (INSTALLED / "node_modules").is_dir():
        pytest.fail("the JavaScript SDK is not installed; `make soak-langgraph-js` does it")
    with serving_graphs(empty_folder, services) as project:
        named = {"WTB_URL": project.url, "WTB_TOKEN": project.token()}
        done = subprocess.run(
            ["node", "client.mjs"],
            cwd=INSTALLED,
            env={**os.environ, **named},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr
