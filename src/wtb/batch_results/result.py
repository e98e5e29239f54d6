"""BatchResult: the results of a batch by combination, case and metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wtb.application.batches.scoring import kept_cases
from wtb.application.queries.batch_data import BatchOverview, JobFailure, MatrixRow
from wtb.application.queries.limits import LimitView
from wtb.batch_results.comparison import check_weighted, compare_results, known_or_worst, shown
from wtb.batch_results.job_results import (
    CaseText,
    FlakyCase,
    JobResult,
    evaluator_failures,
    failed_jobs,
    failure_of,
    number_of,
    unscored_jobs,
)
from wtb.batch_results.score_tables import ScoreTables
from wtb.batch_results.speed import is_short, quicker_in_processes, workers_here
from wtb.batch_results.tables import row_of, write_csv
from wtb.domain.batch import Batch, Job, JobStatus
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
    ScoreTable,
    beats,
    pareto,
)
from wtb.domain.figures import NOTHING
from wtb.domain.job_output import output_of
from wtb.domain.job_record import error_data
from wtb.domain.observation import run_of
from wtb.domain.spending import Spent
from wtb.domain.statistics.agreement import Agreement, agreement_of
from wtb.domain.statistics.measurement import apart_from_baseline, is_measured
from wtb.domain.statistics.near_copies import NearCopies
from wtb.domain.variants import parse_label
from wtb.domain.workflow import BASELINE

MOST_FLAKY = 50
"""How many flaky cases are listed at most, because the node of each must be looked up in its runs."""

if TYPE_CHECKING:
    from wtb.batch_results.source import ResultSource
    from wtb.domain.statistics.comparisons import Summary
    from wtb.domain.statistics.effects import VariantEffects
    from wtb.domain.statistics.verdicts import Verdict


class BatchResult(Displayed):
    """The results of a batch, as far as it has run."""

    def __init__(self, bench: ResultSource, batch: Batch, jobs: Sequence[Job], *, tags: Sequence[str] = ()) -> None:
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
        self._score_tables = ScoreTables(batch, self._jobs)

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
        """The status: `pending`, `running`, `paused`, `completed`, `completed_with_errors`, `failed` or `cancelled`.

        A batch is paused if the process that ran it is gone or silent, for example because the database was away.
        """
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
        return self._score_tables.metrics

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
        differing = [name for name in judged if len({number_of(job.scores.get(name)) for job in done}) > 1]
        return (*differing, *([FAILED.name] if 0 < len(done) < len(jobs) else []))

    def weighted(self, weights: Mapping[str, float]) -> BatchResult:
        """Return the same result with an overall score from these weights; nothing is stored."""
        check_weighted(self.batch.record.metric_names, weights)
        return BatchResult(self._bench, self.batch.noted(weights=dict(weights)), self._all)

    @property
    def results(self) -> list[JobResult]:
        """Every finished job: combination, case, repeat, status, scores, error, latency, usage and run."""
        return list(self._results)

    @cached_property
    def _results(self) -> list[JobResult]:
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
        if self._score_tables.overall is None or not scores:
            return scores
        found = self._score_tables.overall.combinations[job.combination][job.case_id][job.repeat]
        lacking = {"error": "a score that it is made of is missing"}
        return {**scores, OVERALL.name: lacking if isinstance(found, Absent) else found}

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
        workers, cores = workers_here(self.batch, self._jobs), self.batch.record.cores
        return (workers, cores) if workers > cores else None

    @property
    def quicker_in_processes(self) -> float | None:
        """How many times as quick the batch would be in processes at most; None if that would not help.

        It helps if the batch ran in threads and its nodes computed: then they shared one core. A batch of a few seconds
        gains nothing, whatever this says, because processes take a second or two to start.
        """
        return quicker_in_processes(self.batch, self._jobs, self.spent.s)

    @property
    def is_short(self) -> bool:
        """Whether the batch took only a few seconds, so that it would gain nothing from processes."""
        return is_short(self.spent.s)

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
        return self._score_tables.shown_metrics

    def table(self, metric: str) -> ScoreTable:
        """Return all scores on one metric, by combination and case, one per repeat. `failed` is a metric, too."""
        return self._score_tables.table(metric)

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
        return shown(each for each in judged if not metrics or each.comparison.metric.name in metrics)

    def _judged(self, errors: str, max_errors: int) -> tuple[Verdict, ...]:
        from wtb.domain.statistics.comparisons import compare  # numpy and scipy take half a second to load
        from wtb.domain.statistics.verdicts import verdicts

        if len(self.combinations) < 2:
            return ()
        if (errors, max_errors) not in self._verdicts:
            tables = [self.table(metric) for metric in self._score_tables.all_metrics]
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
        summaries = self._summaries(tuple(self._score_tables.all_metrics))
        found = self.compare()
        return [
            MatrixRow(
                combination=name,
                is_baseline=name == self.baseline,
                summaries={metric: summaries[metric][name] for metric in self._score_tables.all_metrics},
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
            failures=[failure_of(job) for job in failed],
            tags={tag: {"cases": len(self.tags[tag]), "means": means} for tag, means in self.means_by_tag().items()},
            flaky=[each.to_data() for each in self.flaky()[:MOST_FLAKY]],
            not_taken_back=self.not_taken_back,
            evaluator_failures=[evaluator_failures(metric, jobs) for metric, jobs in unscored_jobs(self).items()],
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
        directions = {metric: self._score_tables.all_metrics[metric].direction for metric in wanted}
        pairs = [(one, other) for one in whole for other in whole if beats(whole[one], whole[other], directions)]
        shown = beyond_chance([self.table(metric) for metric in wanted], pairs)
        return pareto(whole, directions, lambda better, worse: (better, worse) in shown)

    def spreads(self, metric: str) -> dict[str, float]:
        """Return how far the combinations are apart on each case for which two of them have a score or have failed."""
        table = self.table(metric)
        means = {name: known_or_worst(table, name) for name in self.combinations}
        return {
            case: max(found) - min(found)
            for case in self.batch.record.cases
            if len(found := [own[case] for own in means.values() if case in own]) > 1
        }

    def different(self, metric: str) -> list[str]:
        """Return the cases on which the combinations disagree, widest spread first."""
        spread = self.spreads(metric)
        return sorted((case for case, width in spread.items() if width > 0), key=lambda case: -spread[case])

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat row per job, for tables and files; with a column `failed` if any run failed."""
        metrics, with_failures = self.metrics, any(self._score_tables.failed) and FAILED.name not in self.metrics
        done = zip(self._jobs, self._score_tables.failed, strict=True)
        failed = [has_failed for job, has_failed in done if job.outcome is not JobStatus.PENDING]
        texts = self.case_texts
        return [
            row_of(each, texts[each.case_id], metrics, {FAILED.name: int(has_failed)} if with_failures else {})
            for each, has_failed in zip(self.results, failed, strict=True)
        ]

    def to_csv(self, path: str | Path) -> None:
        """Write one row per job as CSV. Texts that a spreadsheet would run as a formula are prefixed with `'`."""
        write_csv(self.rows(), Path(path))

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


def _mean(summary: Summary) -> str:
    return figure(summary.mean)


def _near_copies_note(found: NearCopies, cases: int) -> str:
    return (
        f"{found.cases:,} of {cases:,} cases are near copies of others, as {found.example[0]} and {found.example[1]}: "
        "copies make verdicts surer than they should be. Give cases that belong together the same `cluster`."
    )
