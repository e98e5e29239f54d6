"""BatchResult: the results of a batch by combination, case and metric, and the comparison of two batches."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wtb.application.batches.scoring import kept_cases
from wtb.application.evaluation_engine import error_of
from wtb.application.queries.batch_data import BatchOverview, EvaluatorFailures, JobFailure, MatrixRow
from wtb.application.queries.limits import LimitView
from wtb.domain.batch import Batch, Job, JobStatus, bool_metrics
from wtb.domain.cases import Case
from wtb.domain.display import Display, Displayed, DisplayTable, figure
from wtb.domain.errors import InvalidInput, MissingLibrary
from wtb.domain.evaluation import (
    FAILED,
    OVERALL,
    PRICES,
    Absent,
    Errors,
    Metric,
    Score,
    ScoreTable,
    beats,
    check_weights,
    overall,
    pareto,
)
from wtb.domain.figures import NOTHING
from wtb.domain.job_attempt import JobAttempt, RayIds
from wtb.domain.job_output import output_of
from wtb.domain.job_record import error_data
from wtb.domain.observation import run_of
from wtb.domain.spending import Spent
from wtb.domain.statistics.agreement import Agreement, agreement_of
from wtb.domain.statistics.measurement import apart_from_baseline, is_measured
from wtb.domain.statistics.near_copies import NearCopies
from wtb.domain.variants import parse_label
from wtb.domain.workflow import BASELINE

_FORMULA = tuple("=+-@\t\r\n")
"""A spreadsheet treats a cell that begins with one of these as a formula."""

MOST_FLAKY = 50
"""How many flaky cases are listed at most, because the node of each must be looked up in its runs."""

_BUSY = 0.7
"""If threads keep at least this share of a core busy, they mostly compute."""

_SHORT_S = 5.0
"""Starting processes takes a second or two: a shorter batch gains nothing."""

_WORTH_IT = 1.2
"""Another runner is only suggested if it would be at least this many times as quick."""

if TYPE_CHECKING:
    from wtb.bench import Bench
    from wtb.domain.statistics.comparisons import Summary
    from wtb.domain.statistics.effects import VariantEffects
    from wtb.domain.statistics.verdicts import Verdict
    from wtb.runs import Run


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """The result of one combination on one case."""

    combination: str
    case_id: str
    repeat: int
    status: str
    scores: Mapping[str, Any]
    error: Mapping[str, Any] | None
    run_id: str | None
    latency_s: float | None
    usage: Mapping[str, float]
    output: str | None
    """The answer as text, masked; only the first characters of a very long one. None if the job failed."""
    output_size: int
    """How many characters the whole answer has."""
    not_taken_back: Mapping[str, str]
    """The runs whose external calls should have been taken back and were not, each with the reason.

    These are the run of this job, and runs that were given up before it.
    """
    attempts: tuple[JobAttempt, ...] = ()
    """Each attempt at the job: worker, host, started, ended and how it ended. Empty for jobs of earlier versions."""
    is_dead: bool = False
    """Whether the job was given up because it lost its worker too often."""
    bench: Bench = field(repr=False, compare=False)

    @property
    def run(self) -> Run:
        """The run of this job, for example to look at its history or to fork it."""
        if self.run_id is None:
            raise InvalidInput(f"{self.combination} on {self.case_id} has no run: it failed before it began")
        return self.bench.get(self.run_id)

    @property
    def worker(self) -> str | None:
        """The number of the process that made the last attempt."""
        return self.attempts[-1].pid if self.attempts else None

    @property
    def host(self) -> str | None:
        """The machine of the last attempt."""
        return self.attempts[-1].host if self.attempts else None

    @property
    def ray(self) -> RayIds | None:
        """Ray's ids of the last attempt, if it was made on Ray."""
        return self.attempts[-1].ray if self.attempts else None

    @property
    def started(self) -> datetime | None:
        """When the last attempt started."""
        return self.attempts[-1].started if self.attempts else None

    @property
    def ended(self) -> datetime | None:
        """When the last attempt ended."""
        return self.attempts[-1].ended if self.attempts else None

    @property
    def state(self) -> dict[str, Any]:
        """The final state of the run."""
        return self.run.state


