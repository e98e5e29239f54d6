"""What workers report crosses processes as JSON, and comes out as it went in."""

from __future__ import annotations

import json

import pytest

from wtb.application.batches.worker_messages import WorkerMessage, error_data, error_from, report_data, report_from
from wtb.domain.batch import JobStatus
from wtb.domain.errors import BatchNotFound, StorageUnavailable, WorkerFailed
from wtb.domain.runner import (
    Assignment,
    JobBroke,
    JobEnded,
    JobFailedForNow,
    JobRunsElsewhere,
    JobWaits,
    MeasuredSpan,
    ResultSettled,
    WorkerEnded,
    WorkMeasured,
)
from wtb.domain.spending import Spent
from wtb.testing.fakes import FakeClock


@pytest.mark.parametrize(
    "report",
    [
        JobEnded(3, JobStatus.FAILED, Spent(usd=0.5, tokens=7), executed=2, shared=1, failed_nodes=1),
        JobFailedForNow(3, 2),
        JobWaits(3, b"\x00\xff"),
        JobRunsElsewhere(3),
        ResultSettled(b"\x01"),
        WorkMeasured((MeasuredSpan("node", "answer", 0.25, 1), MeasuredSpan("call", "send", None, 2))),
        WorkerEnded("run/worker", ("`COUNT` in flow.py",), "host/12/3"),
    ],
)
def test_a_report_comes_out_as_it_went_in(report: WorkerMessage) -> None:
    assert report_from(json.loads(json.dumps(report_data(report)))) == report


def test_an_error_of_ours_keeps_its_class_and_any_other_is_named() -> None:
    found = error_from(error_data(StorageUnavailable("the disk is full")))
    assert (type(found), str(found)) == (StorageUnavailable, "the disk is full")
    missing = BatchNotFound("b")
    assert str(error_from(error_data(missing))) == str(missing)
    broke = report_from(report_data(JobBroke(3, ZeroDivisionError("by zero"))))
    assert isinstance(broke, JobBroke)
    assert isinstance(broke.error, WorkerFailed)
    assert "ZeroDivisionError: by zero" in str(broke.error)


def test_a_report_of_another_version_is_refused() -> None:
    with pytest.raises(WorkerFailed, match="give it the same version of WTB"):
        report_from({"is": "tired"})


def test_an_assignment_comes_out_as_it_went_in() -> None:
    given = Assignment(
        batch_id="b",
        trace_id="t",
        attempt_id="a",
        attempt_began_at=FakeClock().now(),
        probe="ab",
        settings={"url": None},
    )
    assert Assignment.from_data(json.loads(json.dumps(given.to_data()))) == given
