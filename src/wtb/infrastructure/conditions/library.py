"""Imports the CEL library without the command line that comes with it."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

_COMMAND_LINE = "cel.cli"


def cel_library() -> Any:
    """Return the module `cel`.

    It imports its command line, and with it typer and prompt_toolkit: most of the 0.1 s that it takes to load. An empty
    module replaces the command line meanwhile; a later import of `cel.cli` gets the real one.
    """
    if "cel" in sys.modules:
        return import_module("cel")
    stand_in = sys.modules.setdefault(_COMMAND_LINE, ModuleType(_COMMAND_LINE))
    try:
        found = import_module("cel")
    finally:
        if sys.modules.get(_COMMAND_LINE) is stand_in:
            del sys.modules[_COMMAND_LINE]
    vars(found).pop("cli", None)
    return found
