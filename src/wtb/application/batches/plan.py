"""BatchPlan: everything that a batch is to run, checked before it starts."""

from __future__ import annotations

import os
import platform
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from typing import Any

from wtb.application.batches.scoring import cases_to_keep
from wtb.application.dependencies.fingerprint import Fingerprint
from wtb.application.dependencies.walk import fingerprint
from wtb.application.evaluation_engine import OutputReader, fingerprints
from wtb.domain.amounts import is_positive
from wtb.domain.batch import Job, JobStatus
from wtb.domain.batch_record import BatchRecord
from wtb.domain.cases import Case
from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import Evaluator, metric_of
from wtb.domain.job_limits import Resources
from wtb.domain.job_output import output_of
from wtb.domain.limits import Limit
from wtb.domain.ports import Codec
from wtb.domain.secrets import Masker
from wtb.domain.spending import Budget
from wtb.domain.statistics.near_copies import find_near_copies
from wtb.domain.tool_answers import External
from wtb.domain.variants import Combination, label
from wtb.domain.work_order import BatchCode, Versions, WorkOrder
from wtb.domain.workflow import WorkflowDefinition

MOST_WORKERS = 256


Fingerprints = Mapping[str, Mapping[str, Fingerprint]]
"""By combination and node: the fingerprint of the node's implementation."""


@dataclass(frozen=True, kw_only=True)
class CarriedCode:
    """The parts of a batch that no other process can import, for workers that get them from the driver itself.

    A worker that gets code in this way has no files to look into, so it also gets what the driver found there.
    """

    flow: Any
    evaluators: Sequence[Any]
    output: Any
    tools: Mapping[str, Any]
    limits: Mapping[str, Any] = field(default_factory=dict)
    state_types: Sequence[Any] = ()
    """The registered classes of states that no module has."""
    fingerprints: Fingerprints = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """Everything that a batch is to run."""

    name: str
    definition: WorkflowDefinition
    source: str | None
    combinations: Sequence[Combination]
    cases: Sequence[Case]
    repeats: int
    baseline: Combination
    selection: Sequence[Combination]
    """All combinations of the batch, of which only some may run now."""
    evaluators: Sequence[Evaluator]
    output: OutputReader
    """Reads the output of a run from its final state."""
    weights: Mapping[str, float] = field(default_factory=dict)
    primary: str | None = None
    share: bool = True
    fresh: bool | tuple[str, ...] = False
    """Whether to ignore earlier results: all of them, or those of these nodes."""
    seed: int = 0
    retries: int = 0
    workers: int = 1
    runner: str = "threads"
    """The name of the runner."""
    ray_address: str | None = None
    """The Ray cluster that runs the jobs; None if Ray starts on this machine, or another runner is used."""
    budget: Budget = field(default_factory=Budget)
    external: External = External.RUN
    limits: Mapping[str, Limit] = field(default_factory=dict)
    code: BatchCode | None = None
    """Where workers in other processes load the code from; None if jobs run in this process."""
    carried: CarriedCode | None = None
    """The code itself, if workers cannot import it and the runner carries it to them."""
    known_digests: tuple[Mapping[str, str], str] | None = None
    """In a worker with carried code: the digests of the evaluators and of the output, as they were planned."""
    job_timeout_s: float | None = None
    """How long a job may take; None for the limit of the settings."""
    resources: Resources = field(default_factory=Resources)
    remeasure: bool = False
    """Whether to run all jobs again, unshared, if some would not be measured together with the baseline."""

    @cached_property
    def evaluator_fingerprints(self) -> Mapping[str, Fingerprint]:
        """The fingerprint of each evaluator when the batch was planned, by name."""
        return fingerprints(self.evaluators)

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """The digests of these fingerprints."""
        if self.known_digests is not None:
            return self.known_digests[0]
        return {name: each.digest for name, each in self.evaluator_fingerprints.items()}

    @cached_property
    def output_digest(self) -> str:
        """A digest of the rule that reads outputs."""
        if self.known_digests is not None:
            return self.known_digests[1]
        return fingerprint(self.output.read).digest[:16]

    @cached_property
    def fresh_nodes(self) -> frozenset[str]:
        """The nodes whose earlier results are ignored."""
        if isinstance(self.fresh, bool):
            return frozenset(node.name for node in self.definition.nodes) if self.fresh else frozenset()
        return frozenset(self.fresh)

    @cached_property
    def by_label(self) -> Mapping[str, Combination]:
        """The combinations by their labels."""
        return {label(combination): combination for combination in self.combinations}

    @property
    def run_timeout_s(self) -> float | None:
        """The time limit of the run of a job. Where jobs have processes of their own, their runner ends them instead.

        On threads the general limit of the settings does not apply: a run with a limit costs a thread for each node.
        """
        return self.job_timeout_s if self.code is None else None

    @property
    def case_inputs(self) -> dict[str, dict[str, Any]]:
        """The input of each case as it is stored."""
        return {case.id: dict(self.definition.kept(case.input)) for case in self.cases}

    def seed_of(self, job: Job) -> int:
        """Return the seed of a job's run; it depends on the case and the repeat, not on the combination."""
        return zlib.crc32(f"{self.seed}/{job.case_id}/{job.repeat}".encode())


