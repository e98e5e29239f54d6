"""Verbs about batches: run, plan, look, compare; baselines, gates and evaluations."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from wtb.api.models.base import ListAnswer
from wtb.api.models.baselines import BaselineAnswer, BaselineRequest, GateAnswer, GateRequest
from wtb.api.models.batch_changes import BatchRequest, BatchResultRow, BatchTestAnswer, EvaluationRequest, PlanRow
from wtb.api.models.batches import BatchAnswer, BatchRow
from wtb.api.models.commands import CommandAnswer
from wtb.api.models.results import (
    CaseAnswer,
    CompareRow,
    EffectRow,
    GridAnswer,
    JobResultAnswer,
    MatrixAnswer,
    ParetoAnswer,
)
from wtb.client.connection import LONGEST_WAIT_S, Connection, first_wait_s, inner_path, made, path_of
from wtb.client.requests import Names, Request, delete, each_of, get, post
from wtb.client.values import write_value

Evaluator = str | Mapping[str, str]
"""The name of an evaluator, or `{"name": "exact_match", "key": "answer"}` for one that looks at a key."""

Evaluators = Evaluator | Sequence[Evaluator]


class BatchVerbs(Connection):
    """What a client does with batches. A batch is named by its id, or by its name: then the latest one."""

    async def batch(
        self,
        name: str | None = None,
        /,
        *,
        workflow: str | None = None,
        cases: Sequence[Mapping[str, Any]] | None = None,
        evaluators: Evaluators | None = None,
        only: Names = (),
        wait_s: float | None = None,
        **options: Any,
    ) -> BatchResultRow:
        """Run a batch until it ends, and return how it ended; `matrix` and `compare` have its scores and verdicts.

        `name` is a batch that the server is configured with. Or pass a `workflow` with `cases`, each a mapping with
        `input`, and `expected`, `id` or `tags` if you want; then `name` is what the batch is called, and the options
        are those of `wtb.BatchTest`, such as `variants` and `repeats`. Call it again to continue.

        It raises `NotFinished` after `wait_s` seconds; the batch goes on.
        """
        body = _body(name, workflow, cases, evaluators=evaluators, only=only, options=options)
        result = await self._carried_out(post(path_of("batches"), body, wait_s=first_wait_s(wait_s)), wait_s)
        return BatchResultRow.model_validate(result["batch"])

    async def start_batch(
        self,
        name: str | None = None,
        /,
        *,
        workflow: str | None = None,
        cases: Sequence[Mapping[str, Any]] | None = None,
        evaluators: Evaluators | None = None,
        only: Names = (),
        **options: Any,
    ) -> CommandAnswer:
        """Start a batch and do not wait for it; `batch_status` shows how far it is, `wait_for` waits for its end."""
        body = _body(name, workflow, cases, evaluators=evaluators, only=only, options=options)
        return await self._accepted(post(path_of("batches"), body, wait_s=0))

    async def plan(
        self,
        name: str | None = None,
        /,
        *,
        workflow: str | None = None,
        cases: Sequence[Mapping[str, Any]] | None = None,
        evaluators: Evaluators | None = None,
        only: Names = (),
        **options: Any,
    ) -> PlanRow:
        """Return what `batch` would do with the same arguments, without running anything."""
        body = _body(name, workflow, cases, evaluators=evaluators, only=only, options=options)
        result = await self._carried_out(post(path_of("batches", "plan"), body, wait_s=LONGEST_WAIT_S), None)
        return PlanRow.model_validate(result["plan"])

    async def resume_batch(self, batch: str, *, wait_s: float | None = None) -> BatchResultRow:
        """Run the jobs of a batch that are missing, failed or out of date, and return how it ended."""
        return await self._batch_again(post(path_of("batches", batch, "resume"), wait_s=first_wait_s(wait_s)), wait_s)

    async def retry_batch(self, batch: str, *, wait_s: float | None = None) -> BatchResultRow:
        """Run what failed in a batch again, and return how it ended."""
        return await self._batch_again(post(path_of("batches", batch, "retry"), wait_s=first_wait_s(wait_s)), wait_s)

    async def _batch_again(self, request: Request, wait_s: float | None) -> BatchResultRow:
        return BatchResultRow.model_validate((await self._carried_out(request, wait_s))["batch"])

    async def list_batch_tests(self) -> list[BatchTestAnswer]:
        """Return the batches that the server is configured with; `batch` runs one by its name."""
        return (await self._ask(ListAnswer[BatchTestAnswer], get(path_of("batch-tests")))).items

    async def list_batches(self, *, name: str | None = None) -> AsyncGenerator[BatchRow]:
        """Return batches one by one, newest first."""
        async for row in self._each(BatchRow, path_of("batches"), name=name, limit=500):
            yield row

    async def batch_status(self, batch: str) -> BatchAnswer:
        """Return how far a batch has come: counts, spending, and the jobs that run."""
        return await self._ask(BatchAnswer, get(path_of("batches", batch)))

    async def matrix(self, batch: str, *, tags: Names = ()) -> MatrixAnswer:
        """Return the scores of each combination, and its verdicts against the baseline."""
        return await self._ask(MatrixAnswer, get(path_of("batches", batch, "matrix"), tag=each_of(tags)))

    async def grid(
        self,
        batch: str,
        *,
        metric: str | None = None,
        tags: Names = (),
        cursor: str | None = None,
        limit: int | None = None,
    ) -> GridAnswer:
        """Return all scores on one metric, by default the primary one, for a page of cases; without outputs."""
        asked = get(path_of("batches", batch, "grid"), metric=metric, tag=each_of(tags), cursor=cursor, limit=limit)
        return await self._ask(GridAnswer, asked)

    async def results(self, /, batch: str, **filters: Any) -> AsyncGenerator[JobResultAnswer]:
        """Return the finished jobs of a batch one by one.

        Filters: `combination`, `case`, `tag`, `failed`, `flaky`, and `different` with the name of a metric.
        """
        async for job in self._each(JobResultAnswer, path_of("batches", batch, "results"), **filters, limit=500):
            yield job

    async def case(self, batch: str, case: str) -> CaseAnswer:
        """Return a case by its id: its input, what is expected, and the results of all combinations."""
        return await self._ask(CaseAnswer, get(inner_path(path_of("batches", batch, "cases"), case)))

    async def compare(
        self, batch: str, *, before: str | None = None, metrics: Names = (), tags: Names = ()
    ) -> list[CompareRow]:
        """Compare combinations case by case: with the baseline, or with another batch or `baseline/NAME`."""
        query = {"before": before, "metric": each_of(metrics), "tag": each_of(tags)}
        found = await self._ask(ListAnswer[CompareRow], get(path_of("batches", batch, "compare"), **query))
        return found.items

    async def effects(self, batch: str, *, metrics: Names = ()) -> list[EffectRow]:
        """Return the effect of each variant, averaged over the other nodes, and of every two variants together."""
        asked = get(path_of("batches", batch, "effects"), metric=each_of(metrics))
        return (await self._ask(ListAnswer[EffectRow], asked)).items

    async def pareto(self, batch: str, *, metrics: Names = ()) -> ParetoAnswer:
        """Return the combinations that no other one is shown to beat on these metrics together."""
        return await self._ask(ParetoAnswer, get(path_of("batches", batch, "pareto"), metric=each_of(metrics)))

    async def report(self, batch: str, *, format: str = "html", tags: Names = ()) -> str:
        """Return the report of a batch: one page of HTML without a network, or `md` for Markdown."""
        asked = get(path_of("batches", batch, "report"), format=format, tag=each_of(tags))
        return (await self._send(asked)).body.decode()

    async def cancel_batch(self, batch: str) -> BatchAnswer:
        """Cancel a batch: no process starts any more of its jobs."""
        return await self._ask(BatchAnswer, post(path_of("batches", batch, "cancel")))

    async def delete_batch(self, batch: str) -> None:
        """Delete a batch with its results; its runs stay. It needs the role admin."""
        await self._send(delete(path_of("batches", batch)))

    async def set_baseline(
        self, name: str, batch: str | Sequence[str], combination: str | None = None
    ) -> BaselineAnswer:
        """Save the scores of one combination under a name; by default those of the batch's own baseline."""
        body = made(BaselineRequest, name=name, batches=each_of(batch), combination=combination)
        return await self._ask(BaselineAnswer, post(path_of("baselines"), body))

    async def get_baseline(self, name: str) -> BaselineAnswer:
        """Return a baseline."""
        return await self._ask(BaselineAnswer, get(path_of("baselines", name)))

    async def list_baselines(self) -> list[BaselineAnswer]:
        """Return all baselines, sorted by name."""
        return (await self._ask(ListAnswer[BaselineAnswer], get(path_of("baselines")))).items

    async def delete_baseline(self, name: str) -> None:
        """Delete a baseline with its saved scores. It needs the role admin."""
        await self._send(delete(path_of("baselines", name)))

    async def gate(
        self,
        batch: str,
        *,
        baseline: str,
        metric: str,
        max_drop: float | str = 0.0,
        max_errors: int = 0,
        non_inferior: bool = False,
        combination: str | None = None,
    ) -> GateAnswer:
        """Compare one combination of a batch with a saved baseline, and say whether it got worse; as `bench.gate`."""
        given = {"batch": batch, "baseline": baseline, "metric": metric, "max_drop": max_drop}
        more = {"max_errors": max_errors, "non_inferior": non_inferior, "combination": combination}
        return await self._ask(GateAnswer, post(path_of("gates"), made(GateRequest, **given, **more)))

    async def evaluate(
        self,
        evaluators: Evaluators,
        *,
        runs: str | Sequence[str] | None = None,
        batch: str | None = None,
        expected: Any = None,
    ) -> dict[str, dict[str, Any]]:
        """Score finished runs, or all runs of a batch, without running them again; return the scores by run.

        Runs of a batch keep the scores that they had, and those are returned too.
        """
        given: dict[str, Any] = {"evaluators": _evaluators(evaluators)}
        if runs is not None:
            given["runs"] = each_of(runs)
        if batch is not None:
            given["batch"] = batch
        if expected is not None:
            given["expected"] = write_value(expected)
        request = post(path_of("evaluations"), made(EvaluationRequest, **given), wait_s=LONGEST_WAIT_S)
        result = await self._carried_out(request, None)
        if "batch" in result:  # it may have many runs, so that their scores are read in pages
            return {job.run: job.scores async for job in self.results(result["batch"]["id"]) if job.run is not None}
        scores: dict[str, dict[str, Any]] = result["scores"]
        return scores


def _body(
    name: str | None,
    workflow: str | None,
    cases: Sequence[Mapping[str, Any]] | None,
    *,
    evaluators: Evaluators | None,
    only: Names,
    options: Mapping[str, Any],
) -> BatchRequest:
    given = {
        "batch" if workflow is None and cases is None else "name": name,
        "workflow": workflow,
        "cases": None if cases is None else [_case(each) for each in cases],
        "evaluators": None if evaluators is None else _evaluators(evaluators),
        "options": dict(options) or None,
        "only": each_of(only) or None,
    }
    return made(BatchRequest, **{key: value for key, value in given.items() if value is not None})


def _evaluators(given: Evaluators) -> list[Evaluator]:
    return [given] if isinstance(given, str | Mapping) else list(given)


def _case(case: Mapping[str, Any]) -> dict[str, Any]:
    values = {key: write_value(case[key]) for key in ("input", "expected") if key in case}
    return {**case, **values}
