"""Builds the virtual environments of nodes that declare packages, and keeps them for the same list."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from wtb.application.dependencies.environment_parts import version_of
from wtb.domain.environment import EnvironmentConfig
from wtb.domain.errors import EnvironmentFailed

_READY = "wtb-ready"
_ENOUGH = 2_000
"""How many characters of an installer's output an error shows."""


def interpreter_for(config: EnvironmentConfig, home: Path) -> str:
    """Return the interpreter of an environment; install its packages first if nobody has done that before."""
    python = config.python or sys.executable
    if shutil.which(python) is None:
        raise EnvironmentFailed(f"there is no Python interpreter {python}; give the path of one as python=")
    return str(_built(python, config.packages, home / "environments")) if config.packages else python


def _built(python: str, packages: tuple[str, ...], folder: Path) -> Path:
    """Return the interpreter of the virtual environment for a list of packages.

    A lock keeps two processes from building the same one. A folder without the mark is the rest of a build that was
    interrupted, and is built anew.
    """
    digest = hashlib.sha256(json.dumps([python, version_of(python), *sorted(packages)]).encode()).hexdigest()[:16]
    place = folder / digest
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{digest}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / _READY).exists():
            shutil.rmtree(place, ignore_errors=True)
            _run([python, "-m", "venv", "--without-pip", str(place)], "the virtual environment")
            _run([*_installer(place), *packages], ", ".join(packages))
            (place / _READY).touch()
    return place / "bin" / "python"


def _installer(place: Path) -> list[str]:
    """Return the command that installs packages: uv if it is there, else the pip of this process."""
    python = str(place / "bin" / "python")
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--quiet", "--python", python]
    if importlib.util.find_spec("pip") is None:
        raise EnvironmentFailed("packages= needs pip or uv, and neither is installed here: install one of them")
    return [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check"]


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": ""})
    if done.returncode != 0:
        raise EnvironmentFailed(f"{what} could not be installed for an environment:\n{done.stderr[-_ENOUGH:]}")
