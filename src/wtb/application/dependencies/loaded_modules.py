"""LoadedModules: finds the modules of this process that may hold the user's code among thousands of library modules."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from wtb.application.dependencies.own_code import held_by


class LoadedModules:
    """Lists the loaded modules whose file passes a test.

    Every run asks, so the loop over all modules does next to nothing. It remembers how the test ended for each file,
    never a module: a module that was loaded later, replaced, reloaded or moved is seen at once.
    """

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        self._wanted = wanted
        self._verdicts: dict[object, bool] = {None: False}

    def now(self) -> list[dict[str, Any]]:
        """Return the contents of each module that passes, in the order in which they were loaded."""
        # No tuples of names and modules: thousands of new objects would make Python collect garbage every time.
        verdict = self._verdicts.get
        left = [
            held
            for module in list(sys.modules.values())
            if verdict(
                (held := module.__dict__ if type(module) is ModuleType else held_by(module)).get("__file__"), True
            )
        ]
        return [held for held in left if verdict(file := held["__file__"]) or self._passes(file)]

    def _passes(self, file: object) -> bool:
        passes = isinstance(file, str) and self._wanted(file)
        # The meaning of a relative name changes with the working folder.
        if not isinstance(file, str) or file.startswith("/"):
            self._verdicts[file] = passes
        return passes
