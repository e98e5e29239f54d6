"""The project folder on a Ray cluster: copied to its workers without what is ignored, if it is not too large."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pathspec import GitIgnoreSpec

from wtb.domain.errors import InvalidInput

MOST_BYTES = 100_000_000
_NEVER = (".git/", ".venv/", "venv/", ".wtb/", "__pycache__/", "node_modules/", ".mypy_cache/", ".pytest_cache/")
_RULES = (".gitignore", ".rayignore")


def project_runtime(folder: Path) -> dict[str, Any]:
    """Return the part of Ray's `runtime_env` that copies a folder; raise InvalidInput if the folder is too large."""
    rules = _rules(folder)
    sizes = _sizes(folder, GitIgnoreSpec.from_lines(rules))
    total = sum(sizes.values())
    if total > MOST_BYTES:
        largest = ", ".join(f"{name} ({size / 1e6:,.0f} MB)" for name, size in sizes.most_common(3))
        raise InvalidInput(
            f"{folder} has {total / 1e6:,.0f} MB, and at most {MOST_BYTES / 1e6:,.0f} MB are copied to the workers of "
            f"a cluster. The largest parts are {largest}. Name what workers do not need in .rayignore (written like "
            ".gitignore), or start the batch in a smaller folder"
        )
    return {"working_dir": str(folder), "excludes": rules}


def go_to_project(folder: str, path: Sequence[str]) -> Path | None:
    """Work in the project folder, in a process on Ray: in Ray's copy, which is returned, or else in the folder itself.

    `path` is where the process that started the work looks for modules.
    """
    import ray

    if ray.get_runtime_context().runtime_env.get("working_dir"):
        return Path.cwd()  # Ray has made the copy and has gone there
    os.chdir(folder)
    sys.path[:] = [*path, *(each for each in sys.path if each not in path)]
    return None


def _rules(folder: Path) -> list[str]:
    rules = list(_NEVER)
    for name in _RULES:
        file = folder / name
        if file.is_file():
            lines = file.read_text(errors="replace").splitlines()
            rules += [line for line in lines if line.strip() and not line.startswith("#")]
    return rules


def _sizes(folder: Path, ignored: GitIgnoreSpec) -> Counter[str]:
    """Return the size of each file and folder at the top, without what is ignored."""
    sizes = Counter[str]()
    for here, folders, files in os.walk(folder):
        place = Path(here).relative_to(folder)
        folders[:] = [name for name in folders if not ignored.match_file(f"{(place / name).as_posix()}/")]
        for name in files:
            path = place / name
            if not ignored.match_file(path.as_posix()):
                with suppress(OSError):  # it was there a moment ago
                    sizes[path.parts[0]] += (folder / path).lstat().st_size
    return sizes
