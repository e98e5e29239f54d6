"""Bench: where a user runs workflows and batches; a thin skin over the services."""

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
from wtb.application.queries.lookup import Prefix
from wtb.application.queries.views import RunView, WorkflowView
from wtb.batch_results import BatchResult
from wtb.batches import BatchTest, default_workers
from wtb.bootstrap import Services, bootstrap
from wtb.domain.batch import Baseline, Batch
from wtb.domain.errors import BatchNotFound, InvalidInput
from wtb.domain.events import EventType, RecordedEvent
from wtb.domain.execution import Execution, Neglect
from wtb.domain.options import RunOptions
from wtb.domain.ports import Subscription
from wtb.domain.workflow import names_of
from wtb.flow import Workflow
from wtb.gates import GateResult, judge
from wtb.infrastructure.cases import read_cases
from wtb.infrastructure.evaluators.named import read_evaluators
from wtb.loading import as_workflow, refuse_while_loading, source_of
from wtb.runners import load_runner
from wtb.runs import Run
from wtb.settings import load_settings

Given = ParamSpec("Given")
Found = TypeVar("Found")


def _taking_what(other: Callable[Given, Found]) -> Callable[[Callable[..., Found]], Callable[Given, Found]]:
    """Show a method that passes everything on with the parameters of the other one, to editors and in `help`."""

    def shown(method: Callable[..., Found]) -> Callable[Given, Found]:
        vars(method)["__signature__"] = inspect.signature(other)
        return method

    return shown


