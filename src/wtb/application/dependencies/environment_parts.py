"""What a node's result depends on in its environment: interpreter, packages, values of variables, folder."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import subprocess
from typing import Any

from wtb.domain.environment import EnvironmentConfig
from wtb.domain.secrets import Secret

_ENOUGH_S = 60.0


def environment_parts(config: EnvironmentConfig | None) -> dict[str, Any]:
    """Return the parts by name; empty for a node that runs in this process. Limits do not change a result."""
    if config is None or config.is_in_process:
        return {}
    python = platform.python_version() if config.python is None else version_of(config.python)
    return {
        "the kind of its environment": config.kind,
        "the Python of its environment": (config.python, python),
        "the packages of its environment": tuple(sorted(config.packages)),
        "the folder that it works in": config.working_folder,
    } | {f"the variable {name} of its environment": _digest(config, name) for name in sorted(config.variables)}


def _digest(config: EnvironmentConfig, name: str) -> str | None:
    """Return the digest of a variable's value, which may be secret."""
    value = config.variables[name]
    text = value.reveal() if isinstance(value, Secret) else os.environ.get(name) if value is None else value
    return None if text is None else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@functools.cache
def version_of(python: str) -> str | None:
    """Return the version of an interpreter; None if it cannot be asked, which is reported when the node runs."""
    show = "import platform; print(platform.python_version())"
    try:
        done = subprocess.run([python, "-c", show], capture_output=True, text=True, timeout=_ENOUGH_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
