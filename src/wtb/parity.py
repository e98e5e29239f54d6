"""Run a sample of a batch on several runners, and compare the results."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from wtb.batch_results import BatchResult, JobResult
from wtb.batches import BatchTest
from wtb.domain.batch import JobStatus
from wtb.domain.cases import Case
from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import OVERALL
from wtb.domain.parity import JobFacts, JobKey, ParityReport, parity_differences
from wtb.infrastructure.cases import read_cases

if TYPE_CHECKING:
    from wtb.bench import Bench

LATENCY = "latency_s"


def default_runners() -> tuple[str, ...]:
    """Return the runners to compare: threads, processes, and Ray if it is installed."""
    return ("threads", "processes", *(("ray",) if importlib.util.find_spec("ray") is not None else ()))


def check_parity(bench: Bench, test: BatchTest, *, sample: int, runners: Sequence[str]) -> ParityReport:
    """Run the same sample of cases on each runner, every node anew, and compare the results."""
    if len(set(runners)) < 2:
        raise InvalidInput("parity compares runners: name at least two, as threads and processes")
    if sample < 1:
        raise InvalidInput(f"the sample needs at least one case, not {sample}")
    name = test.name or test.flow.name
    sampled = replace(test, cases=_sampled(read_cases(test.cases), sample, test.seed), fresh=True)
    tests = {each: _on(sampled, f"{name} on {each}", each) for each in dict.fromkeys(runners)}
    for each in tests.values():  # before the first one calls external tools
        bench.services.batches.check(each.plan())
    results = {runner: bench.batch(each) for runner, each in tests.items()}
    return ParityReport(
        batches={runner: result.batch.name for runner, result in results.items()},
        jobs=max(len(result.results) for result in results.values()),
        differences=parity_differences({runner: job_facts(result) for runner, result in results.items()}),
        took_s={runner: result.batch.spent_s for runner, result in results.items()},
    )


def _sampled(cases: Sequence[Case], sample: int, seed: int) -> list[Case]:
    """Return some cases, chosen at random, in their order."""
    chosen = sorted(random.Random(seed).sample(range(len(cases)), min(sample, len(cases))))
    return [cases[number] for number in chosen]


def _on(test: BatchTest, name: str, runner: str) -> BatchTest:
    return replace(test, name=name, runner=runner, ray_address=test.ray_address if runner == "ray" else None)


def job_facts(result: BatchResult) -> dict[JobKey, JobFacts]:
    """Return what must be the same in another batch with the same jobs, by job."""
    timed = {name for name in (*result.metrics, OVERALL.name) if _is_time(name, result.weights)}
    return {(job.combination, job.case_id, job.repeat): _facts_of(job, timed) for job in result.results}


def _is_time(metric: str, weights: Mapping[str, float]) -> bool:
    """Whether a metric is a time, or an overall score with one in it."""
    return LATENCY in weights if metric == OVERALL.name else metric == LATENCY


def _facts_of(job: JobResult, timed: set[str]) -> JobFacts:
    error = None if job.error is None else f"{job.error['type']}: {job.error['message']}"
    scores = {name: score for name, score in job.scores.items() if name not in timed}
    if job.run_id is None or job.status != JobStatus.COMPLETED:
        return JobFacts(status=str(job.status), error=error, scores=scores)
    run = job.run
    return JobFacts(status=str(job.status), error=error, state=run.state, scores=scores, files=dict(run.files()))
