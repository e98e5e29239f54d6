"""A kept virtual environment is used again only for the same interpreter in the same version."""

from __future__ import annotations

from pathlib import Path

import pytest

from wtb.application.dependencies import environment_parts
from wtb.domain.environment import EnvironmentConfig
from wtb.infrastructure.environments.virtual_environments import interpreter_for

PYTHON = """#!/bin/sh
case "$*" in
    *platform*) echo {version} ;;
    *venv*) for place; do :; done; mkdir -p "$place/bin"; echo {version} > "$place/version"; echo x >> {log} ;;
esac
"""
"""Says its version, and makes a folder instead of a virtual environment."""


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    installer = tmp_path / "tools" / "uv"
    installer.parent.mkdir()
    installer.write_text("#!/bin/sh\n")
    installer.chmod(0o755)
    monkeypatch.setenv("PATH", f"{installer.parent}:/usr/bin:/bin")
    return tmp_path / "python"


def install(python: Path, version: str) -> None:
    """Put an interpreter of this version at its place, as an upgrade does, and forget what was asked before."""
    python.write_text(PYTHON.format(version=version, log=python.with_name("log")))
    python.chmod(0o755)
    environment_parts.version_of.cache_clear()


def test_an_upgraded_interpreter_gets_a_new_environment_and_the_same_one_keeps_its_own(python: Path) -> None:
    config = EnvironmentConfig(kind="subprocess", python=str(python), packages=("attrs==25.1.0",))
    versions = []
    for version in ("3.11.1", "3.11.1", "3.12.0"):
        install(python, version)
        place = Path(interpreter_for(config, python.parent)).parents[1]
        versions.append((place / "version").read_text().strip())
    environment_parts.version_of.cache_clear()
    assert versions == ["3.11.1", "3.11.1", "3.12.0"]
    assert python.with_name("log").read_text() == "x\nx\n", "built twice"
