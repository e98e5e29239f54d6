"""BatchTestRunner: every combination over every case, in parallel; what is there already is not run again."""

from __future__ import annotations

import queue
import random
import threading
import time
import traceback
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from wtb.application.code import Fingerprint, fingerprint
from wtb.application.evaluation_engine import EvaluationEngine, digests
from wtb.application.execution_controller import ExecutionController, WaitsForResult
from wtb.application.node_cache import NodeCache, Sharing
from wtb.application.scoring import Scoring, cases_to_keep, scored_by
from wtb.domain.batch import Batch, BatchStatus, Budget, Case, Job, JobStatus, Spent
from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import Evaluator, metric_of
from wtb.domain.events import Event, EventType
from wtb.domain.execution import Execution, ExecutionStatus
from wtb.domain.options import RunOptions
from wtb.domain.ports import Clock, Codec, Ids, Storage
from wtb.domain.secrets import Masker
from wtb.domain.variants import Combination, label
from wtb.domain.workflow import WorkflowDefinition

_LOOK_S = 0.1
"""How often jobs that wait for another process are tried again."""


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """What a batch is to run."""

    name: str
    definition: WorkflowDefinition
    source: str | None
    combinations: Sequence[Combination]
    cases: Sequence[Case]
    repeats: int
    baseline: Combination
    evaluators: Sequence[Evaluator]
    share: bool = True
    seed: int = 0
    retries: int = 0
    budget: Budget = field(default_factory=Budget)

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """What each evaluator was made of when the batch was planned, by name."""
        return digests(self.evaluators)


@dataclass(slots=True)
class Progress:
    """How far a batch has come; `total` jobs, of which some were there already.

    `failed` are jobs, `failed_nodes` are node runs. `by_combination` has every combination, with how many of its jobs
    are done. `spent` is what the batch has taken in all, earlier goes at it included; its time so far is not.
    """

    total: int
    kept: int
    completed: int = 0
    failed: int = 0
    executed: int = 0
    shared: int = 0
    failed_nodes: int = 0
    spent: Spent = field(default_factory=Spent)
    by_combination: dict[str, int] = field(default_factory=lambda: defaultdict(int))


@dataclass(slots=True)
class _Work:
    """A job on its way: the run that it has become, and what that shares."""

    job: Job
    sharing: Sharing
    execution: Execution | None = None
    attempts: int = 0

    @property
    def has_run(self) -> bool:
        """Whether only scores are missing."""
        return self.job.execution_id is not None and "scores" in self.job.result


