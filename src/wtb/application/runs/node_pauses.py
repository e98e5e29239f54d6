"""The pauses in which a node run may end, each with the reason or the question that a person sees."""

from __future__ import annotations

from wtb.application.runs.callers_loop import LoopGone
from wtb.application.runs.journal import Asked, InDoubt
from wtb.domain.checkpoint import NodeRun
from wtb.domain.execution import Pause, PauseKind
from wtb.domain.workflow import Node


def asks(run: NodeRun, asked: Asked) -> Pause:
    """Return the pause of a node that asks a person."""
    question = {**asked.call.arguments, "identity": asked.call.identity}
    return Pause(reason="question", kind=PauseKind.QUESTION, node=run.node, question=question)


def cut_off(gone: LoopGone, node: str | None = None) -> Pause:
    """Return the pause of a run whose event loop did not finish a coroutine."""
    return Pause(reason=str(gone), kind=PauseKind.REQUESTED, node=node)


def in_doubt(run: NodeRun, doubt: InDoubt) -> Pause:
    """Return the pause of a node with a call of which nobody knows whether it happened."""
    call = doubt.call
    return Pause(
        reason="in doubt",
        kind=PauseKind.IN_DOUBT,
        node=run.node,
        question={
            "question": f"{call.tool}({call.arguments}) began at {call.started_at:%H:%M:%S} UTC and never reported "
            "back. Did it happen? Answer `again` to call it again, or `done` (with its result) to continue.",
            "identity": call.identity,
        },
    )


def diverged(node: Node, tools: list[str]) -> Pause:
    """Return the pause of a node that ran again and left out calls which it had made."""
    return Pause(
        reason=f"node {node.name!r} ran again and did not ask for {', '.join(tools)}, which an earlier attempt "
        "called; resume with rerun_node=True to undo what can be undone and start the node over",
        kind=PauseKind.CALLS_DIFFER,
        node=node.name,
    )


def lost_calls(node: Node, tools: list[str]) -> Pause:
    """Return the pause of a node that ran again and left out calls which the database has lost."""
    return Pause(
        reason=f"the database lost its end, where node {node.name!r} had called {', '.join(tools)}. The node ran again "
        "and did not ask for that. Find out whether it happened, then resume with rerun_node=True to start the node "
        "over",
        kind=PauseKind.CALLS_DIFFER,
        node=node.name,
    )
