"""How far a rollback has come that waits in the middle, for `wtb show`, `rollback` and `redo`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wtb.domain.checkpoint import Checkpoint
from wtb.domain.rollback import Direction, Rollback
from wtb.domain.tools import ToolCall
from wtb.runs import Run

_LONGEST = 60
"""Characters of an argument that a person is shown."""


def half_done(run: Run) -> dict[str, Any] | None:
    """Return what was undone (or done again) and what is left, for programs; None when nothing waits."""
    journal = _open(run)
    if journal is None:
        return None
    done, left = journal.progress(run.calls)
    return {
        "direction": journal.direction.value,
        "to": journal.target_id,
        "error": journal.error,
        "done": [call_row(call) for call in done],
        "left": [call_row(call) for call in left],
    }


def ways_on(run: Run) -> str:
    """Return the same for people, with the two ways on."""
    journal = _open(run)
    if journal is None:
        return f"Its rollback has ended in this moment: `wtb show {run.id}` tells how."
    done, left = journal.progress(run.calls)
    target = next(checkpoint for checkpoint in run.history.checkpoints if checkpoint.id == journal.target_id)
    verb, noun = ("undone", "rollback") if journal.direction is Direction.ROLLBACK else ("made again", "redo")
    why = journal.error or "its process is at it, or was killed"
    stays = "what was undone stays so" if journal.direction is Direction.ROLLBACK else "what was made again is undone"
    return "\n".join(
        [
            f"in the middle of a {noun} to {place_of(target)}: {why}.",
            *listed(f"Already {verb}", done),
            *listed("Left to do", left),
            f"Go on with `wtb rollback {run.id} --continue`, or give it up with `wtb rollback {run.id} --abandon`: "
            f"{stays}, and the run stays where it is.",
        ]
    )


def place_of(checkpoint: Checkpoint) -> str:
    """Return what a checkpoint is called by people."""
    where = "inside" if checkpoint.is_inside else "after"
    node = f" {where} {checkpoint.node}#{checkpoint.visit}" if checkpoint.node else ""
    name = f"{checkpoint.name!r}, " if checkpoint.name else ""
    return f"{name}step {checkpoint.step}{node}"


def _open(run: Run) -> Rollback | None:
    return next((journal for journal in reversed(run.rollbacks) if journal.is_open), None)


def listed(heading: str, calls: Sequence[ToolCall]) -> list[str]:
    """Return calls as lines under a heading; nothing when there are none."""
    return [f"{heading}:", *(f"  {said(call)}" for call in calls)] if calls else []


def said(call: ToolCall) -> str:
    """Return a call as a person would write it."""
    return f"{call.tool}({', '.join(f'{name}={_short(value)}' for name, value in call.arguments.items())})"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def call_row(call: ToolCall) -> dict[str, Any]:
    """Return a call for programs."""
    return {"tool": call.tool, "arguments": dict(call.arguments), "status": call.status.value, "call": call.identity}