@dataclass(frozen=True, kw_only=True)
class CaseText:
    """A case as people read it."""

    input: str | None
    """None for batches of earlier versions."""
    expected: str | None
    tags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FlakyCase:
    """A case on which the repeats of one combination disagree, with the metrics and the runs."""

    case_id: str
    combination: str
    metrics: tuple[str, ...]
    runs: tuple[str, ...]
    bench: Bench = field(repr=False, compare=False)

    @cached_property
    def node(self) -> str | None:
        """The first node after which the states of the runs differ; None if the runs are gone, or do not differ."""
        return self.bench.services.queries.first_difference(self.runs)

    def to_data(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "case": self.case_id,
            "combination": self.combination,
            "metrics": list(self.metrics),
            "node": self.node,
            "runs": list(self.runs),
        }


class BatchResult(Displayed):
    """The results of a batch, as far as it has run."""

    def __init__(self, bench: Bench, batch: Batch, jobs: Sequence[Job], *, tags: Sequence[str] = ()) -> None:
        self._bench = bench
        self._tags = tags
        self._all = jobs
        self.spent = sum((job.spent for job in jobs), Spent(s=batch.spent_s))
        """Money, tokens and seconds that the batch has used, over all the times it ran."""
        wanted = set(batch.record.combinations), set(batch.record.cases)
        self._jobs = [
            job
            for job in jobs
            if job.combination in wanted[0] and job.case_id in wanted[1] and job.repeat < batch.record.repeats
        ]
        self.batch = batch
        self._verdicts: dict[tuple[str, int], tuple[Verdict, ...]] = {}

    def __repr__(self) -> str:
        return f"<BatchResult {self.batch.name}: {self.batch.status}, {len(self._jobs)} jobs>"

    def _display(self) -> Display:
        metrics = list(self.shown_metrics)
        rows = [
            (
                row.combination,
                *(_mean(row.summaries[metric]) for metric in metrics),
                "baseline" if row.is_baseline else str(row.verdicts[self.primary].finding),
            )
            for row in self.matrix
        ]
        return Display(
            title=f"Batch {self.batch.name}: {self.status.replace('_', ' ')}, {len(self._jobs)} jobs, {self.left} left",
            tables=(DisplayTable.of(("combination", *metrics, f"on {self.primary}"), rows),),
            lines=tuple(self.notes),
        )

    @property
    def id(self) -> str:
        """The id of the batch."""
        return self.batch.id

    @property
    def status(self) -> str:
        """The status: `pending`, `running`, `completed`, `completed_with_errors`, `failed` or `cancelled`."""
        return self.batch.status.value

    @property
    def baseline(self) -> str:
        """The combination that the others are compared with."""
        return self.batch.record.baseline

    @property
    def combinations(self) -> list[str]:
        """All combinations, the baseline first."""
        return list(self.batch.record.combinations)

    @property
    def cases(self) -> list[str]:
        """The ids of all cases."""
        return list(self.batch.record.cases)

    @cached_property
    def case_texts(self) -> dict[str, CaseText]:
        """The input and the expected value of each case as text, masked, and its tags."""
        services, record = self._bench.services, self.batch.record
        kept = kept_cases(record, services.codec)

        def expected(case: Case) -> str | None:
            if case.expected is None or case.id in record.expected_texts:
                return record.expected_texts.get(case.id)
            return output_of(case.expected, services.masker).text  # a batch of an earlier version

        return {
            case.id: CaseText(
                input=record.inputs.get(case.id),
                expected=expected(case),
                tags=case.tags,
            )
            for case in kept.values()
        }

    @property
    def metrics(self) -> dict[str, Metric]:
        """The metrics by name, each with its better direction and its scale; with weights, also `overall`."""
        declared = self.batch.record.metrics
        found = {each.name: each.of_bools() if each.name in self._bools else each for each in declared}
        return {**found, OVERALL.name: OVERALL} if self.weights else found

    @cached_property
    def _bools(self) -> frozenset[str]:
        """The metrics whose scores are all true or false: their worst is 0 and their best is 1."""
        return bool_metrics(self._jobs, self.batch.record.bools)

    @property
    def left(self) -> int:
        """How many jobs are still to run, including failed ones that will run again."""
        return self.batch.record.jobs - sum(job.status is not JobStatus.PENDING for job in self._jobs)

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each metric in the overall score; empty if there is none."""
        return dict(self.batch.record.weights)

    @property
    def not_taken_back(self) -> list[JobFailure]:
        """The runs whose external calls could not be taken back (`external="reverse"`), with the reasons."""
        return [
            JobFailure(combination=job.combination, case_id=job.case_id, repeat=job.repeat, error=why, run_id=run_id)
            for job in self.results
            for run_id, why in job.not_taken_back.items()
        ]

    @property
    def primary(self) -> str:
        """The metric that decides who wins: the one you named, else the overall score, else the first."""
        return self.batch.record.primary or (OVERALL.name if self.weights else next(iter(self.metrics)))

    @property
    def clusters(self) -> dict[str, str]:
        """The cluster of each case that has one."""
        return dict(self.batch.record.clusters)

    @property
    def notes(self) -> list[str]:
        """Sentences to keep in mind when you read the verdicts."""
        found = self.batch.record.near_copies
        tagged = " or ".join(self._tags)
        only = f"Only cases tagged {tagged} are counted here ({len(self.cases):,}): take findings as hints."
        copies = [] if found is None else [_near_copies_note(found, len(self.cases))]
        return [*([only] if self._tags else []), *copies]

    @property
    def tags(self) -> dict[str, list[str]]:
        """The cases of each tag, the most frequent tag first."""
        found: dict[str, list[str]] = {}
        for case, text in self.case_texts.items():
            for tag in text.tags:
                found.setdefault(tag, []).append(case)
        return dict(sorted(found.items(), key=lambda item: -len(item[1])))

    def tagged(self, *tags: str) -> BatchResult:
        """Return the result on the cases that have any of these tags; nothing is stored.

        If you look at many tags, one of them will show something by chance: take such a finding as a hint, and check
        it with new cases.
        """
        known = self.tags
        unknown = [tag for tag in tags if tag not in known]
        if unknown:
            there = f"the tags are {', '.join(known)}" if known else "no case has a tag"
            raise InvalidInput(f"no case of batch {self.batch.name!r} has the tag {unknown[0]!r}; {there}")
        wanted = {case for tag in tags for case in known[tag]}
        cases = tuple(case for case in self.batch.record.cases if case in wanted)
        return BatchResult(self._bench, self.batch.noted(cases=cases, near_copies=None), self._all, tags=tags)

    def means_by_tag(self, metric: str | None = None) -> dict[str, dict[str, float | None]]:
        """Return the mean of each combination on the cases of each tag; without a metric, on the primary one.

        These means are exploratory: they are not tested.
        """
        from wtb.domain.statistics.comparisons import summarise

        name = metric or self.primary
        tables = {tag: self.tagged(tag).table(name) for tag in self.tags}
        return {tag: {each: found.mean for each, found in summarise(table).items()} for tag, table in tables.items()}

    def flaky(self) -> list[FlakyCase]:
        """Return the cases on which repeats of one combination disagree: on a score, or on whether they fail.

        Latency, cost and tokens do not count. `node` is the first node after which the runs have different states.
        """
        found: dict[tuple[str, str], list[JobResult]] = {}
        for job in self.results:
            found.setdefault((job.case_id, job.combination), []).append(job)
        return [
            FlakyCase(
                case_id=case,
                combination=combination,
                metrics=metrics,
                runs=tuple(job.run_id for job in jobs if job.run_id is not None),
                bench=self._bench,
            )
            for (case, combination), jobs in found.items()
            if (metrics := self._disagreement(jobs))
        ]

    def _disagreement(self, jobs: Sequence[JobResult]) -> tuple[str, ...]:
        """Return the metrics on which jobs disagree, and `failed` if only some of them failed."""
        if len(jobs) < 2:
            return ()
        judged = [name for name in self.metrics if name not in PRICES and not is_measured(name, self.weights)]
        done = [job for job in jobs if job.status == JobStatus.COMPLETED]
        differing = [name for name in judged if len({_number(job.scores.get(name)) for job in done}) > 1]
        return (*differing, *([FAILED.name] if 0 < len(done) < len(jobs) else []))

    def weighted(self, weights: Mapping[str, float]) -> BatchResult:
        """Return the same result with an overall score from these weights; nothing is stored."""
        check_weighted(self.batch.record.metric_names, weights)
        return BatchResult(self._bench, self.batch.noted(weights=dict(weights)), self._all)

    @property
    def results(self) -> list[JobResult]:
        """Every finished job: combination, case, repeat, status, scores, error, latency, usage and run."""
        return [
            JobResult(
                combination=job.combination,
                case_id=job.case_id,
                repeat=job.repeat,
                status=job.outcome.value,
                scores=self._scores(job),
                error=None if job.record.error is None else error_data(job.record.error),
                run_id=job.execution_id,
                latency_s=job.record.latency_s,
                usage=job.record.usage,
                output=None if job.record.output is None else job.record.output.text,
                output_size=0 if job.record.output is None else job.record.output.size,
                not_taken_back={run: why for run, why in job.record.take_back.items() if why},
                attempts=job.record.attempts,
                is_dead=job.record.is_dead,
                bench=self._bench,
            )
            for job in self._jobs
            if job.outcome is not JobStatus.PENDING
        ]

    @property
    def limits(self) -> tuple[LimitView, ...]:
        """The limits of the batch as they are now: width, calls that run and wait, and the circuit breaker."""
        return self._bench.services.queries.list_limits(self.batch)

    @property
    def dead_letters(self) -> list[JobResult]:
        """The jobs that were given up because they lost their worker too often."""
        return [job for job in self.results if job.is_dead]

    def _scores(self, job: Job) -> Mapping[str, Any]:
        """Return the scores of a job, including the overall score if there is one."""
        scores = job.record.scores or {}
        if self._overall is None or not scores:
            return scores
        found = self._overall.combinations[job.combination][job.case_id][job.repeat]
        lacking = {"error": "a score that it is made of is missing"}
        return {**scores, OVERALL.name: lacking if isinstance(found, Absent) else found}

    @cached_property
    def _overall(self) -> ScoreTable | None:
        weights = self.weights
        return overall([self.table(name) for name in weights], weights) if weights else None

    @property
    def judging(self) -> dict[str, Any]:
        """What the evaluators used: tokens, cost, and the models without a known price. `spent` includes it."""
        used = sum((job.record.judging for job in self._jobs), NOTHING)
        return {**used.totals(), **({"unpriced": list(used.unpriced)} if used.unpriced else {})}

    def agreement(self, metric: str, label: str) -> Agreement:
        """Return how well the scores of a judge agree with those that people gave, over all combinations.

        `label` is the key in `expected` under which cases carry a person's score. Runs without a score, and cases
        without a label, are left out and counted.
        """
        return agreement_of(self._labelled(metric, label))

    def _labelled(self, metric: str, label: str) -> Iterator[tuple[float | None, float | None]]:
        """Yield the score and the label of each finished job."""
        cases = kept_cases(self.batch.record, self._bench.services.codec)
        for job in self._jobs:
            expected = cases[job.case_id].expected
            given = expected.get(label) if isinstance(expected, Mapping) else None
            if job.record.scores is not None:
                yield job.record.numbers.get(metric), float(given) if isinstance(given, int | float) else None

    @property
    def sharing(self) -> dict[str, Any]:
        """How many node runs the last run of the batch executed and shared, and why some nodes could not be shared."""
        unshared: dict[str, str] = {}
        for job in self._jobs:
            unshared |= job.record.unshared
        last = self.batch.record.trace
        latest = [job for job in self._jobs if job.record.trace and last and run_of(job.record.trace) == run_of(last)]
        return {
            "executed": sum(job.record.executed or 0 for job in latest),
            "shared": sum(job.record.shared for job in latest),
            "not_shareable": unshared,
        }

    @property
    def outside(self) -> dict[str, list[str]]:
        """Nodes that were seen to use the network or other programs, and what they used."""
        return {node: list(names) for node, names in self.batch.record.outside.items()}

    @property
    def unpriced(self) -> list[str]:
        """Models without a known price; the cost figures do not include them."""
        return sorted({model for job in self._jobs for model in job.record.unpriced})

    @property
    def crowding(self) -> tuple[int, int] | None:
        """The number of parallel jobs and of cores, if there were more jobs than cores; None otherwise.

        Nodes that compute slowed each other down then.
        """
        workers, cores = self.batch.record.workers, self.batch.record.cores
        return (workers, cores) if workers > cores else None

    @property
    def quicker_in_processes(self) -> float | None:
        """How many times as quick the batch would be in processes; None if that would not help.

        It helps if the batch ran in threads, which share one core when they compute, and that core was busy.
        """
        record = self.batch.record
        used, usable = record.cores_used, min(record.workers, record.cores)
        if used is None or used < _BUSY or usable < 2 or self.spent.s < _SHORT_S:
            return None
        quicker = usable / max(used, 1.0)
        return quicker if quicker >= _WORTH_IT else None

    @property
    def measured_apart(self) -> dict[str, str]:
        """Combinations whose latency or cost was not measured together with the baseline's, and why."""
        measured = any(is_measured(name, self.weights) for name in self.metrics)
        return apart_from_baseline(self._jobs, self.baseline) if measured else {}

    def _jobs_of(self, combination: str) -> list[Job]:
        """Return the stored jobs of a combination."""
        return [job for job in self._jobs if job.combination == combination]

    @property
    def shown_metrics(self) -> dict[str, Metric]:
        """The metrics to show: all of them, and the share of failed runs if any run failed."""
        return {**self.metrics, **({FAILED.name: FAILED} if any(self._failed) else {})}

    @cached_property
    def _failed(self) -> list[bool]:
        """Whether each job failed, or an evaluator could not score it."""
        metrics = self.metrics
        return [_has_failed(job, metrics) for job in self._jobs]

    @property
    def _all_metrics(self) -> dict[str, Metric]:
        return {**self.metrics, FAILED.name: self.metrics.get(FAILED.name, FAILED)}

    def table(self, metric: str) -> ScoreTable:
        """Return all scores on one metric, by combination and case, one per repeat. `failed` is a metric, too."""
        if metric not in self._all_metrics:
            raise InvalidInput(f"there is no metric {metric!r}; this batch has {', '.join(self._all_metrics)}")
        if metric == OVERALL.name and self._overall is not None:
            return self._overall
        repeats, metrics = self.batch.record.repeats, self.metrics
        scores: dict[str, dict[str, list[Score]]] = {
            name: {case: [Absent.MISSING] * repeats for case in self.batch.record.cases} for name in self.combinations
        }
        for job, failed in zip(self._jobs, self._failed, strict=True):
            if job.outcome is not JobStatus.PENDING:
                score = _score(job, metric) if metric in metrics else float(failed)
                scores[job.combination][job.case_id][job.repeat] = score
        return ScoreTable(metric=self._all_metrics[metric], combinations=scores, clusters=self.clusters)

    def compare(
        self, *metrics: str, errors: str = "worst", max_errors: int = 0, before: BatchResult | None = None
    ) -> tuple[Verdict, ...]:
        """Compare every combination with the baseline, and return the verdicts on these metrics, or on all.

        All metrics are always judged, in two families: the primary metric, and all others together with `failed`, the
        share of failed runs.

        - `errors`: with `"worst"`, a failed run scores the worst that the metric declares; if it declares none, the
          case counts as lost. With `"drop"`, its case is left out, which flatters a combination that fails on hard
          cases.
        - `max_errors`: a combination that fails on more cases than this where the baseline does not is never called
          better.
        - `before`: another result. Each combination that both results have is then compared with itself, on the cases
          that both have.
        """
        if before is not None:
            return compare_results(before, self, metrics, errors=errors, max_errors=max_errors)
        for metric in metrics:
            self.table(metric)
        judged = self._judged(errors, max_errors)
        return _shown(each for each in judged if not metrics or each.comparison.metric.name in metrics)

    def _judged(self, errors: str, max_errors: int) -> tuple[Verdict, ...]:
        from wtb.domain.statistics.comparisons import compare  # numpy and scipy take half a second to load
        from wtb.domain.statistics.verdicts import verdicts

        if len(self.combinations) < 2:
            return ()
        if (errors, max_errors) not in self._verdicts:
            tables = [self.table(metric) for metric in self._all_metrics]
            found = compare(tables, self.baseline, errors=Errors(errors))
            self._verdicts[errors, max_errors] = verdicts(found, primary=self.primary, max_errors=max_errors)
        return self._verdicts[errors, max_errors]

    def effects(self, metric: str | None = None, *, errors: str = "worst") -> VariantEffects:
        """Return how much each variant matters for a metric, averaged over the variants of all other nodes.

        Without a metric, it is the primary one. The effects of all variants, and the interactions of every two, are
        tested together. `errors` means the same as in `compare`.
        """
        from wtb.domain.statistics.effects import effects

        chosen = {name: parse_label(name) for name in self.combinations}
        nodes = dict.fromkeys(node for each in chosen.values() for node in each)
        settings = {name: {node: each.get(node, BASELINE) for node in nodes} for name, each in chosen.items()}
        varied = {node for node in nodes if len({each[node] for each in settings.values()}) > 1}
        defaults = {node: settings[self.baseline][node] for node in nodes if node in varied}
        return effects(self.table(metric or self.primary), settings, defaults, errors=Errors(errors))

    @property
    def matrix(self) -> list[MatrixRow]:
        """One row per combination with its summaries and verdicts on each metric; the baseline comes first."""
        summaries = self._summaries(tuple(self._all_metrics))
        found = self.compare()
        return [
            MatrixRow(
                combination=name,
                is_baseline=name == self.baseline,
                summaries={metric: summaries[metric][name] for metric in self._all_metrics},
                verdicts={each.comparison.metric.name: each for each in found if each.comparison.candidate == name},
            )
            for name in self.combinations
        ]

    def overview(self, rows: Sequence[MatrixRow] | None = None) -> BatchOverview:
        """Return the results for programs, with these rows of the matrix or with all."""
        failed = failed_jobs(self)
        return BatchOverview(
            batch=self.batch,
            primary=self.primary,
            notes=self.notes,
            completed=len(self.results) - len(failed),
            failed=len(failed),
            sharing=self.sharing,
            spent=self.spent,
            measured_apart=self.measured_apart,
            unpriced=self.unpriced,
            matrix=self.matrix if rows is None else rows,
            failures=[_failure(job) for job in failed],
            tags={tag: {"cases": len(self.tags[tag]), "means": means} for tag, means in self.means_by_tag().items()},
            flaky=[each.to_data() for each in self.flaky()[:MOST_FLAKY]],
            not_taken_back=self.not_taken_back,
            evaluator_failures=[_evaluator_failures(metric, jobs) for metric, jobs in unscored_jobs(self).items()],
        )

    def _summaries(self, metrics: Sequence[str]) -> dict[str, dict[str, Summary]]:
        from wtb.domain.statistics.comparisons import summarise

        return {metric: summarise(self.table(metric)) for metric in metrics}

    def pareto(self, *metrics: str) -> tuple[str, ...]:
        """Return the combinations that no other one is shown to beat.

        One is left out if another has at least as good a mean on each of these metrics, and is better on one of them
        beyond chance.
        """
        from wtb.domain.statistics.verdicts import beyond_chance

        wanted = metrics or tuple(self.metrics)
        summaries = self._summaries(wanted)
        points = {
            name: {metric: figure for metric in wanted if (figure := summaries[metric][name].mean) is not None}
            for name in self.combinations
        }
        whole = {name: point for name, point in points.items() if len(point) == len(wanted)}
        directions = {metric: self._all_metrics[metric].direction for metric in wanted}
        pairs = [(one, other) for one in whole for other in whole if beats(whole[one], whole[other], directions)]
        shown = beyond_chance([self.table(metric) for metric in wanted], pairs)
        return pareto(whole, directions, lambda better, worse: (better, worse) in shown)

    def different(self, metric: str) -> list[str]:
        """Return the cases on which the combinations disagree, widest spread first."""
        table = self.table(metric)
        means = {name: known_or_worst(table, name) for name in self.combinations}
        spread = {
            case: max(found) - min(found)
            for case in self.batch.record.cases
            if len(found := [own[case] for own in means.values() if case in own]) > 1
        }
        return sorted((case for case, width in spread.items() if width > 0), key=lambda case: -spread[case])

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat row per job, for tables and files; with a column `failed` if any run failed."""
        metrics, with_failures = self.metrics, any(self._failed) and FAILED.name not in self.metrics
        done = zip(self._jobs, self._failed, strict=True)
        failed = [has_failed for job, has_failed in done if job.outcome is not JobStatus.PENDING]
        texts = self.case_texts
        return [
            {
                "combination": each.combination,
                "case": each.case_id,
                "repeat": each.repeat,
                "status": each.status,
                "input": texts[each.case_id].input,
                "expected": texts[each.case_id].expected,
                "output": each.output,
                **{name: _number(each.scores.get(name)) for name in metrics},
                **({FAILED.name: int(has_failed)} if with_failures else {}),
                "latency_s": each.latency_s,
                "error": _why(each),
                "run": each.run_id,
                "worker": each.worker,
                "host": each.host,
                "started": None if each.started is None else each.started.isoformat(),
                "ended": None if each.ended is None else each.ended.isoformat(),
                "attempts": len(each.attempts),
                **({} if each.ray is None else {"ray_actor": each.ray.actor, "ray_task": each.ray.task}),
            }
            for each, has_failed in zip(self.results, failed, strict=True)
        ]

    def to_csv(self, path: str | Path) -> None:
        """Write one row per job as CSV. Texts that a spreadsheet would run as a formula are prefixed with `'`."""
        rows = self.rows()
        columns = list(dict.fromkeys(key for row in rows for key in row))
        with Path(path).open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
            writer = csv.writer(file)
            writer.writerow(map(_cell, columns))
            writer.writerows([_cell(row.get(column)) for column in columns] for row in rows)

    def report(self, path: str | Path) -> None:
        """Write the result as one self-contained HTML file or as Markdown; the path ends in .html or .md."""
        from wtb.reporting import write_report

        write_report(self, Path(path))

    def to_pandas(self) -> Any:
        """Return one row per job as a DataFrame; needs pandas."""
        try:
            import pandas as pd  # type: ignore[import-untyped,import-not-found,unused-ignore]
        except ImportError as error:
            raise MissingLibrary("to_pandas needs pandas: pip install pandas; to_csv does without") from error
        return pd.DataFrame(self.rows())


def failed_jobs(result: BatchResult) -> list[JobResult]:
    """Return the jobs that failed."""
    return [job for job in result.results if job.status == JobStatus.FAILED]


def unscored_jobs(result: BatchResult) -> dict[str, list[JobResult]]:
    """Return, for each evaluator that failed, the jobs that it could not score."""
    found = {
        metric: [job for job in result.results if error_of(job.scores.get(metric)) is not None]
        for metric in result.batch.record.metric_names
    }
    return {metric: jobs for metric, jobs in found.items() if jobs}


def error_line(job: JobResult) -> str:
    """Return the error of a failed job in one line; empty if it did not fail."""
    return "" if job.error is None else f"{job.error.get('type')}: {job.error.get('message')}"


def _failure(job: JobResult) -> JobFailure:
    return JobFailure(
        combination=job.combination,
        case_id=job.case_id,
        repeat=job.repeat,
        error=error_line(job),
        run_id=job.run_id,
    )


def _evaluator_failures(metric: str, jobs: Sequence[JobResult]) -> EvaluatorFailures:
    first = jobs[0]
    return EvaluatorFailures(
        evaluator=metric, failed=len(jobs), error=error_of(first.scores[metric]), run_id=first.run_id
    )


def _why(job: JobResult) -> str | None:
    """Return why a job failed, or why evaluators gave it no score."""
    if job.error is not None:
        return error_line(job)
    return "; ".join(why for score in job.scores.values() if (why := error_of(score))) or None


def _cell(value: Any) -> Any:
    """Return a cell that no spreadsheet runs as a formula; numbers, also as text, stay as they are."""
    if not isinstance(value, str) or not value.startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def _number(score: Any) -> float | None:
    return None if error_of(score) else score


def known_or_worst(table: ScoreTable, combination: str) -> dict[str, float]:
    """Return the mean of each case, to sort and colour cases by.

    A case that failed and has no score gets the worst score of the table, or less if all scores are the same.
    """
    worst, means = table.worst(), table.case_means(combination)
    if worst is None:
        return means
    beyond = worst - table.metric.direction.sign if worst == table.best() else worst
    failed = [case for case, share in table.failed(combination).items() if share and case not in means]
    return {**means, **dict.fromkeys(failed, beyond)}


def compare_results(
    before: BatchResult,
    after: BatchResult,
    metrics: Sequence[str] = (),
    *,
    pairs: Sequence[tuple[str, str]] = (),
    errors: str = "worst",
    max_errors: int = 0,
) -> tuple[Verdict, ...]:
    """Compare combinations of one result with those of another, case by case; return the verdicts on these metrics.

    `pairs` holds combinations before and after; without any, each one that both have is compared with itself. All
    common metrics are judged, in the same two families as within one result. Without metrics, return the verdicts on
    all.
    """
    from wtb.domain.statistics.comparisons import compare_pairs
    from wtb.domain.statistics.verdicts import verdicts

    pairs = pairs or [(name, name) for name in before.combinations if name in after.combinations]
    common = [name for name in before.metrics if name in after.metrics]
    if not pairs or not (common or metrics):
        what = "metric" if pairs else "combination"
        raise InvalidInput(f"batches {before.batch.name!r} and {after.batch.name!r} have no {what} in common")
    comparable = [name for name in common if before.metrics[name].direction is after.metrics[name].direction]
    asked = [*dict.fromkeys([*(comparable if metrics else common), *metrics, FAILED.name])]
    tables = [(before.table(metric), after.table(metric)) for metric in asked]
    joined = [_joined(before, after, old, new, pair) for old, new in tables for pair in pairs]
    primary = next((name for name in (after.primary, before.primary) if name in asked), asked[0])
    found = verdicts(compare_pairs(joined, errors=Errors(errors)), primary=primary, max_errors=max_errors)
    return _shown(each for each in found if not metrics or each.comparison.metric.name in metrics)


def _shown(found: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Return verdicts that display as a table."""
    from wtb.domain.statistics.verdicts import Verdicts

    return Verdicts(found)


