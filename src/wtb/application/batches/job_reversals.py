"""JobReversals: takes back the external calls of jobs, and notes in their records what could not be taken back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from wtb.application.time_travel.rollback_executor import RollbackFailed
from wtb.application.time_travel.take_back import TakeBack
from wtb.domain.batch import Job
from wtb.domain.errors import Conflict, ExecutionNotFound, LeaseLost
from wtb.domain.ids import ExecutionId
from wtb.domain.secrets import Masker, text_of


class WorkedOnElsewhere(Exception):
    """Another process is working on the run of the job."""


@dataclass(frozen=True, slots=True)
class JobReversals:
    """Takes back the calls that `take_back` of a job promises. A failure is noted there, and not raised."""

    take_back: TakeBack
    masker: Masker

    @contextmanager
    def held(self, job: Job) -> Iterator[None]:
        """Keep other processes from taking back calls that evaluators may still look at."""
        if job.execution_id is None or job.execution_id not in job.record.take_back:
            yield
            return
        with self.take_back.held(job.execution_id):
            yield

    def of_own_run(self, job: Job) -> Job:
        """Take back the calls of the run of a job; raise WorkedOnElsewhere if another process does so."""
        left = dict(job.record.take_back)
        if job.execution_id in left:
            try:
                self._take_back(job.execution_id, left)
            except (Conflict, LeaseLost) as error:
                raise WorkedOnElsewhere from error
        return _noted(job, left)

    def of_earlier_runs(self, job: Job) -> Job:
        """Take back the calls of earlier runs of the job, which its current run replaced."""
        left = dict(job.record.take_back)
        for run_id in [each for each in left if each != job.execution_id]:
            try:
                self._take_back(run_id, left)
            except (Conflict, LeaseLost) as error:
                left[run_id] = self.masker.bounded(text_of(error))
        return _noted(job, left)

    def _take_back(self, run_id: str, left: dict[str, str]) -> None:
        """Take back the calls of a run and remove it from `left`, or note there why that failed."""
        try:
            self.take_back.run(ExecutionId(run_id))
        except ExecutionNotFound:  # it never began, or somebody has deleted it
            del left[run_id]
        except (Conflict, LeaseLost):
            raise
        except Exception as error:  # noqa: BLE001  one failure is recorded, and the batch continues
            cause = error.__cause__ if isinstance(error, RollbackFailed) else None
            left[run_id] = self.masker.text(str(cause or error))
        else:
            del left[run_id]


def _noted(job: Job, left: dict[str, str]) -> Job:
    return job if left == job.record.take_back else job.noted(take_back=left)
