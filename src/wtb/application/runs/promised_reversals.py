"""Finds the external calls that batches have promised to take back and have not taken back yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wtb.domain.batch import Job
from wtb.domain.errors import ExecutionNotFound
from wtb.domain.execution import Execution
from wtb.domain.ids import ExecutionId
from wtb.domain.ports import UnitOfWork
from wtb.domain.rollback import calls_left


@dataclass(frozen=True, slots=True, kw_only=True)
class PromisedReversal:
    """A run of a batch that has calls to take back."""

    execution: Execution
    tools: tuple[str, ...]
    why: str
    """Why the last try failed; empty if there was none."""


def promised_reversals(uow: UnitOfWork, jobs: Sequence[Job]) -> Iterator[PromisedReversal]:
    """Yield the runs of these jobs that still have calls to take back."""
    for job in jobs:
        for run_id, why in job.record.take_back.items():
            execution_id = ExecutionId(run_id)
            try:
                execution = uow.executions.get(execution_id)
            except ExecutionNotFound:  # it never began, or somebody has deleted it
                continue
            left = calls_left(uow.tool_calls.list_calls(execution_id), uow.rollbacks.list_rollbacks(execution_id))
            if left:
                tools = tuple(sorted({call.tool for call in left}))
                yield PromisedReversal(execution=execution, tools=tools, why=why)
