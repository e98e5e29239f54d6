"""The functions `tool`, `reversible` and `workspace`: they declare tools, and return the folder of a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, overload

from wtb.application.runs.engine_context import current, may_be_in_node
from wtb.application.tool_registry import TOOLS
from wtb.domain.errors import InvalidInput
from wtb.domain.secrets import masked_logger
from wtb.domain.tools import Effects, Tool, ToolSpec
from wtb.settings import load_settings

_log = masked_logger(__name__)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    effects: str = "external",
    reverse: Callable[..., Any] | None = None,
    reverse_in_doubt: bool = False,
    idempotent: bool = False,
    confirm: Callable[..., Any] | None = None,
    limit: str | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    effects: str = "external",
    reverse: Callable[..., Any] | None = None,
    reverse_in_doubt: bool = False,
    idempotent: bool = False,
    confirm: Callable[..., Any] | None = None,
    limit: str | None = None,
) -> Any:
    """Make a function a tool, which nodes call with `ctx.tool`, by name or directly.

    - `effects`: what it touches: `none`, `workspace` (files in the workspace) or `external` (the outside world).
    - `reverse`: a function, sync or async, that undoes a call; it gets the recorded call.
    - `reverse_in_doubt`: if it is unknown whether a call happened, undo it and call again.
    - `idempotent`: the tool may be called again; if it takes `idempotency_key`, it gets the same key each time.
    - `confirm`: a function that gets a call whose outcome is unknown, and returns its result, or None if it did not
      happen.
    - `limit`: the name of a limit, such as `openai`: each call holds one of its slots. The batch or the settings say
      how many there are.
    """

    rules: dict[str, Any] = {
        "reverse": reverse,
        "reverse_in_doubt": reverse_in_doubt,
        "idempotent": idempotent,
        "confirm": confirm,
        "limit": limit,
    }

    def register(function: Callable[..., Any]) -> Tool:
        return TOOLS.add(tool_of(function, name=name or function.__name__, effects=effects, **rules))

    return register if function is None else register(function)


def reversible(function: Any, /, *, reverse: Callable[..., Any], **rules: Any) -> Any:
    """Return a function, or a LangChain tool, as a tool that a rollback undoes with `reverse(call)`.

    The other options are those of `tool`.
    """
    if inspect.isroutine(function):
        return tool(reverse=reverse, **rules)(function)
    from wtb import langgraph

    return langgraph.reversible(function, reverse=reverse, **rules)


def tool_of(
    function: Callable[..., Any],
    *,
    name: str,
    effects: str,
    reverse: Callable[..., Any] | None = None,
    reverse_in_doubt: bool = False,
    idempotent: bool = False,
    confirm: Callable[..., Any] | None = None,
    limit: str | None = None,
) -> Tool:
    """Return a function as a tool, as `tool` does, but without registering its name."""
    spec = ToolSpec(
        name=name,
        effects=_effects(effects),
        reversible=reverse is not None,
        reverse_in_doubt=reverse_in_doubt,
        idempotent=idempotent,
        confirmable=confirm is not None,
    )
    takes_key = idempotent and "idempotency_key" in inspect.signature(function).parameters
    made = Tool(spec=spec, function=function, reverse=reverse, confirm=confirm, takes_key=takes_key, limit=limit)
    # Like `functools.wraps`, for a frozen value: help() and inspect show the function.
    made.__dict__.update(__name__=spec.name, __doc__=function.__doc__, __wrapped__=function)
    return made


def _effects(effects: str) -> Effects:
    try:
        return Effects(effects)
    except ValueError:
        known = ", ".join(Effects)
        raise InvalidInput(f"effects={effects!r} is unknown; a tool's effects are one of {known}") from None


def workspace() -> Path:
    """Return the run's versioned folder; call it inside a node.

    Outside a run, as when you invoke a graph yourself, it is an ordinary folder: the setting `workspace_fallback`.
    """
    return current().workspace if may_be_in_node() else _folder_outside(load_settings().outside_folder)


@cache
def _folder_outside(folder: Path) -> Path:
    """Create the folder for code outside a run, and log a warning once."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    _log.warning("wtb.workspace() was called outside a run: its files are in %s, and are not versioned", folder)
    return folder
