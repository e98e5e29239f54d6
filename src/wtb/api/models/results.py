"""Results of batches: scores, verdicts, effects, and single jobs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field

from wtb.api.models.base import AnswerModel, example
from wtb.api.models.figures import Number, PlainText, SpentAnswer, plain
from wtb.application.queries.batch_data import BatchOverview, effects_data, verdict_data
from wtb.domain.evaluation import Metric

if TYPE_CHECKING:
    from wtb.batch_results.grid import GridCase
    from wtb.batch_results.job_results import CaseText, JobResult
    from wtb.domain.statistics.effects import VariantEffects
    from wtb.domain.statistics.verdicts import Verdict
    from wtb.reporting.content import Report


class IntervalAnswer(AnswerModel):
    """A range that contains the true value with 95 % confidence."""

    low: Number
    high: Number


class MetricAnswer(AnswerModel):
    """What an evaluator measures."""

    name: PlainText
    direction: str = Field(description="`higher` or `lower` is better.")
    worst: Number = Field(description="The worst score that there can be, if the evaluator says so.")
    best: Number

    model_config = example(name="exact_match", direction="higher", worst=0, best=1)

    @classmethod
    def of(cls, metric: Metric) -> Self:
        """Return a metric as an answer."""
        return cls(name=metric.name, direction=metric.direction.value, worst=metric.worst, best=metric.best)


class ConclusionAnswer(AnswerModel):
    """Which combination is better on the primary metric, in words; as at the top of a report."""

    headline: PlainText
    detail: PlainText
    finding: str = Field(description="`better`, `worse`, `no evidence`, or empty if nothing can be compared.")


class SummaryAnswer(AnswerModel):
    """The scores of one combination on one metric."""

    mean: Number
    interval: IntervalAnswer | None
    method: str
    cases: int
    clusters: int | None
    scored_runs: int
    errors: int
    missing: int


class NeededCasesAnswer(AnswerModel):
    """How many cases would probably show a difference of this size."""

    low: int | None
    about: int | None
    high: int | None


class FamilyAnswer(AnswerModel):
    """The verdicts that were judged together."""

    is_primary: bool
    metrics: list[PlainText]
    comparisons: int


class VerdictAnswer(AnswerModel):
    """How one combination compares with another on one metric."""

    finding: str = Field(examples=["better"])
    reason: PlainText
    difference: Number
    interval: IntervalAnswer | None
    p_value: Number
    adjusted_p: Number
    wins: int
    ties: int
    losses: int
    cases: int
    dropped: int
    decided_by_failures: int = Field(description="The cases that count as won or lost only because runs failed.")
    effect_size_by_case: Number
    needed_cases: NeededCasesAnswer | None
    family: FamilyAnswer


class MatrixRowAnswer(AnswerModel):
    """One combination: its scores on each metric, and its verdicts against the baseline."""

    combination: PlainText
    is_baseline: bool
    metrics: dict[str, SummaryAnswer]
    verdicts: dict[str, VerdictAnswer]


class FailureRow(AnswerModel):
    """A job that failed, or whose calls could not be taken back."""

    combination: PlainText
    case: PlainText
    repeat: int
    error: PlainText
    run: str | None


class EvaluatorFailureRow(AnswerModel):
    """An evaluator that could not score some runs."""

    evaluator: PlainText
    failed: int
    error: PlainText | None
    run: str | None


class FlakyRow(AnswerModel):
    """A case on which repeats of one combination disagree."""

    case: PlainText
    combination: PlainText
    metrics: list[PlainText]
    node: PlainText | None = Field(description="The first node after which the states of the runs differ.")
    runs: list[str]


class JobCounts(AnswerModel):
    """How many jobs a batch has, by how they ended."""

    total: int
    completed: int
    failed: int
    missing: int


class MatrixAnswer(AnswerModel):
    """The results of a batch, as far as it has run; as `wtb batch show --json`."""

    batch: str
    name: PlainText
    status: str
    baseline: PlainText
    primary: PlainText = Field(description="The metric that decides who wins.")
    metrics: list[MetricAnswer] = Field(description="All metrics; with `failed` if any run failed.")
    conclusion: ConclusionAnswer
    notes: list[PlainText]
    jobs: JobCounts
    spent: SpentAnswer
    matrix: list[MatrixRowAnswer]
    exploratory_means_by_tag: dict[str, Any]
    flaky: list[FlakyRow]
    failures: list[FailureRow]
    evaluation_failures: list[EvaluatorFailureRow]
    not_taken_back: list[FailureRow]
    measured_apart: dict[str, PlainText] = Field(
        description="Combinations whose latency or cost was not measured together with the baseline's, and why."
    )
    unpriced: list[PlainText]
    node_runs: dict[str, Any] = Field(description="How many node runs were executed and shared.")

    @classmethod
    def of(cls, overview: BatchOverview, report: Report) -> Self:
        """Return an overview and the words of its report as an answer."""
        found = report.answer
        return cls.model_validate(
            {
                **plain(overview.to_data()),
                "metrics": [MetricAnswer.of(metric) for metric in report.metrics],
                "conclusion": ConclusionAnswer(headline=found.headline, detail=found.detail, finding=found.finding),
            }
        )


class CompareRow(VerdictAnswer):
    """A verdict with the names of what was compared."""

    combination: PlainText
    against: PlainText
    metric: PlainText

    @classmethod
    def of(cls, verdict: Verdict) -> Self:
        """Return a verdict as an answer."""
        compared = verdict.comparison
        names = {"combination": compared.candidate, "against": compared.baseline, "metric": compared.metric.name}
        return cls.model_validate(plain({**names, **verdict_data(verdict)}))


class EffectVariant(AnswerModel):
    """A variant of a node."""

    node: PlainText
    variant: PlainText


class EffectRow(AnswerModel):
    """The effect of a variant, or of two together, on a metric."""

    metric: PlainText
    variants: list[EffectVariant]
    difference: Number
    interval: IntervalAnswer | None
    p_value: Number
    shown: bool = Field(description="Whether chance is ruled out.")
    units: int
    confounded_with: list[Any]

    model_config = example(
        metric="exact_match",
        variants=[{"node": "retrieve", "variant": "dense"}],
        difference=0.12,
        interval={"low": 0.04, "high": 0.2},
        p_value=0.004,
        shown=True,
        units=50,
        confounded_with=[],
    )

    @classmethod
    def every(cls, found: VariantEffects) -> Iterable[Self]:
        """Yield the effects on a metric as answers."""
        return (cls.model_validate(plain(row)) for row in effects_data(found))


class ParetoAnswer(AnswerModel):
    """The combinations that no other one is shown to beat."""

    metrics: list[PlainText]
    combinations: list[PlainText]

    model_config = example(metrics=["exact_match", "cost_usd"], combinations=["baseline", "retrieve=dense"])


class AttemptAnswer(AnswerModel):
    """One attempt at a job."""

    host: PlainText | None
    worker: str | int | None
    started_at: datetime | None
    ended_at: datetime | None


class JobResultAnswer(AnswerModel):
    """The result of one combination on one case."""

    combination: PlainText = Field(examples=["retrieve=dense"])
    case: PlainText = Field(examples=["c1"])
    repeat: int
    status: str = Field(examples=["completed"])
    scores: dict[str, Any] = Field(description='By metric: a number, or `{"error": …}` if the evaluator failed.')
    error: dict[str, Any] | None
    run: str | None
    latency_s: Number
    usage: dict[str, Any]
    output: PlainText | None = Field(description="The answer as text, masked; only the beginning of a very long one.")
    output_size: int
    is_dead: bool = Field(description="Whether it was given up because it lost its worker too often.")
    not_taken_back: dict[str, PlainText]
    last_attempt: AttemptAnswer

    @classmethod
    def of(cls, job: JobResult) -> Self:
        """Return the result of a job as an answer."""
        return cls(
            combination=job.combination,
            case=job.case_id,
            repeat=job.repeat,
            status=job.status,
            scores=plain(job.scores),
            error=None if job.error is None else plain(job.error),
            run=job.run_id,
            latency_s=job.latency_s,
            usage=plain(job.usage),
            output=job.output,
            output_size=job.output_size,
            is_dead=job.is_dead,
            not_taken_back=dict(job.not_taken_back),
            last_attempt=AttemptAnswer(host=job.host, worker=job.worker, started_at=job.started, ended_at=job.ended),
        )


class GridRow(AnswerModel):
    """The scores of one case on one metric."""

    case: PlainText
    tags: list[PlainText]
    scores: list[Number] = Field(
        description="All repeats of the first combination, then of the next; null without a score. Six digits."
    )
    failed: list[int] = Field(description="The places in `scores` whose run failed.")
    unscored: list[int] = Field(description="The places in `scores` whose evaluator failed.")
    flaky: list[int] = Field(description="The numbers of the combinations whose repeats disagree, on any metric.")
    spread: Number = Field(description="How far the combinations are apart; null if fewer than two have a score.")

    @classmethod
    def of(cls, row: GridCase) -> Self:
        """Return the scores of a case as an answer."""
        return cls(
            case=row.case_id,
            tags=list(row.tags),
            scores=list(row.scores),
            failed=list(row.failed),
            unscored=list(row.unscored),
            flaky=list(row.flaky),
            spread=row.spread,
        )


class GridAnswer(AnswerModel):
    """Every score on one metric, case by case, without outputs: small enough for tens of thousands of results."""

    metric: MetricAnswer
    worst: Number = Field(description="The worst score, declared or seen.")
    best: Number
    combinations: list[PlainText]
    repeats: int
    cases: int = Field(description="How many cases there are in all pages.")
    items: list[GridRow]
    next: str | None = Field(default=None, description="The `cursor` of the next page; null if this is the last one.")


class CaseAnswer(AnswerModel):
    """A case of a batch with the results of all combinations side by side."""

    case: PlainText
    input: PlainText | None = Field(description="As text, masked.")
    expected: PlainText | None = Field(description="As text, masked.")
    tags: list[PlainText]
    cluster: PlainText | None
    results: list[JobResultAnswer]

    @classmethod
    def of(cls, case_id: str, text: CaseText | None, cluster: str | None, jobs: Iterable[JobResult]) -> Self:
        """Return a case as an answer."""
        return cls(
            case=case_id,
            input=None if text is None else text.input,
            expected=None if text is None else text.expected,
            tags=[] if text is None else list(text.tags),
            cluster=cluster,
            results=[JobResultAnswer.of(job) for job in jobs],
        )
