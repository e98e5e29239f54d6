"""Batches: rows of a list, and how far one has come."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

from pydantic import Field

from wtb.api.models.base import AnswerModel, ListAnswer
from wtb.api.models.figures import PlainText, SpentAnswer, plain
from wtb.application.queries.batch_data import BatchStatusView
from wtb.application.queries.views import BatchPage
from wtb.domain.batch import Batch, BatchStatus


class BatchRow(AnswerModel):
    """A batch in a list."""

    id: str
    name: PlainText = Field(examples=["support_qa"])
    workflow: PlainText
    status: BatchStatus = Field(description="`paused` if the process that ran it is gone or silent.")
    combinations: int
    cases: int
    repeats: int
    jobs: int
    baseline: PlainText = Field(description="The combination that the others are compared with.")
    metrics: list[PlainText]
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, batch: Batch) -> Self:
        """Return a batch as an answer."""
        return cls(**batch_facts(batch))


def batch_facts(batch: Batch) -> dict[str, Any]:
    """Return what a list shows of a batch."""
    record = batch.record
    return {
        "id": batch.id,
        "name": batch.name,
        "workflow": batch.workflow_name,
        "status": batch.status,
        "combinations": len(record.combinations),
        "cases": len(record.cases),
        "repeats": record.repeats,
        "jobs": record.jobs,
        "baseline": record.baseline,
        "metrics": record.metric_names,
        "created_at": batch.created_at,
        "updated_at": batch.updated_at,
    }


def batch_list(page: BatchPage) -> ListAnswer[BatchRow]:
    """Return a page of batches as an answer."""
    return ListAnswer(items=[BatchRow.of(batch) for batch in page.batches], next=page.next)


class RunningJobAnswer(AnswerModel):
    """A job that a process is running now."""

    combination: PlainText
    case: PlainText
    repeat: int
    run: str
    worker: str | int
    host: PlainText
    started: datetime


class LimitAnswer(AnswerModel):
    """A limit of a batch as it is now."""

    name: PlainText
    adaptive: bool
    width: int = Field(description="How many calls may run at a time now.")
    held: int
    waiting: int
    breaker: str | None
    until: datetime | None


class LostDriverAnswer(AnswerModel):
    """The process that ran a paused batch."""

    worker: str | int
    host: PlainText
    reason: str
    seen: datetime


class BatchAnswer(BatchRow):
    """How far a batch has come, and what runs right now."""

    runner: str
    workers: int
    completed: int
    failed: int
    dead: int = Field(description="How many failed jobs were given up because they lost their worker too often.")
    left: int
    running: list[RunningJobAnswer]
    lost_workers: int
    lost_driver: LostDriverAnswer | None
    limits: list[LimitAnswer]
    spent: SpentAnswer

    @classmethod
    def of_status(cls, view: BatchStatusView) -> Self:
        """Return the status of a batch as an answer."""
        data = plain(view.to_data())
        return cls(
            **batch_facts(view.batch),
            runner=view.batch.record.runner,
            workers=view.batch.record.workers,
            completed=view.completed,
            failed=view.failed,
            dead=view.dead,
            left=view.left,
            running=data["running"],
            lost_workers=view.lost_workers,
            lost_driver=data["lost_driver"],
            limits=data["limits"],
            spent=SpentAnswer.of(view.spent),
        )
