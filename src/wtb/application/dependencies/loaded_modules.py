"""LoadedModules: finds the modules of this process that may hold the user's code among thousands of library modules."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from wtb.application.dependencies.own_code import held_by


class LoadedModules:
    """Lists the loaded modules whose file passes a test.

    Every run asks, so the loop over all modules does next to nothing. It remembers only the names of files that failed
    the test, never a module: a module that was loaded later, replaced, reloaded or moved is seen at once.
    """

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        self._wanted = wanted
        self._refused: set[object] = {None}

    def now(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the name and the contents of each module that passes, in the order in which they were loaded."""
        refused = self._refused
        left = [
            (name, held)
            for name, module in list(sys.modules.items())
            if (held := module.__dict__ if type(module) is ModuleType else held_by(module)).get("__file__")
            not in refused
        ]
        return [(name, held) for name, held in left if self._passes(held["__file__"])]

    def _passes(self, file: object) -> bool:
        if isinstance(file, str) and self._wanted(file):
            return True
        # The meaning of a relative name changes with the working folder.
        if not isinstance(file, str) or file.startswith("/"):
            self._refused.add(file)
        return False
