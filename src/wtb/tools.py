"""@tool, reversible and workspace: the functions that nodes call, and the versioned folder that they work in."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, overload

from wtb.application.runs.context import current
from wtb.application.tool_registry import TOOLS
from wtb.domain.errors import InvalidInput
from wtb.domain.tools import Effects, Tool, ToolSpec


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
) -> Any:
    """Make a function a tool that nodes call through `ctx.tool`, by name or as it is.

    `effects` is `none`, `workspace` or `external`; `reverse(call)` undoes a call, `confirm(call)` says whether a
    call whose fate is unknown happened; an idempotent tool that takes `idempotency_key` is given one.
    """

    rules: dict[str, Any] = {
        "reverse": reverse,
        "reverse_in_doubt": reverse_in_doubt,
        "idempotent": idempotent,
        "confirm": confirm,
    }

    def register(function: Callable[..., Any]) -> Tool:
        return TOOLS.add(tool_of(function, name=name or function.__name__, effects=effects, **rules))

    return register if function is None else register(function)


def reversible(function: Any, /, *, reverse: Callable[..., Any], **rules: Any) -> Any:
    """Return a function as a tool, or a LangChain tool, that a rollback takes back with `reverse(call)`.

    The other rules are those of `tool`.
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
) -> Tool:
    """Return a function as a tool, as `tool` does, that nobody finds by its name."""
    spec = ToolSpec(
        name=name,
        effects=_effects(effects),
        reversible=reverse is not None,
        reverse_in_doubt=reverse_in_doubt,
        idempotent=idempotent,
        confirmable=confirm is not None,
    )
    takes_key = idempotent and "idempotency_key" in inspect.signature(function).parameters
    made = Tool(spec=spec, function=function, reverse=reverse, confirm=confirm, takes_key=takes_key)
    # What `functools.wraps` would do, for a frozen value: help() and inspect see the function.
    made.__dict__.update(__name__=spec.name, __doc__=function.__doc__, __wrapped__=function)
    return made


def _effects(effects: str) -> Effects:
    try:
        return Effects(effects)
    except ValueError:
        known = ", ".join(Effects)
        raise InvalidInput(f"effects={effects!r} is unknown; a tool's effects are one of {known}") from None


def workspace() -> Path:
    """Return the versioned folder of the run, in the node that runs here."""
    return current().workspace