def check_plan(plan: BatchPlan) -> None:
    """Raise InvalidInput for options that make no sense, before anything runs."""
    check_workers(plan.workers)
    _check_whole("repeats", plan.repeats, least=1)
    _check_whole("retries", plan.retries, least=0)
    if plan.job_timeout_s is not None and not is_positive(plan.job_timeout_s):
        raise InvalidInput(f"job_timeout_s must be a finite number above 0, not {plan.job_timeout_s!r}")
    unknown = plan.fresh_nodes - {node.name for node in plan.definition.nodes}
    if unknown:
        known = ", ".join(node.name for node in plan.definition.nodes)
        raise InvalidInput(f"fresh: there is no node {', '.join(sorted(unknown))}; there are {known}")
    if not plan.evaluators:
        raise InvalidInput("a batch needs at least one evaluator, as wtb.ExactMatch('answer')")


def check_workers(workers: object) -> None:
    """Raise InvalidInput for a number of workers that makes no sense."""
    _check_whole("workers", workers, least=1, most=MOST_WORKERS)


def _check_whole(name: str, value: object, *, least: int, most: int | None = None) -> None:
    if isinstance(value, int) and not isinstance(value, bool) and least <= value and (most is None or value <= most):
        return
    span = f"of at least {least}" if most is None else f"from {least} to {most}"
    raise InvalidInput(f"{name} must be a whole number {span}, not {value!r}")


def record_of(plan: BatchPlan, known: Sequence[Job], codec: Codec, masker: Masker) -> BatchRecord:
    """Return the part of a plan that is stored with its batch, given the jobs that the batch has.

    A combination that does not run now stays in the batch if it has results.
    """
    shown = {*plan.by_label, *(job.combination for job in known if job.outcome is not JobStatus.PENDING)}
    return BatchRecord(
        combinations=tuple(name for name in map(label, plan.selection) if name in shown),
        baseline=label(plan.baseline),
        cases=tuple(case.id for case in plan.cases),
        expected=cases_to_keep(plan.cases, codec),
        inputs={case.id: output_of(case.input, masker).text for case in plan.cases},
        expected_texts={
            case.id: output_of(case.expected, masker).text for case in plan.cases if case.expected is not None
        },
        repeats=plan.repeats,
        metrics=tuple(map(metric_of, plan.evaluators)),
        weights=dict(plan.weights),
        primary=plan.primary,
        clusters={case.id: case.cluster for case in plan.cases if case.cluster is not None},
        near_copies=find_near_copies(plan.cases),
        workers=plan.workers,
        cores=os.cpu_count() or 1,
        source=plan.source,
        runner=plan.runner,
        limits=dict(plan.limits),
    )


def work_order_of(
    plan: BatchPlan, workflows: Mapping[str, str], codec: Codec, imports: tuple[str, ...] = ()
) -> WorkOrder | None:
    """Return the work order for workers in other processes; None if jobs run in this process."""
    if plan.code is None:
        return None
    return WorkOrder(
        code=plan.code,
        versions=versions_here(),
        workflows=workflows,
        inputs=codec.encode(plan.case_inputs, "the inputs of the cases")[0],
        evaluator_digests=plan.digests,
        output_digest=plan.output_digest,
        share=plan.share,
        fresh=tuple(sorted(plan.fresh_nodes)),
        seed=plan.seed,
        retries=plan.retries,
        external=plan.external.value,
        imports=imports,
    )


def versions_here() -> Versions:
    """Return the versions of WTB and Python that this process runs."""
    return Versions(wtb=version("workflow-test-bench"), python=platform.python_version())
