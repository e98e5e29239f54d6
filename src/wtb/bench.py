"""Bench, the object users run workflows and batches with: a thin layer over the services."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from wtb.application.batches.attempt import Progress
from wtb.application.batches.forecast import Forecast
from wtb.application.batches.plan import check_workers
from wtb.application.queries.batch_data import BatchStatusView
from wtb.application.queries.lookup import Prefix
from wtb.application.queries.views import RunView, WorkflowView
from wtb.application.runs.callers_loop import awaited
from wtb.application.runs.run_request import RunRequest
from wtb.application.runs.threads import in_thread
from wtb.batch_results import BatchResult
from wtb.batches import BatchTest, default_workers
from wtb.bootstrap import Services, bootstrap
from wtb.domain.batch import Baseline, Batch
from wtb.domain.errors import BatchNotFound, InvalidInput
from wtb.domain.events import EventType, RecordedEvent
from wtb.domain.execution import Execution, Neglect
from wtb.domain.filters import event_types
from wtb.domain.limits import read_limits
from wtb.domain.options import RunOptions
from wtb.domain.parity import ParityReport
from wtb.domain.ports.events import Subscription
from wtb.domain.run_scores import RunScore
from wtb.domain.secrets import masked_logger
from wtb.domain.workflow import names_of
from wtb.flow import Workflow
from wtb.gates import GateResult, judge
from wtb.infrastructure.cases import read_cases
from wtb.infrastructure.evaluators.named import read_evaluators
from wtb.loading import as_workflow, place_of, refuse_while_loading, source_of
from wtb.notebooks import KnownFlows, notebook_progress
from wtb.parity import check_parity, default_runners
from wtb.runners import load_runner
from wtb.runs import Run
from wtb.settings import load_settings
from wtb.streams import RunStream

_log = masked_logger(__name__)

Given = ParamSpec("Given")
Found = TypeVar("Found")


def _with_parameters_of(other: Callable[Given, Any]) -> Callable[[Callable[..., Found]], Callable[Given, Found]]:
    """Copy the parameters of another method to one that only passes arguments on, for editors and `help`."""

    def shown(method: Callable[..., Found]) -> Callable[Given, Found]:
        returns = inspect.signature(method).return_annotation
        vars(method)["__signature__"] = inspect.signature(other).replace(return_annotation=returns)
        return method

    return shown


class Bench:
    """Open the place where workflows run and their results are stored.

    `url` is `sqlite:///path`, `postgresql://…`, or `memory://`, which keeps nothing after the process ends. Without a
    url, everything is stored in the folder `.wtb` here. Pass settings by name, for example `pool_size=10`. Use `with`,
    or call `close` when you are done.
    """

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        self.services: Services = bootstrap(load_settings(url=url, **settings))
        self._flows = KnownFlows()

    @classmethod
    def _over(cls, services: Services) -> Self:
        """Return a bench over services that exist already; it closes them."""
        bench = object.__new__(cls)
        bench.services, bench._flows = services, KnownFlows()
        return bench

    def _new_run(
        self,
        flow: Workflow | Any,
        input: Mapping[str, Any] | Any = None,
        *,
        run_id: str | None = None,
        break_before: Sequence[str] = (),
        break_after: Sequence[str] = (),
        max_steps: int = 1_000,
        timeout_s: float | None = None,
        seed: int = 0,
        checkpoints: str = "every_node",
        fine_grained: bool = False,
        checkpoint_failure: str | None = None,
        variants: Mapping[str, str] | None = None,
        workspace: Path | str | None = None,
        metadata: Mapping[str, Any] | None = None,
        created_by: str | None = None,
    ) -> tuple[Workflow, dict[str, Any]]:
        """Return the workflow, and what `controller.create` and `controller.start` take."""
        refuse_while_loading()
        flow = as_workflow(flow)
        input = flow.given(input)
        options = RunOptions.from_dict(
            {
                "break_before": (*flow.break_before, *names_of(break_before)),
                "break_after": (*flow.break_after, *names_of(break_after)),
                "max_steps": max_steps,
                "timeout_s": timeout_s,
                "seed": seed,
                "checkpoints": checkpoints,
                "fine_grained": fine_grained,
                "checkpoint_failure": checkpoint_failure or self.services.settings.checkpoint_failure,
                "variants": dict(variants or {}),
            }
        )
        return flow, {
            "definition": flow.definition(),
            "state": input,
            "options": options,
            "execution_id": run_id,
            "source": source_of(flow),
            "workspace": None if workspace is None else Path(workspace),
            "metadata": metadata,
            "created_by": created_by,
        }

    @_with_parameters_of(_new_run)
    def create(self, flow: Workflow | Any, input: Mapping[str, Any] | Any = None, **options: Any) -> Run:
        """Record a run without starting it; `run.resume()` starts it, in this process or another.

        - `input`: the keys and values that the state begins with.
        - `run_id`: an id of your choice.
        - `break_before`, `break_after`: nodes to pause before or after.
        - `max_steps`, `timeout_s`: the run fails if it takes more steps or seconds than this.
        - `seed`: decides `ctx.seed` and `ctx.rng`.
        - `checkpoints`: which to keep after the end: `every_node` keeps all. `on_error` keeps only the first and the
          last if the run completes, `on_success` if it fails or is cancelled.
        - `fine_grained`: also make checkpoints at tool calls and recorded steps.
        - `checkpoint_failure`: `warn` or `fatal`, if a checkpoint cannot be written; by default the settings decide.
        - `variants`: which variant of a node to run, for example `{"answer": "long"}`.
        - `workspace`: a folder whose files the run begins with.
        - `metadata`: kept with the run for your own use.
        - `created_by`: who creates the run, if not the `user` of the settings.

        It raises `InvalidWorkflow` if the workflow cannot run, and `AlreadyExists` if the id is taken.
        """
        flow, new = self._new_run(flow, input, **options)
        return Run(self, self.services.controller.create(**new).id, flow)

    @_with_parameters_of(_new_run)
    def run(self, flow: Workflow | Any, input: Mapping[str, Any] | Any = None, **options: Any) -> Run:
        """Run a workflow until it ends or pauses, and return the run.

        It takes the same options as `create`. If a node fails, nothing is raised: see `run.error`.
        """
        return self._run(None, flow, input, **options)

    def _run(self, request: RunRequest | None, *given: Any, **options: Any) -> Run:
        flow, new = self._new_run(*given, **options)
        return Run(self, self.services.controller.start(**new, request=request).id, flow)

    @_with_parameters_of(_new_run)
    async def arun(self, flow: Workflow | Any, input: Mapping[str, Any] | Any = None, **options: Any) -> Run:
        """Like `run`, for async programs: async nodes run on your event loop, and everything else on threads.

        If the task is cancelled, the run pauses at the next boundary. The task waits for that, and is cancelled then.
        """
        request = RunRequest()
        return await awaited(lambda: self._run(request, flow, input, **options), request.pause)

    @_with_parameters_of(_new_run)
    def stream(self, flow: Workflow | Any, input: Mapping[str, Any] | Any = None, **options: Any) -> RunStream:
        """Run a workflow and return its events as they happen: `for event in stream`. `stream.run` is the run.

        It takes the same options as `run`. The run begins with the loop. Leave the loop early, and the run pauses at
        the next boundary.
        """
        run_id = options.pop("run_id", None) or self.services.ids.new()
        return RunStream(self, run_id, lambda request: self._run(request, flow, input, run_id=run_id, **options))

    @_with_parameters_of(_new_run)
    def astream(self, flow: Workflow | Any, input: Mapping[str, Any] | Any = None, **options: Any) -> RunStream:
        """Like `stream`, for async programs: `async for event in stream`. Async nodes run on your event loop."""
        return self.stream(flow, input, **options)

    def get(self, run_id: str) -> Run:
        """Return a run by its id, or by the beginning of its id, of at least four characters.

        A run that this bench began knows its workflow; another loads it when it needs it. It raises `NotFound` if there
        is no such run, and `InvalidInput` if several runs begin like that.
        """
        return Run(self, self.services.queries.execution(Prefix(run_id)).id, None)

    def view(self, run_id: str) -> RunView:
        """Return everything about a run as it is at one moment; takes an id, or its beginning, as `get` does."""
        found = self.services.queries.run(Prefix(run_id))
        return Run(self, found.id, None)._shown(found)

    def resume(self, run_id: str, flow: Workflow | Any | None = None, **how: Any) -> Run:
        """Continue a run that any process began; the options are those of `run.resume`.

        Pass `flow` if the workflow cannot be loaded again, for example because a notebook defined it.
        """
        return self._resume(None, run_id, flow, **how)

    def _resume(self, request: RunRequest | None, run_id: str, flow: Workflow | Any | None, **how: Any) -> Run:
        found = self.get(run_id).id
        return Run(self, found, None if flow is None else as_workflow(flow), request).resume(**how)

    async def aresume(self, run_id: str, flow: Workflow | Any | None = None, **how: Any) -> Run:
        """Like `resume`, for async programs; see `arun`."""
        request = RunRequest()
        return await awaited(lambda: self._resume(request, run_id, flow, **how), request.pause)

    def list_runs(self, **filters: Any) -> tuple[Run, ...]:
        """Return runs, newest first. Filters: `statuses`, `workflow`, `since`, `prefix` (of ids), `limit`, `offset`.

        `statuses` is one or several, for example `"failed"` or `["paused", "failed"]`.
        """
        return tuple(Run(self, execution.id, None) for execution in self.list_executions(**filters))

    def list_executions(self, **filters: Any) -> tuple[Execution, ...]:
        """Return the records of runs in one read; takes the same filters as `list_runs`."""
        return tuple(row.execution for row in self.services.queries.list_runs(**filters))

    def list_workflows(self) -> tuple[WorkflowView, ...]:
        """Return the workflows that have runs, by name, with their versions and the number and times of their runs."""
        return self.services.queries.list_workflows()

    def neglect(self, execution: Execution) -> Neglect | None:
        """Return why a run that claims to be running makes no progress; None if nothing is wrong.

        It is `gone` if its process has ended, and `abandoned` if nothing was heard of it for an hour.
        """
        return self.services.queries.row(execution).neglect

    def batch(
        self,
        flow: Workflow | BatchTest | Any,
        *,
        only: Sequence[str] = (),
        remeasure: bool = False,
        stop: threading.Event | None = None,
        on_planned: Callable[[Forecast], None] | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        **options: Any,
    ) -> BatchResult:
        """Run every combination of variants over every case, and return the result.

        It takes the same options as `BatchTest`. Call it again to continue: results of the last batch of this name are
        kept if their implementation and case are unchanged, and only the rest runs.

        - `only`: run just these combinations and the baseline, for example `["answer=long"]`.
        - `remeasure`: run the baseline and all others again, side by side, if their latency and cost would otherwise be
          measured at different times.
        - `stop`: an event; once it is set, no more jobs start.
        - `on_planned`: a function that gets the forecast, as `plan` returns it, before the first job starts. Without
          one, a warning names the external tools whose calls should be taken back and cannot be.
        - `on_progress`: a function that gets the progress each time a job ends. Without one, a notebook shows it.
        """
        refuse_while_loading()
        report = on_progress or options.pop("told", None)  # its earlier name
        plan = replace(_batch_test(flow, options).plan(only), remeasure=remeasure)
        report = report or notebook_progress(plan.name) or (lambda progress: None)
        batch = self.services.batches.run(
            plan,
            load_runner(plan.runner, ray_address=plan.ray_address),
            stop=stop or threading.Event(),
            on_planned=on_planned or _warn_of_calls_that_stay,
            on_progress=report,
        )
        return self.get_batch(batch.id)

    @_with_parameters_of(batch)
    async def abatch(self, flow: Workflow | BatchTest | Any, **options: Any) -> BatchResult:
        """Like `batch`, for async programs: async nodes and evaluators run on your event loop.

        If the task is cancelled, no more jobs start. The task waits for those that run, and is cancelled then. Call it
        again to continue.
        """
        stop = options.pop("stop", None) or threading.Event()
        return await awaited(lambda: self.batch(flow, stop=stop, **options), stop.set)

    def parity(
        self,
        flow: Workflow | BatchTest | Any,
        *,
        sample: int = 5,
        runners: Sequence[str] | None = None,
        **options: Any,
    ) -> ParityReport:
        """Run a sample of a batch on several runners, and return how their results differ.

        The report compares status, errors, final states, scores and files of each job. Times may differ. Each runner
        runs every node anew, in a batch of its own that you can look at: `NAME on threads` and so on. External tools
        are called once for each runner. The options are those of `BatchTest`.

        - `sample`: how many cases to run, chosen at random; the same ones on each runner.
        - `runners`: by default threads, processes, and Ray if it is installed.
        """
        refuse_while_loading()
        return check_parity(self, _batch_test(flow, options), sample=sample, runners=runners or default_runners())

    def plan(self, flow: Workflow | BatchTest | Any, *, only: Sequence[str] = (), **options: Any) -> Forecast:
        """Return what `batch` would do with the same arguments, without running anything.

        The forecast counts the jobs and node runs that would be kept, shared and executed, and says in words what has
        changed in each node since the last time.
        """
        refuse_while_loading()
        return self.services.batches.forecast(_batch_test(flow, options).plan(only))

    def delete_batch(self, name_or_id: str) -> Batch:
        """Delete a batch with its results and return its record; its runs stay.

        It raises `InvalidInput` while the batch is running.
        """
        found = self.services.queries.batch_record(name_or_id)
        self.services.batch_editor.delete(found)
        return found

    def evaluate(
        self,
        what: Run | BatchResult | str,
        evaluators: Sequence[Any],
        *,
        expected: Any = None,
        cases: Any = None,
        workers: int | None = None,
        created_by: str | None = None,
    ) -> Any:
        """Score finished runs without running them again.

        For a run or its id, return the scores by name. Pass what you expect as `expected`. The scores are kept with the
        run: see `run.scores`. `created_by` is kept with them.

        For a batch or its name, add the new scores to those its jobs have and return the result. The evaluators see
        what the batch's cases expect, unless you pass other `cases`.

        An evaluator that fails gives `{"error": …}` instead of a score.
        """
        chosen = read_evaluators(evaluators)
        if not chosen:
            raise InvalidInput("name at least one evaluator, as wtb.ExactMatch('answer')")
        if isinstance(what, str):
            what = self._run_or_batch(what)
        if isinstance(what, Run):
            score_run = self.services.run_scoring.score
            scores = score_run(what.id, chosen, expected, what._restored, created_by=created_by)
            return {each.metric: _score_or_error(each) for each in scores}
        given = None if cases is None else read_cases(cases)
        workers = default_workers() if workers is None else workers
        check_workers(workers)
        self.services.scoring.score_batch(what.batch, chosen, given, workers, by=created_by)
        return self.get_batch(what.id)

    @_with_parameters_of(evaluate)
    async def aevaluate(self, what: Run | BatchResult | str, evaluators: Sequence[Any], **options: Any) -> Any:
        """Like `evaluate`, for async programs: async evaluators run on your event loop.

        If the task is cancelled, it first waits until all scores are there.
        """
        return await awaited(lambda: self.evaluate(what, evaluators, **options), lambda: None)

    def _run_or_batch(self, name: str) -> Run | BatchResult:
        try:
            return self.get_batch(name)
        except BatchNotFound:
            return self.get(name)

    def get_batch(self, name_or_id: str) -> BatchResult:
        """Return the results of a batch so far, by its id or by its name (then the latest of that name)."""
        found = self.services.queries.batch(name_or_id)
        return BatchResult(self, found.batch, found.jobs)

    def list_batches(self, limit: int = 100) -> tuple[Batch, ...]:
        """Return the records of batches, newest first."""
        return self.services.queries.list_batches(limit)

    def batch_status(self, name_or_id: str) -> BatchStatusView:
        """Return how far a batch has come, in whichever process it runs: counts, spending, and the jobs that run."""
        return self.services.queries.batch_status(name_or_id)

    def cancel_batch(self, name_or_id: str) -> BatchResult:
        """Cancel a batch: no process starts any more of its jobs.

        It raises `InvalidInput` if the batch has ended.
        """
        found = self.services.queries.batch_record(name_or_id)
        self.services.batch_editor.cancel(found)
        return self.get_batch(found.id)

    def set_baseline(self, name: str, batch: str | Sequence[str], combination: str | None = None) -> Baseline:
        """Save the scores of one combination under a name; by default those of the batch's own baseline.

        Pass several batches to make the baseline less subject to chance: their runs of a case count as its repeats. The
        saved scores do not change when you run the batch again.
        """
        names = [batch] if isinstance(batch, str) else batch
        batches = [self.services.queries.batch_record(each) for each in names]
        return self.services.baselines.save(name, batches, combination)

    def get_baseline(self, name: str) -> BatchResult:
        """Return the saved results of a baseline, to look at them or to compare them with a batch."""
        found = self.services.queries.baseline(name).results
        return BatchResult(self, found.batch, found.jobs)

    def list_baselines(self) -> tuple[Baseline, ...]:
        """Return all baselines, sorted by name."""
        return self.services.queries.list_baselines()

    def delete_baseline(self, name: str) -> Baseline:
        """Delete a baseline with its saved scores and return it; batches and runs stay."""
        return self.services.baselines.delete(name)

    def gate(
        self,
        batch: str,
        *,
        baseline: str,
        metric: str,
        max_drop: float | str = 0.0,
        max_errors: int = 0,
        non_inferior: bool = False,
        combination: str | None = None,
    ) -> GateResult:
        """Compare one combination of a batch with a saved baseline, case by case, and say whether it got worse.

        - `combination`: by default the batch's baseline, usually the workflow as it is.
        - `metric`, `max_drop`: it may lose this much on this metric: a number in units of the metric, or a share of the
          baseline such as `"10%"`.
        - `max_errors`: it does not pass if more cases than this fail only with it.
        - `non_inferior`: also require proof that it did not lose more.

        The outcome is `fine`, `regression` or `inconclusive`.
        """
        saved = self.services.queries.baseline(baseline)
        return judge(
            saved.baseline,
            BatchResult(self, saved.results.batch, saved.results.jobs),
            self.get_batch(batch),
            combination=combination,
            metric=metric,
            max_drop=max_drop,
            max_errors=max_errors,
            non_inferior=non_inferior,
        )

    def subscribe(
        self, event_type: EventType | str | Collection[EventType | str], handler: Callable[[RecordedEvent], Any]
    ) -> Subscription:
        """Call a function, sync or async, with every event of these types that this process commits.

        The page about events lists the types, for example `node.failed`. A noun such as `node` stands for all its
        events. Call `cancel()` on the returned value to stop. It raises `InvalidInput` if there is no such type.
        """
        return self.services.bus.subscribe(handler, types=event_types(event_type))

    def events(
        self, *, run: str | None = None, types: str | Collection[EventType | str] = (), limit: int = 1_000
    ) -> tuple[RecordedEvent, ...]:
        """Return the latest events that this process committed, oldest first; it remembers at most 1,000.

        `run` is the id of a run or a batch. To read the events of all processes, use `run.events()` or `wtb events`.
        """
        return self.services.bus.history(stream=run, types=event_types(types), limit=limit)

    def close(self) -> None:
        """Close the bench's connections and threads."""
        self.services.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await in_thread(self.close)


def _score_or_error(score: RunScore) -> float | dict[str, str]:
    return {"error": score.error or ""} if score.score is None else float(score.score)


def _warn_of_calls_that_stay(forecast: Forecast) -> None:
    for tool in forecast.external:
        if tool.jobs and tool.taken_back is False:
            _log.warning("%s", tool)


_CODE = {"evaluators", "output", "tools"}
"""Options that are code of the batch test; if you pass others, the test cannot be loaded from its source."""


def _batch_test(flow: Workflow | BatchTest | Any, options: Mapping[str, Any]) -> BatchTest:
    if isinstance(flow, BatchTest):
        if not options:
            return flow
        is_new_code = _CODE & options.keys() or any(
            limit.overloaded for limit in read_limits(options.get("limits", {})).values()
        )
        source = None if is_new_code else flow.source or place_of(flow)
        return replace(flow, **{"source": source, **options})
    return BatchTest(as_workflow(flow), **options)