class BatchTestRunner:
    """Runs jobs on threads. A job that needs what another one is making leaves its thread to others meanwhile."""

    def __init__(
        self,
        *,
        storage: Storage,
        clock: Clock,
        ids: Ids,
        codec: Codec,
        controller: ExecutionController,
        cache: NodeCache,
        evaluation: EvaluationEngine,
        scoring: Scoring,
        masker: Masker,
        find_tool: Callable[[str], Any],
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._codec = codec
        self._controller = controller
        self._cache = cache
        self._evaluation = evaluation
        self._scoring = scoring
        self._masker = masker
        self._find_tool = find_tool

    def _recorded(
        self, plan: BatchPlan, prints: Mapping[str, Mapping[str, Fingerprint]]
    ) -> tuple[Batch, list[Job], Spent]:
        """Record the batch and its jobs: of an earlier batch of this name, what is still true is kept.

        Also return what the earlier one has spent.
        """
        now = self._clock.now()
        with self._storage.unit_of_work() as uow:
            before = uow.batches.list_batches(name=plan.name, limit=1)
            known = uow.batches.list_jobs(before[0].id) if before else ()
            spent = _spent(before[0] if before else None, known)
            batch = Batch(
                id=before[0].id if before else self._ids.new(),
                name=plan.name,
                workflow_name=plan.definition.name,
                status=BatchStatus.RUNNING,
                plan={**_plan_data(plan, self._codec), "spent_s": spent.s},
                created_at=before[0].created_at if before else now,
                updated_at=now,
            )
            jobs = _jobs(batch.id, plan, prints, known, self._codec)
            uow.batches.save(batch)
            uow.batches.save_jobs(jobs)
            data = {"name": batch.name, "jobs": len(jobs)}
            uow.events.append(Event(type=EventType.BATCH_STARTED, stream=batch.id, at=now, data=data))
            uow.commit()
        return batch, jobs, spent

    def _fingerprints(self, plan: BatchPlan) -> dict[str, dict[str, Fingerprint]]:
        """Return the fingerprint of every implementation, by combination and node; each is looked at once."""
        made: dict[tuple[str, str], Fingerprint] = {}
        found: dict[str, dict[str, Fingerprint]] = {}
        for combination in plan.combinations:
            definition = plan.definition.with_variants(combination)
            for node in definition.nodes:
                if (node.name, node.variant) not in made:
                    made[node.name, node.variant] = fingerprint(
                        node.function, node.config, definition.version, self._find_tool
                    )
            found[label(combination)] = {node.name: made[node.name, node.variant] for node in definition.nodes}
        return found

    def run(
        self,
        plan: BatchPlan,
        *,
        workers: int,
        stop: threading.Event,
        told: Callable[[Progress], None] = lambda progress: None,
    ) -> Batch:
        """Run what is missing until it is done, stopped, or the budget is used up."""
        prints = self._fingerprints(plan)
        batch, jobs, spent = self._recorded(plan, prints)
        pending = [job for job in jobs if job.status is JobStatus.PENDING]
        random.Random(plan.seed).shuffle(pending)
        pending.sort(key=lambda job: "scores" not in job.result)  # scoring is no part of the budget, so it comes first
        progress = Progress(total=len(jobs), kept=len(jobs) - len(pending), spent=spent)
        for job in jobs:
            progress.by_combination[job.combination] += job.status is not JobStatus.PENDING
        floor = _Floor(self, plan, batch, prints, pending, progress=progress, stop=stop, told=told)
        floor.work(workers)
        return self._ended(batch, floor, {job.number for job in jobs})

    def _ended(self, batch: Batch, floor: _Floor, planned: set[int]) -> Batch:
        now = self._clock.now()
        with self._storage.unit_of_work() as uow:
            statuses = {job.status for job in uow.batches.list_jobs(batch.id) if job.number in planned}
            status, kind = BatchStatus.COMPLETED, EventType.BATCH_COMPLETED
            if JobStatus.PENDING in statuses:
                status, kind = BatchStatus.CANCELLED, EventType.BATCH_CANCELLED
            elif JobStatus.FAILED in statuses:
                status = BatchStatus.COMPLETED_WITH_ERRORS
            batch = replace(batch.moved_to(status, now), plan={**batch.plan, "spent_s": floor.spent().s})
            uow.batches.save(batch)
            done = floor.progress
            data = {"executed": done.executed, "shared": done.shared, "failed": done.failed, "usd": done.spent.usd}
            uow.events.append(Event(type=kind, stream=batch.id, at=now, data=data))
            uow.commit()
        return batch

    def run_job(self, plan: BatchPlan, work: _Work, case: Case) -> Job:
        """Take a job to its end; WaitsForResult when it needs what another one is making."""
        job, definition = work.job, plan.definition
        try:
            if work.has_run and (scored := self._scoring.scored(job, case, plan.evaluators, plan.digests)) is not None:
                return scored
            if work.execution is None:
                work.execution = self._controller.create(
                    definition, case.input, self._options(plan, job), source=plan.source, metadata=_origin(job)
                )
            ended = self._controller.run(work.execution.id, definition, sharing=work.sharing)
            return self._scored(job, ended, case, plan, work.sharing)
        except WaitsForResult:
            raise
        except Exception as error:  # noqa: BLE001  the failure of one job is recorded, and the batch goes on
            told = self._masker.text("".join(traceback.format_exception(error)))
            failure = {"type": type(error).__qualname__, "message": self._masker.text(str(error)), "traceback": told}
            execution_id = None if work.execution is None else work.execution.id
            return job.ended(JobStatus.FAILED, execution_id, {"error": failure, **_counts(job, work.sharing)})

    def _options(self, plan: BatchPlan, job: Job) -> RunOptions:
        by_label = {label(combination): combination for combination in plan.combinations}
        seed = zlib.crc32(f"{plan.seed}/{job.case_id}/{job.repeat}".encode())
        return RunOptions(variants=dict(by_label[job.combination]), seed=seed)

    def _scored(self, job: Job, execution: Execution, case: Case, plan: BatchPlan, sharing: Sharing) -> Job:
        if execution.status is not ExecutionStatus.COMPLETED:
            return job.ended(JobStatus.FAILED, execution.id, {"error": _why(execution), **_counts(job, sharing)})
        context = self._evaluation.context(execution.id, case)
        result = {
            "scores": self._evaluation.scores(context, plan.evaluators),
            "scored_by": scored_by(case, plan.digests, self._codec),
            "latency_s": context.latency_s,
            "usage": dict(context.usage),
            "unpriced": list(context.unpriced),
            **_counts(job, sharing),
        }
        return job.ended(JobStatus.COMPLETED, execution.id, result)

    def save(self, job: Job) -> None:
        """Keep what came of a job."""
        with self._storage.unit_of_work() as uow:
            uow.batches.save_jobs([job])
            uow.commit()

    def sharing(self, plan: BatchPlan, job: Job, prints: Mapping[str, Fingerprint], attempt: str) -> Sharing:
        """Return what a job shares with others."""
        return Sharing(
            cache=self._cache,
            codec=self._codec,
            fingerprints=prints,
            scope=job.batch_id,
            case_id=job.case_id,
            repeat=job.repeat,
            attempt=attempt,
            on=plan.share,
        )

    def new_attempt(self) -> str:
        """Return an id for this go at a batch: failures are shared within it."""
        return self._ids.new()

    def keep_claims(self) -> None:
        """Say that this process still makes what it has claimed."""
        self._cache.keep_claims()

    def is_being_made(self, key: bytes) -> bool:
        """Whether a result that somebody waits for is on its way."""
        return self._cache.is_being_made(key)

    def listen(self, listener: Callable[[bytes], None]) -> Callable[[], None]:
        """Hear of results that are made."""
        return self._cache.listen(listener)


class _Floor:
    """The threads of one batch, the jobs that are ready, and those that wait for a result."""

    def __init__(
        self,
        runner: BatchTestRunner,
        plan: BatchPlan,
        batch: Batch,
        prints: Mapping[str, Mapping[str, Fingerprint]],
        jobs: Sequence[Job],
        *,
        progress: Progress,
        stop: threading.Event,
        told: Callable[[Progress], None],
    ) -> None:
        self._runner = runner
        self._plan = plan
        self._cases = {case.id: case for case in plan.cases}
        self._stop = stop
        self._told = told
        self._lock = threading.Lock()
        self._ready: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._waiting: dict[bytes, list[_Work]] = defaultdict(list)
        self._left = len(jobs)
        self.progress = progress
        self._began = time.monotonic()
        attempt = runner.new_attempt()
        for job in jobs:
            self._ready.put(_Work(job, runner.sharing(plan, job, prints[job.combination], attempt)))
        self._done = threading.Event()
        if not jobs:
            self._done.set()

    def work(self, workers: int) -> None:
        """Run until nothing is left, or somebody says stop; what has begun is finished."""
        stop_listening = self._runner.listen(self._wake)
        threads = [
            threading.Thread(target=self._work, name=f"wtb-job-{number}", daemon=True) for number in range(workers)
        ]
        for thread in threads:
            thread.start()
        try:
            while not self._done.wait(_LOOK_S):
                self._wake_all()
                self._runner.keep_claims()
                if self._stop.is_set() or not any(thread.is_alive() for thread in threads):
                    break
        finally:
            self._stop_at_end(threads)
            stop_listening()
        self._told(self.progress)

    def _stop_at_end(self, threads: Sequence[threading.Thread]) -> None:
        for _ in threads:
            self._ready.put(None)
        for thread in threads:
            thread.join()

    def _work(self) -> None:
        while (work := self._ready.get()) is not None:
            if self._stop.is_set() or (not work.has_run and self._plan.budget.reached(self.spent())):
                self._stop.set()
                work.sharing.close()
                continue
            case = self._cases[work.job.case_id]
            try:
                self._end(work, self._runner.run_job(self._plan, work, case))
            except WaitsForResult as waiting:
                self._park(work, waiting.key)

    def spent(self) -> Spent:
        """Return what the batch has taken so far, in all."""
        return self.progress.spent + Spent(s=time.monotonic() - self._began)

    def _park(self, work: _Work, key: bytes) -> None:
        with self._lock:
            self._waiting[key].append(work)

    def _wake(self, key: bytes) -> None:
        """Take up the jobs that waited for a result which is there now."""
        with self._lock:
            woken = self._waiting.pop(key, [])
        for work in woken:
            self._ready.put(work)

    def _wake_all(self) -> None:
        """Take up every job that waits: what another process makes nobody tells of here."""
        with self._lock:
            keys = list(self._waiting)
        for key in keys:
            if not self._runner.is_being_made(key):
                self._wake(key)

    def _end(self, work: _Work, job: Job) -> None:
        work.sharing.close()
        work.attempts += 1
        if job.status is JobStatus.FAILED and work.attempts <= self._plan.retries:
            work.execution = None
            work.sharing = replace(work.sharing, attempt=self._runner.new_attempt(), claimed=set())
            self._ready.put(work)
            return
        self._runner.save(job)
        with self._lock:
            progress = self.progress
            progress.executed += work.sharing.executed
            progress.shared += work.sharing.shared
            progress.completed += job.status is JobStatus.COMPLETED
            progress.failed += job.status is JobStatus.FAILED
            progress.failed_nodes += work.sharing.failed
            progress.spent += work.sharing.spent
            progress.by_combination[job.combination] += 1
            self._left -= 1
            if self._left == 0:
                self._done.set()
            self._told(progress)


def _counts(job: Job, sharing: Sharing) -> dict[str, Any]:
    return {
        "executed": sharing.executed,
        "shared": sharing.shared,
        "unshared": dict(sharing.unshared),
        "spent": (job.spent + sharing.spent).to_dict(),
    }


def _spent(batch: Batch | None, jobs: Sequence[Job]) -> Spent:
    """Return what a batch has taken so far: its jobs, those that are not wanted now too, and its time."""
    earlier = Spent() if batch is None else Spent(s=batch.plan.get("spent_s", 0.0))
    return sum((job.spent for job in jobs), earlier)


def _why(execution: Execution) -> dict[str, Any]:
    failure = execution.failure
    if failure is not None:
        return {"type": failure.type, "message": failure.message, "node": failure.node, "traceback": failure.traceback}
    reason = execution.pause.reason if execution.pause is not None else str(execution.status)
    if execution.pause is not None and execution.pause.question is not None:
        reason = f"it asked {execution.pause.question.get('question')!r}, and a batch has nobody to answer"
    return {
        "type": "NotCompleted",
        "message": reason,
        "node": None if execution.pause is None else execution.pause.node,
    }


def _origin(job: Job) -> dict[str, Any]:
    return {"batch": job.batch_id, "combination": job.combination, "case": job.case_id, "repeat": job.repeat}


def _plan_data(plan: BatchPlan, codec: Codec) -> dict[str, Any]:
    return {
        "combinations": [label(combination) for combination in plan.combinations],
        "baseline": label(plan.baseline),
        "cases": [case.id for case in plan.cases],
        "expected": cases_to_keep(plan.cases, codec),
        "repeats": plan.repeats,
        "metrics": [metric_of(evaluator).to_dict() for evaluator in plan.evaluators],
        "source": plan.source,
    }


def _jobs(
    batch_id: str,
    plan: BatchPlan,
    prints: Mapping[str, Mapping[str, Fingerprint]],
    known: Sequence[Job],
    codec: Codec,
) -> list[Job]:
    """Return all jobs of a plan; one that is known and completed is kept when everything it depends on is the same."""
    before = {(job.combination, job.case_id, job.repeat): job for job in known}
    numbers = iter(range(len(known), len(known) + len(plan.combinations) * len(plan.cases) * plan.repeats))
    jobs = []
    for combination in plan.combinations:
        name = label(combination)
        made_of = "".join(prints[name][node.name].digest for node in plan.definition.nodes)
        for case in plan.cases:
            about = codec.encode(dict(case.input), f"case {case.id}")[1]
            digest = codec.digest(made_of.encode(), about).hex()[:32]
            wanted = scored_by(case, plan.digests, codec)
            for repeat in range(plan.repeats):
                job = before.get((name, case.id, repeat))
                if job is None:
                    job = Job(
                        batch_id=batch_id,
                        number=next(numbers),
                        combination=name,
                        case_id=case.id,
                        repeat=repeat,
                        fingerprint=digest,
                    )
                if job.fingerprint != digest or job.status is JobStatus.FAILED:
                    earlier = {"spent": job.spent.to_dict()}
                    job = replace(job, fingerprint=digest, status=JobStatus.PENDING, execution_id=None, result=earlier)
                elif not wanted.items() <= job.result.get("scored_by", {}).items():
                    job = replace(job, status=JobStatus.PENDING)
                jobs.append(job)
    return jobs


def check_plan(plan: BatchPlan) -> None:
    """Raise InvalidInput for figures that make no sense, before anything runs."""
    if plan.repeats < 1:
        raise InvalidInput(f"repeats must be at least 1, not {plan.repeats}")
    if not plan.evaluators:
        raise InvalidInput("a batch needs at least one evaluator, as wtb.ExactMatch('answer')")