def _mean(summary: Summary) -> str:
    return figure(summary.mean)


def _joined(
    before: BatchResult, after: BatchResult, old: ScoreTable, new: ScoreTable, pair: tuple[str, str]
) -> tuple[ScoreTable, str]:
    """Return the scores of two combinations in one table, and the name of the first one there."""
    metric = new.metric.on_scale_of(old.metric)
    if metric.direction is not old.metric.direction:
        directions = f"{old.metric.direction} was better in {before.batch.name}, {metric.direction} in"
        raise InvalidInput(f"{metric.name} cannot be compared: {directions} {after.batch.name}")
    first, second = f"{before.batch.name}:{pair[0]}", f"{after.batch.name}:{pair[1]}"
    if first == second and before.batch.id == after.batch.id:
        raise InvalidInput(f"{first} is the same on both sides; name two batches, or BATCH:COMBINATION")
    if first == second:  # the labels must differ: it is another batch of the same name, or a saved baseline
        first = f"{before.batch.name} ({before.batch.id}):{pair[0]}"
    scores = {first: old.combinations[pair[0]], second: new.combinations[pair[1]]}
    return ScoreTable(metric=metric, combinations=scores, clusters={**old.clusters, **new.clusters}), first


def _score(job: Job, metric: str) -> Score:
    score = (job.record.scores or {}).get(metric)
    if score is None and job.has_run and job.status is JobStatus.PENDING:
        return Absent.MISSING  # it is not scored yet
    return Absent.ERROR if score is None or error_of(score) else float(score)