class Bench:
    """Where workflows are run. Without a url everything lies in `.wtb` in this folder.

    The url is `sqlite:///path`, `postgresql://…`, or `memory://` for what may be gone with the process. Settings
    are given by their names, as `pool_size=10`. Open it with `with`, or call `close` at the end.
    """

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        self.services: Services = bootstrap(load_settings(url=url, **settings))

    def create(
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
    ) -> Run:
        """Record a run without starting it: `run.resume()` does that, in this process or another.

        `run_id` is an id of your own. `break_before` and `break_after` name nodes to pause at. `max_steps` ends endless
        loops, `timeout_s` a run that takes longer. `seed` is that of `ctx.seed` and `ctx.rng`. `variants` says which
        variant of a node to run. `checkpoints` says which are kept after the end: `every_node`, `on_success` or
        `on_error`; `fine_grained` makes them at calls of tools too; `checkpoint_failure` is `warn` or `fatal` (the
        settings decide). The files of the folder `workspace` are what the run begins with. `metadata` and `created_by`
        are kept with the run, for you.
        """
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
        execution = self.services.controller.create(
            flow.definition(),
            input,
            options,
            execution_id=run_id,
            source=source_of(flow),
            workspace=None if workspace is None else Path(workspace),
            metadata=metadata,
            created_by=created_by,
        )
        return Run(self, execution.id, flow)

    @_taking_what(create)
    def run(self, flow: Workflow | Any, input: Mapping[str, Any] | Any = None, **options: Any) -> Run:
        """Run a workflow until it ends or pauses, and return the run; a node that fails is in `run.error`, not raised.

        The input is what the state begins with; options are those of `create`.
        """
        return self.create(flow, input, **options).resume()

    def get(self, run_id: str) -> Run:
        """Return a run by its id, or by the beginning of it that no other run has, of at least four characters."""
        return Run(self, self.services.queries.execution(Prefix(run_id)).id, None)

    def view(self, run_id: str) -> RunView:
        """Return everything about a run, read at one moment; the beginning of its id is enough, as for `get`."""
        found = self.services.queries.run(Prefix(run_id))
        return Run(self, found.id, None)._shown(found)

    def resume(self, run_id: str, flow: Workflow | Any | None = None, **how: Any) -> Run:
        """Go on with a run, in whichever process it was begun; `how` is what `run.resume` takes.

        `flow` is needed for a workflow that cannot be loaded from where it came from, such as one of a notebook.
        """
        run = self.get(run_id)
        return Run(self, run.id, None if flow is None else as_workflow(flow)).resume(**how)

    def list_runs(self, **filters: Any) -> tuple[Run, ...]:
        """Return runs, newest first; filters are statuses, workflow, since, prefix (of the id), limit and offset."""
        return tuple(Run(self, execution.id, None) for execution in self.list_executions(**filters))

    def list_executions(self, **filters: Any) -> tuple[Execution, ...]:
        """Return the records of the runs that `list_runs` gives, read at once."""
        return tuple(row.execution for row in self.services.queries.list_runs(**filters))

    def list_workflows(self) -> tuple[WorkflowView, ...]:
        """Return the workflows that have runs, by name: their versions, how many runs, and when the last began."""
        return self.services.queries.list_workflows()

    def neglect(self, execution: Execution) -> Neglect | None:
        """Return why a run that says it is running does not get on: its process is gone, or long silent."""
        return self.services.queries.row(execution).neglect

    def batch(
        self,
        flow: Workflow | BatchTest | Any,
        *,
        only: Sequence[str] = (),
        remeasure: bool = False,
        stop: threading.Event | None = None,
        told: Callable[[Progress], None] | None = None,
        **options: Any,
    ) -> BatchResult:
        """Run every combination of variants over every case, and return what was found.

        Options are those of `BatchTest`. What an earlier batch of the same name has done already, with the same
        implementations and cases, is kept: calling it again resumes, and runs what is missing or has changed. `only`
        names combinations, as `"answer=long"`, to run beside the baseline. With `remeasure` the baseline and all others
        run anew, side by side, where latency and cost of some would be measured apart. Once `stop` is set no more jobs
        are begun. `told(progress)` is called whenever one has ended.
        """
        refuse_while_loading()
        plan = replace(_batch_test(flow, options).plan(only), remeasure=remeasure)
        batch = self.services.batches.run(
            plan, load_runner(plan.runner), stop=stop or threading.Event(), on_progress=told or (lambda progress: None)
        )
        return self.get_batch(batch.id)

    def plan(self, flow: Workflow | BatchTest | Any, *, only: Sequence[str] = (), **options: Any) -> Forecast:
        """Return what `batch` would do with the same arguments, without running anything.

        It says how many jobs and node runs would be kept, shared and executed, and what has changed since the last
        time, in words, by node.
        """
        refuse_while_loading()
        return self.services.batches.forecast(_batch_test(flow, options).plan(only))

    def delete_batch(self, name_or_id: str) -> Batch:
        """Delete a batch with its results, and return its record; the runs behind the results stay."""
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
    ) -> Any:
        """Score what has run without running it again.

        Of a run (or its id) return the scores by name. To the jobs of a batch (or its name) add the scores, beside
        those that they have, and return the result. Evaluators see what the cases of the batch expected, unless `cases`
        says otherwise; a single run is given `expected`.
        """
        chosen = read_evaluators(evaluators)
        if not chosen:
            raise InvalidInput("name at least one evaluator, as wtb.ExactMatch('answer')")
        if isinstance(what, str):
            what = self._run_or_batch(what)
        if isinstance(what, Run):
            return self.services.scoring.score_run(what.id, chosen, expected, what._restored)
        given = None if cases is None else read_cases(cases)
        self.services.scoring.score_batch(what.batch, chosen, given, workers or default_workers())
        return self.get_batch(what.id)

    def _run_or_batch(self, name: str) -> Run | BatchResult:
        try:
            return self.get_batch(name)
        except BatchNotFound:
            return self.get(name)

    def get_batch(self, name_or_id: str) -> BatchResult:
        """Return what a batch, by its id, or the latest of its name, has found so far."""
        found = self.services.queries.batch(name_or_id)
        return BatchResult(self, found.batch, found.jobs)

    def list_batches(self, limit: int = 100) -> tuple[Batch, ...]:
        """Return the records of batches, newest first: id, name, workflow, status, plan."""
        return self.services.queries.list_batches(limit)

    def cancel_batch(self, name_or_id: str) -> BatchResult:
        """Mark a batch as cancelled: whoever is at it, in whichever process, begins no more jobs."""
        found = self.services.queries.batch_record(name_or_id)
        self.services.batch_editor.cancel(found)
        return self.get_batch(found.id)

    def set_baseline(self, name: str, batch: str | Sequence[str], combination: str | None = None) -> Baseline:
        """Keep what a combination of a batch has scored under a name, as it is now; by default the batch's baseline.

        Given several batches, their runs of a case count as its repeats, so that chance moves the baseline less.
        Running a batch again, with another workflow, leaves what was kept as it is.
        """
        names = [batch] if isinstance(batch, str) else batch
        batches = [self.services.queries.batch_record(each) for each in names]
        return self.services.batch_editor.keep_baseline(name, batches, combination)

    def list_baselines(self) -> tuple[Baseline, ...]:
        """Return all baselines in the order of their names."""
        return self.services.queries.list_baselines()

    def delete_baseline(self, name: str) -> Baseline:
        """Delete a baseline with the results that were kept for it, and return it; batches and runs stay."""
        found = self.services.queries.baseline(name)
        self.services.batch_editor.delete_baseline(name)
        return found

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
        """Hold a combination of a batch (the workflow as it is, by default) against a baseline, case by case.

        It may lose `max_drop` on the metric: a number in its units, or a share of the baseline as `"10%"`. More than
        `max_errors` cases that fail only with it never pass. `non_inferior` asks for proof that it did not lose more.
        The outcome is `fine`, `regression` or `inconclusive`.
        """
        kept = self.services.queries.baseline(baseline)
        return judge(
            kept,
            self.get_batch(kept.batch_id),
            self.get_batch(batch),
            combination=combination,
            metric=metric,
            max_drop=max_drop,
            max_errors=max_errors,
            non_inferior=non_inferior,
        )

    def subscribe(
        self, event_type: EventType | str | Collection[EventType | str], handler: Callable[[RecordedEvent], None]
    ) -> Subscription:
        """Call the handler with every event of a type (or several) that is committed in this process.

        Types are those that `wtb show RUN --events` lists, as `node.failed`. `cancel()` of what is returned ends it.
        """
        wanted = [event_type] if isinstance(event_type, str) else event_type
        return self.services.bus.subscribe(handler, types=[EventType(kind) for kind in wanted])

    def events(
        self, *, run: str | None = None, types: Collection[EventType | str] = (), limit: int = 1_000
    ) -> tuple[RecordedEvent, ...]:
        """Return the latest events that were committed in this process, oldest first; at most 1,000 are remembered.

        `run` is the id of a run, or of a batch. `run.events()` and `wtb events` read those of all processes.
        """
        return self.services.bus.history(stream=run, types=[EventType(kind) for kind in types], limit=limit)

    def close(self) -> None:
        """Give back connections and threads."""
        self.services.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _batch_test(flow: Workflow | BatchTest | Any, options: Mapping[str, Any]) -> BatchTest:
    if isinstance(flow, BatchTest):
        return replace(flow, **options) if options else flow
    return BatchTest(as_workflow(flow), **options)
