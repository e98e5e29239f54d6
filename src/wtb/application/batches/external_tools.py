"""The external tools that are known before a batch starts: those that nodes name, and those that runs have called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from wtb.application.batches.forecast import ExternalTool
from wtb.application.batches.plan import BatchPlan
from wtb.application.dependencies.fingerprint import Fingerprint
from wtb.application.dependencies.walk import FindTool
from wtb.domain.batch import Job
from wtb.domain.errors import InvalidInput
from wtb.domain.tool_answers import External, MockedTool, Recording, RunAnswers
from wtb.domain.tools import Effects

_BEFORE, _AFTER = "tool `", "`"
"""The text around the name of a tool in the parts of a fingerprint."""


def external_tools(
    plan: BatchPlan,
    fingerprints: Mapping[str, Mapping[str, Fingerprint]],
    known: Sequence[Job],
    waiting: Sequence[Job],
    find_tool: FindTool,
) -> tuple[ExternalTool, ...]:
    """Return the external tools, sorted by name."""
    named = {combination: _named(nodes.values(), find_tool) for combination, nodes in fingerprints.items()}
    called = {(job.combination, job.case_id, job.repeat): job.record.external for job in known}
    names = {name for tools in named.values() for name in tools} | {name for calls in called.values() for name in calls}

    def may_call(job: Job, name: str) -> bool:
        before = called.get((job.combination, job.case_id, job.repeat), {})
        return name in before or name in named.get(job.combination, ())

    return tuple(
        ExternalTool(
            name=name,
            answer=_answer(plan, name),
            jobs=sum(may_call(job, name) for job in waiting),
            earlier_calls=sum(calls.get(name, 0) for calls in called.values()),
            earlier_jobs=sum(name in calls for calls in called.values()),
            taken_back=_is_taken_back(plan, name, find_tool),
        )
        for name in sorted(names)
    )


def _named(fingerprints: Iterable[Fingerprint], find_tool: FindTool) -> set[str]:
    """Return the external tools that these nodes name in their code."""
    found: set[str] = set()
    for fingerprint in fingerprints:
        for part in fingerprint.all_parts:
            if part.startswith(_BEFORE):
                name = part.removeprefix(_BEFORE).partition(_AFTER)[0]
                with suppress(InvalidInput):
                    if find_tool(name).spec.effects is Effects.EXTERNAL:
                        found.add(name)
    return found


def _answer(plan: BatchPlan, name: str) -> str:
    match plan.definition.tools.get(name):
        case MockedTool():
            return "mock"
        case RunAnswers():
            return "run answers"
        case Recording():
            return "record"
    return plan.external.value


def _is_taken_back(plan: BatchPlan, name: str, find_tool: FindTool) -> bool | None:
    is_real = isinstance(plan.definition.tools.get(name), Recording | None)
    if plan.external is not External.REVERSE or not is_real:
        return None
    with suppress(InvalidInput):
        return find_tool(name).reverse is not None
    return False
