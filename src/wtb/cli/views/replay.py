"""`wtb show --replay`: every step of a run, and where the current workflow would give another result."""

from __future__ import annotations

import sys
from typing import Any

from wtb.cli.exit_codes import WORK_FAILED
from wtb.cli.output import echo, print_json, text_of
from wtb.domain.checkpoint import Trigger
from wtb.domain.replay import Aspect, Difference, ReplayedStep, ReplayReport, ReplayVerdict
from wtb.domain.state import MISSING
from wtb.loading import load_workflow
from wtb.runs import Run

_MARKS = {ReplayVerdict.SAME: "✓", ReplayVerdict.DIFFERENT: "✗", ReplayVerdict.TAKEN: "·", ReplayVerdict.UNKNOWN: "?"}
_NOT_NODES = {Trigger.START: "input", Trigger.PAUSE: "changed by a person"}
_LONGEST = 160
"""Longest value, in characters, that people see."""


def show_replay(run: Run, workflow: str | None, *, as_json: bool) -> None:
    """Replay a run and print the result; exit with 3 if anything differs."""
    report = run.replay(load_workflow(workflow) if workflow else None)
    if as_json:
        print_json(_report(report))
    else:
        for step in report.steps:
            echo("\n".join(_lines(step)))
        echo(_summary(report))
    if not report.same:
        sys.exit(WORK_FAILED)


def _lines(step: ReplayedStep) -> list[str]:
    nodes = ", ".join(node if visit == 1 else f"{node}#{visit}" for node, visit in step.visits)
    label = nodes or _NOT_NODES.get(step.trigger, step.trigger.value)
    unknown = "  (its data or the data before it was deleted)" if step.verdict is ReplayVerdict.UNKNOWN else ""
    return [f"{_MARKS[step.verdict]} {step.step:>3}  {label}{unknown}", *map(_sentence, step.differences)]


def _sentence(difference: Difference) -> str:
    subject = difference.aspect if difference.key is None else f"{difference.aspect}.{difference.key}"
    now = difference.error or _text(difference.aspect, difference.replayed)
    return f"       {subject}: recorded {_text(difference.aspect, difference.recorded)}, now {now}"


def _text(aspect: Aspect, value: Any) -> str:
    if value is MISSING:
        return "not there"
    if aspect is Aspect.NEXT_NODES:
        return ", ".join(value) or "the end"
    text = text_of(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters; --json has all)"


def _summary(report: ReplayReport) -> str:
    different = sum(step.verdict is ReplayVerdict.DIFFERENT for step in report.steps)
    if different:
        return f"The current workflow gives another result in {different} of {len(report.steps)} steps."
    return "The current workflow gives the recorded results."


def _report(report: ReplayReport) -> dict[str, Any]:
    steps = [
        {
            "step": step.step,
            "checkpoint": step.checkpoint_id,
            "trigger": step.trigger.value,
            "visits": [{"node": node, "visit": visit} for node, visit in step.visits],
            "verdict": step.verdict.value,
            "differences": [_difference(difference) for difference in step.differences],
        }
        for step in report.steps
    ]
    return {"run": report.execution_id, "same": report.same, "steps": steps}


def _difference(difference: Difference) -> dict[str, Any]:
    """Return a difference as data, without missing values."""
    facts = {
        "nodes": difference.nodes,
        "aspect": difference.aspect.value,
        "key": difference.key,
        "recorded": difference.recorded,
        "now": difference.replayed,
        "error": difference.error,
    }
    return {name: value for name, value in facts.items() if value is not MISSING}
