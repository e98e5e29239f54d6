"""BatchWorker: runs jobs of a batch, by number, in a separate process.

The protocol is the same for every way of starting a worker:

1. The process that runs the batch stores it with a WorkOrder, and gives each worker an Assignment: settings and ids.
2. The worker opens the store, loads the batch and its code, and compares versions and fingerprints. It is ready, or it
   refuses and names the difference.
3. It runs one job after the other by number, scores each and stores the result. Then it reports: a JobReport. Between
   two jobs it keeps nothing, so that any worker can continue a job that waits or failed.
4. At the end it reports which values its runs have changed: WorkerEnded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from wtb.application.batches.batch_services import BatchServices
from wtb.application.batches.job_runner import JobRunner
from wtb.application.batches.plan import BatchPlan, Fingerprints, versions_here
from wtb.application.batches.planner import SETUP, workflow_digest
from wtb.application.batches.scoring import kept_cases
from wtb.application.dependencies.fingerprint import parts_that_count
from wtb.application.dependencies.workflow_code import changed_parts
from wtb.domain.batch import Batch, JobStatus
from wtb.domain.batch_record import MadeOf
from wtb.domain.cases import Case
from wtb.domain.errors import InvalidInput
from wtb.domain.job_limits import JobLimits
from wtb.domain.runner import Assignment, JobReport, JobRunsElsewhere, JobWaits, WorkerEnded
from wtb.domain.values import evolve
from wtb.domain.work_order import WorkOrder

_MOST_NAMED = 5
"""How many differences an error names."""


class BatchWorker:
    """Runs jobs of one batch."""

    def __init__(self, services: BatchServices, jobs: JobRunner) -> None:
        self._services = services
        self._jobs = jobs

    @property
    def name(self) -> str:
        """The name of this process in leases and attempts."""
        return self._services.owners.me()

    def listen(self, settled: Callable[[bytes], None]) -> Callable[[], None]:
        """Call a function with the key of each result that is settled here; return a function that stops it."""
        return self._services.cache.listen(settled)

    def keep_claims(self) -> None:
        """Extend what this process has claimed; call it every few seconds, from any thread."""
        self._services.cache.keep_claims()

    def run(self, number: int) -> JobReport:
        """Run a job until it ends or has to wait, and store the result."""
        with self._services.storage.unit_of_work(readonly=True) as uow:
            job = uow.batches.get_job(self._jobs.batch.id, number)
        if job.status is not JobStatus.PENDING:
            return JobRunsElsewhere(number)
        self._jobs.take(job)
        try:
            report = self._jobs.run(number)
        except BaseException:  # as when the database is away: jobs that wait for its results must not wait for ever
            self._jobs.drop(number)
            self._jobs.forget(number)
            raise
        if isinstance(report, JobWaits):
            self._jobs.let_go(number)
        else:
            self._jobs.forget(number)
        return report

    def end(self) -> WorkerEnded:
        """Return what only this process knows about its runs."""
        plan = self._jobs.plan
        # Carried code has no files here in which its values could be found and compared.
        changing = () if plan.carried is not None else self._services.planner.changing(plan, self._jobs.fingerprints)
        return WorkerEnded(self._jobs.trace_id, tuple(sorted(changing)), self.name)


def check_for_workers(plan: BatchPlan, services: BatchServices) -> None:
    """Raise InvalidInput if workers in other processes could not run the jobs of a plan."""
    if services.settings is None:
        raise InvalidInput(
            f"runner={plan.runner!r} needs a store that other processes can open, and memory:// is not one; leave "
            "the url out, name a database, or use runner='threads'"
        )
    if plan.code is None:
        raise InvalidInput(f"runner={plan.runner!r} needs a batch whose code other processes can load")


def assignment(jobs: JobRunner, probe: str) -> Assignment:
    """Return the assignment that each worker of a batch gets; `probe` is an object that all of them can read."""
    services, plan = jobs.services, jobs.plan
    return Assignment(
        batch_id=jobs.batch.id,
        trace_id=jobs.trace_id,
        attempt_id=jobs.attempt.id,
        attempt_began_at=jobs.attempt.began_at,
        probe=probe,
        settings=services.settings or {},
        limits=JobLimits(timeout_s=plan.job_timeout_s or services.job_timeout_s, resources=plan.resources),
        is_measured=services.telemetry.is_on,
    )


def load_work(services: BatchServices, batch_id: str) -> tuple[Batch, WorkOrder, Sequence[Case]]:
    """Return a batch, its work order, and its cases with their expected values; their inputs are in the work order."""
    with services.storage.unit_of_work(readonly=True) as uow:
        batch = uow.batches.get(batch_id)
    order = batch.record.work
    if order is None:
        raise InvalidInput(f"batch {batch.name!r} was not planned for workers in other processes; run it again")
    here = versions_here()
    if here != order.versions:
        raise InvalidInput(
            f"this worker has WTB {here.wtb} on Python {here.python}, but batch {batch.name!r} was planned with WTB "
            f"{order.versions.wtb} on Python {order.versions.python}; install the same versions for both"
        )
    return batch, order, tuple(kept_cases(batch.record, services.codec).values())


def with_inputs(cases: Sequence[Case], inputs: Mapping[str, Mapping[str, object]]) -> tuple[Case, ...]:
    """Return cases with their inputs."""
    return tuple(evolve(case, input=inputs[case.id]) for case in cases)


def check_same(order: WorkOrder, made_of: MadeOf, plan: BatchPlan, fingerprints: Fingerprints) -> None:
    """Raise InvalidInput, naming the differences, if the code of a worker differs from what was planned."""
    found: list[str] = []
    for combination, planned in order.workflows.items():
        if workflow_digest(fingerprints[combination]) != planned:
            found += _differences(made_of, planned, fingerprints, combination)
    found += [
        f"evaluator `{name}`" for name, digest in order.evaluator_digests.items() if plan.digests.get(name) != digest
    ]
    if not found and plan.output_digest != order.output_digest:
        found = ["the function that reads outputs"]
    if found:
        named = "; ".join(list(dict.fromkeys(found))[:_MOST_NAMED])
        raise InvalidInput(
            f"a worker loaded {order.code.reference} and found other code or values than the process that planned "
            f"batch {plan.name!r}: {named}. If the file was edited, run the batch again. A value that differs in "
            "every process, such as a time or a random number, must not be read by nodes; compute it in a node. An "
            "absolute path into the project is another one in its copy on a cluster; build it from `__file__`"
        )


def _differences(made_of: MadeOf, planned: str, fingerprints: Fingerprints, combination: str) -> list[str]:
    """Return the differences in a combination, in words."""
    old, found = made_of.workflows.get(planned, {}), []
    for node, fingerprint in fingerprints[combination].items():
        if old.get(node) != fingerprint.digest:
            was = made_of.parts.get(old.get(node, ""), {})
            words = changed_parts(
                parts_that_count(was, made_of.changing), parts_that_count(fingerprint.all_parts, made_of.changing)
            )
            where = "" if node == SETUP else f"node `{node}`: "
            found += [f"{where}{word}" for word in words] or [f"{where}its code"]
    return found