def _has_failed(job: Job, metrics: Iterable[str]) -> bool:
    """Whether the run failed, or an evaluator could not score it."""
    if job.outcome is JobStatus.PENDING:
        return False
    measured = [metric for metric in metrics if metric != OVERALL.name]
    return job.outcome is JobStatus.FAILED or any(_score(job, metric) is Absent.ERROR for metric in measured)


def _near_copies_note(found: NearCopies, cases: int) -> str:
    return (
        f"{found.cases:,} of {cases:,} cases are near copies of others, as {found.example[0]} and {found.example[1]}: "
        "copies make verdicts surer than they should be. Give cases that belong together the same `cluster`."
    )


def check_weighted(metrics: Sequence[str], weights: Mapping[str, float]) -> None:
    """Raise InvalidInput if these weights make no overall score for a batch with these metrics."""
    if FAILED.name in metrics:
        raise InvalidInput(f"every batch has a metric {FAILED.name!r}; give the evaluator of that name another")
    unknown = [name for name in weights if name not in metrics]
    if unknown:
        raise InvalidInput(f"weights: there is no metric {unknown[0]!r}; there are {', '.join(metrics)}")
    if weights and OVERALL.name in metrics:
        raise InvalidInput(f"weights make a metric {OVERALL.name!r}; give the evaluator of that name another")
    check_weights([*weights], weights)


def check_primary(metrics: Sequence[str], weights: Mapping[str, float], primary: str | None) -> None:
    """Raise InvalidInput if the batch does not have this primary metric."""
    known = [*metrics, *([OVERALL.name] if weights else [])]
    if primary is not None and primary not in known:
        raise InvalidInput(f"primary={primary!r}: there is no such metric; there are {', '.join(known)}")
