"""The progress of an unfinished rollback or redo, for `wtb show`, `rollback` and `redo`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wtb.application.queries.views import RunView
from wtb.domain.checkpoint import Checkpoint
from wtb.domain.rollback import RollbackDirection
from wtb.domain.tools import ToolCall

_LONGEST = 60
"""Longest argument, in characters, that people see."""


def half_done(view: RunView) -> dict[str, Any] | None:
    """Return, for programs, the calls done and left; None if no rollback or redo is unfinished."""
    waiting = view.rollback
    if waiting is None:
        return None
    return {
        "direction": waiting.journal.direction.value,
        "to": waiting.journal.target_id,
        "error": waiting.journal.error,
        "done": [call_row(call) for call in waiting.done],
        "left": [call_row(call) for call in waiting.left],
    }


def ways_on(view: RunView) -> str:
    """Return the same for people, with the commands that finish it or give it up."""
    waiting = view.rollback
    if waiting is None:
        return f"Its rollback has just ended: `wtb show {view.id}` shows how."
    if waiting.journal.direction is RollbackDirection.TAKE_BACK:
        return calls_left(view)
    is_rollback = waiting.journal.direction is RollbackDirection.ROLLBACK
    verb, noun = ("undone", "rollback") if is_rollback else ("repeated", "redo")
    why = waiting.journal.error or "its process is still working on it, or was killed"
    stays = "undone calls stay undone" if is_rollback else "repeated calls are undone again"
    return "\n".join(
        [
            f"unfinished {noun} to {place_of(waiting.target)}: {why}.",
            *listed(f"Already {verb}", waiting.done),
            *listed("Left to do", waiting.left),
            f"Finish it with `wtb rollback {view.id} --continue`, or give it up with "
            f"`wtb rollback {view.id} --abandon`: then {stays}, and the run stays where it is.",
        ]
    )


def calls_left(view: RunView) -> str:
    """Return, for people, the calls of a run that are still to be taken back; empty if there are none."""
    waiting = view.rollback
    if waiting is None or waiting.journal.direction is not RollbackDirection.TAKE_BACK:
        return ""
    why = waiting.journal.error or "its process is still working on it, or was killed"
    return "\n".join(
        [
            f"Its external calls are not taken back: {why}.",
            *listed("Already taken back", waiting.done),
            *listed("Left to take back", waiting.left),
            f"Run its batch again, or use `wtb rollback {view.id} --continue`. To keep these calls, use "
            f"`wtb rollback {view.id} --abandon`.",
        ]
    )


def place_of(checkpoint: Checkpoint) -> str:
    """Return a checkpoint's name, step and node for people."""
    where = "inside" if checkpoint.is_inside else "after"
    node = f" {where} {checkpoint.node}#{checkpoint.visit}" if checkpoint.node else ""
    name = f"{checkpoint.name!r}, " if checkpoint.name else ""
    return f"{name}step {checkpoint.step}{node}"


def listed(heading: str, calls: Sequence[ToolCall]) -> list[str]:
    """Return calls as lines under a heading; an empty list if there are none."""
    return [f"{heading}:", *(f"  {call_text(call)}" for call in calls)] if calls else []


def call_text(call: ToolCall) -> str:
    """Return a call as Python would write it."""
    return f"{call.tool}({', '.join(f'{name}={_short(value)}' for name, value in call.arguments.items())})"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def call_row(call: ToolCall) -> dict[str, Any]:
    """Return a call for programs."""
    return {"tool": call.tool, "arguments": dict(call.arguments), "status": call.status.value, "call": call.identity}
