"""Questions to the person: what a change would do, in words. They cannot be confirmed blind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_FEW = 15
_LONGEST = 600


def rollback_question(run: str, plan: Mapping[str, Any]) -> str:
    """Say what a rollback undoes, which calls it reverses, which files it changes, and what cannot be undone."""
    target, files = plan["target"], plan["files"]
    after = "" if target["node"] is None else f", after node {target['node']}"
    return _lines(
        f"Roll run {run} back to step {target['step']}{after}?",
        f"Checkpoints left behind: {plan['checkpoints']}",
        _listed("Nodes undone, newest first", plan["nodes"]),
        _listed("Calls reversed, in this order", _calls(plan["reverse"])),
        _listed("Calls that CANNOT be undone, and whose effects stay", _calls(plan["irreversible"])),
        _listed("Calls that are kept", _calls(plan["kept"])),
        _listed("Files put back", files["put"]),
        _listed("Files removed", files["removed"]),
        "Nothing is deleted: a safety checkpoint comes first, and `wtb redo` goes forward again.",
    )


def fork_question(run: str, target: str | int | None, **changes: Any) -> str:
    """Say where a fork begins, and what is different in it."""
    place = "its last checkpoint" if target is None else f"checkpoint {target}"
    return _lines(
        f"Make a new run from {place} of run {run}? The run itself stays as it is.",
        *(f"With other {name}: {_short(value)}" for name, value in changes.items() if value),
    )


def resume_question(run: Mapping[str, Any], changes: Mapping[str, Any]) -> str:
    """Say where a run continues, and with what."""
    pause, failure = run["pause"], run["failure"]
    why = pause["reason"] if pause else failure["message"] if failure else "not begun"
    asks = {key: each for key, each in ((pause or {}).get("question") or {}).items() if key != "identity"}
    return _lines(
        f"Continue run {run['id']} of workflow {run['workflow']}, which is {run['status']} ({why})?",
        _listed("Next nodes", run["current_nodes"]),
        f"It asks: {_short(asks)}" if asks else None,
        *(f"With {name}: {_short(value)}" for name, value in changes.items() if value is not None),
        "Its nodes run with the code as it is now, and may call models and tools.",
    )


def start_question(workflow: str, given: Mapping[str, Any] | None, options: Mapping[str, Any] | None) -> str:
    """Say what a new run begins with."""
    return _lines(
        f"Start a run of workflow {workflow}?",
        f"Input: {_short(given or {})}",
        f"Options: {_short(options)}" if options else None,
        "Its nodes run with the code as it is now, and may call models and tools.",
    )


def batch_question(name: str, plan: Mapping[str, Any], before: Mapping[str, Any] | None, budget: Any) -> str:
    """Say how many jobs a batch runs, what that may cost, and what it calls."""
    nodes = plan["node_runs"]
    return _lines(
        f"Run batch {name}: {plan['jobs']} jobs, of which {plan['kept']} are kept and {plan['run']} run?",
        f"Node runs: about {nodes['executed']} executed, {nodes['shared']} shared, {nodes['kept']} kept",
        _cost(plan["run"], before),
        f"Budget: {_short(budget)}" if budget else None,
        _listed(
            "Changed since its last run", [f"{node}: {', '.join(words)}" for node, words in plan["changes"].items()]
        ),
        *plan["external"],
    )


def _cost(jobs: int, before: Mapping[str, Any] | None) -> str:
    """Say what the jobs may cost, from what the last batch of this name has spent."""
    done = 0 if before is None else before["completed"] + before["failed"]
    if before is None or not done:
        return "Cost: not known, because no batch of this name has run"
    spent, share = before["spent"], jobs / done
    return (
        f"Cost: the last one spent {_spent(spent, 1)} on {done} jobs; at that rate these {jobs} take about "
        f"{_spent(spent, share)}"
    )


def _spent(spent: Mapping[str, Any], share: float) -> str:
    return f"{(spent['usd'] or 0) * share:.4g} USD and {round(spent['tokens'] * share):,} tokens"


def _calls(calls: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"{call['tool']} ({call['status']})" for call in calls]


def _listed(title: str, items: Sequence[str]) -> str | None:
    more = f", and {len(items) - _FEW} more" if len(items) > _FEW else ""
    return f"{title}: {', '.join(map(_line, items[:_FEW]))}{more}" if items else None


def _short(value: Any) -> str:
    text = _line(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"


def _line(text: str) -> str:
    """Return a text on one line, so that none of it looks like a line of the question."""
    return text.replace("\r", "\\r").replace("\n", "\\n")


def _lines(*lines: str | None) -> str:
    return "\n".join(_line(line) for line in lines if line is not None)
