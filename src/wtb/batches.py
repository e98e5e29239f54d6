"""BatchTest, the object in which users describe a batch; it is checked before anything runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wtb.application.batches.plan import BatchPlan, CarriedCode, check_plan
from wtb.application.evaluation_engine import check_cases
from wtb.application.runs.mocks import tool_answers
from wtb.batch_results import check_primary, check_weighted
from wtb.domain.cases import clustered
from wtb.domain.errors import InvalidInput
from wtb.domain.job_limits import Resources
from wtb.domain.limits import Limit, read_limits
from wtb.domain.runner import CarryingRunner, Runner, WorkerRunner
from wtb.domain.spending import Budget
from wtb.domain.tool_answers import External
from wtb.domain.variants import combinations, label, parse_label
from wtb.domain.work_order import BatchCode
from wtb.domain.workflow import names_of
from wtb.flow import Workflow
from wtb.infrastructure.cases import read_cases
from wtb.infrastructure.codecs.types import REGISTERED
from wtb.infrastructure.evaluators.named import read_evaluators
from wtb.infrastructure.evaluators.outputs import read_output
from wtb.infrastructure.object_references import describe
from wtb.loading import as_workflow, load_named, load_workflow, place_of, source_of
from wtb.runners import load_runner


@dataclass(frozen=True)
class BatchTest:
    """A batch as you define it: `batch = wtb.BatchTest(flow, cases="cases.jsonl", evaluators=[…])`.

    - `name`: the name of the batch; by default that of its workflow.
    - `cases`: a JSONL or CSV file, or a list.
    - `variants`: which combinations to run: `all`, `one_at_a_time`, `pairwise`, `random:N`, or a list of combinations.
    - `baseline`: the combination that the others are compared with; by default the workflow as it is.
    - `repeats`: how many times each combination runs on each case.
    - `evaluators`: evaluators, or their names.
    - `output`: what to show as the answer of a run: a key of its final state, a list of keys, or a function of the
      state. By default the last AI message, else the keys that the evaluators compare, else the keys that the run
      added or changed.
    - `weights`: weights of metrics for an overall score, for example `{"exact_match": 2, "latency_s": 1}`.
    - `primary`: the metric that decides who wins; by default the overall score, or else the first metric.
    - `cluster`: which cases belong together and count as one: a key of the input, or a function of the case.
    - `workers`: how many jobs run at a time.
    - `runner`: what runs them: `threads`, `processes` for nodes that compute, `ray`, or another by name.
    - `ray_address`: with `runner="ray"`, the cluster to use: `auto` on one of its machines, or `HOST:PORT`. Without an
      address, Ray starts on this machine.
    - `budget`: the most that the batch may use in all: `{"usd": 5, "tokens": 1_000_000, "s": 3600}`, or any of these.
    - `retries`: how many more times a failed job is tried.
    - `job_timeout_s`: how many seconds a job may take; by default the setting `job_timeout_s`, an hour. In processes
      and on Ray its worker is ended. A thread cannot be ended: the job fails if you set this option here, but the
      function that runs continues in the background.
    - `resources`: what a worker needs and may use, as `wtb.Resources(memory_gb=8)`; not with threads.
    - `share=False`: share and keep nothing; run every node of every job.
    - `fresh`: ignore earlier results of all nodes (`True`) or of those in a list.
    - `seed`: the seed of the runs and of random combinations.
    - `tools`: who answers the calls of tools, by name: a function, a run whose answers are used, or `"record"`: each
      call is made once for a case, and equal calls get its result.
    - `external`: what happens to calls of external tools: they are made (`run`), made and taken back once the job is
      scored (`reverse`), or a job that makes one fails (`refuse`).
    - `limits`: how many calls run at a time, over all workers: `{"openai": 20, "search": "adaptive"}`, or a `Limit`.
      Tools name their limit with `@wtb.tool(limit="openai")`, nodes with `ctx.limit("openai")`.
    - `source`: where other processes load the batch from; WTB finds it by itself.
    """

    flow: Workflow | Any
    name: str | None = field(default=None, kw_only=True)
    cases: Any = field(default=(), kw_only=True)
    variants: Any = field(default="all", kw_only=True)
    repeats: int = field(default=1, kw_only=True)
    baseline: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    evaluators: Sequence[Any] = field(default=(), kw_only=True)
    output: str | Sequence[str] | Callable[[Any], Any] | None = field(default=None, kw_only=True)
    weights: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    primary: str | None = field(default=None, kw_only=True)
    cluster: str | Callable[[Any], Any] | None = field(default=None, kw_only=True)
    workers: int | None = field(default=None, kw_only=True)
    runner: str = field(default="threads", kw_only=True)
    ray_address: str | None = field(default=None, kw_only=True)
    budget: Budget | Mapping[str, float] | None = field(default=None, kw_only=True)
    retries: int = field(default=0, kw_only=True)
    job_timeout_s: float | None = field(default=None, kw_only=True)
    resources: Resources | Mapping[str, Any] | None = field(default=None, kw_only=True)
    share: bool = field(default=True, kw_only=True)
    fresh: bool | Sequence[str] = field(default=False, kw_only=True)
    seed: int = field(default=0, kw_only=True)
    tools: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    external: str = field(default="run", kw_only=True)
    limits: Mapping[str, int | str | Limit] = field(default_factory=dict, kw_only=True)
    source: str | None = field(default=None, kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "flow", as_workflow(self.flow))  # takes LangGraph graphs, too

    def plan(self, only: Sequence[str] = ()) -> BatchPlan:
        """Check everything that can be checked before a run, and return the plan; `only` limits the combinations."""
        definition = self.flow.definition()
        definition = replace(definition, tools={**definition.tools, **tool_answers(self.tools)})
        definition.validate()
        chosen = combinations(self.flow.variants, self.variants, baseline=self.baseline, seed=self.seed)
        selection = chosen
        if only:
            wanted = [parse_label(text) for text in only]
            _check_wanted(wanted, chosen)
            chosen = [dict(self.baseline), *(each for each in chosen if each in wanted and each != dict(self.baseline))]
        for combination in chosen:
            definition.with_variants(combination)
        runner = load_runner(self.runner, ray_address=self.ray_address)  # fails now if there is no such runner
        evaluators, cases = read_evaluators(self.evaluators), clustered(read_cases(self.cases), self.cluster)
        check_cases(evaluators, cases)
        check_weighted([each.name for each in evaluators], self.weights)
        check_primary([each.name for each in evaluators], self.weights, self.primary)
        plan = BatchPlan(
            name=self.name or self.flow.name,
            definition=definition,
            source=source_of(self.flow),
            combinations=chosen,
            cases=cases,
            repeats=self.repeats,
            baseline=dict(self.baseline),
            selection=selection,
            evaluators=evaluators,
            output=read_output(self.output, evaluators),
            weights=dict(self.weights),
            primary=self.primary,
            share=self.share,
            fresh=self.fresh if isinstance(self.fresh, bool) else names_of(self.fresh),
            seed=self.seed,
            retries=self.retries,
            job_timeout_s=self.job_timeout_s,
            resources=Resources.of(self.resources),
            workers=default_workers(self.runner, self.ray_address) if self.workers is None else self.workers,
            runner=self.runner,
            ray_address=self.ray_address,
            budget=Budget.of(self.budget),
            external=_external(self.external),
            limits=read_limits(self.limits),
            code=batch_code(self, runner) if isinstance(runner, WorkerRunner) else None,
        )
        check_plan(plan)
        return plan if plan.code is None or not plan.code.is_carried else replace(plan, carried=self._carried())

    def _carried(self) -> CarriedCode:
        """Return the code for workers that cannot import it."""
        types = REGISTERED.registered_in("__main__")
        return CarriedCode(
            flow=self.flow,
            evaluators=self.evaluators,
            output=self.output,
            tools=self.tools,
            limits=self.limits,
            state_types=types,
        )


def _check_wanted(wanted: Sequence[Mapping[str, str]], chosen: Sequence[Mapping[str, str]]) -> None:
    unknown = [label(each) for each in wanted if each not in chosen]
    if unknown:
        known = "; ".join(label(each) for each in chosen)
        raise InvalidInput(f"the batch has no combination {'; '.join(unknown)}; it has {known}")


def _external(given: str) -> External:
    try:
        return External(given)
    except ValueError:
        raise InvalidInput(f"external={given!r} is unknown; it is one of {', '.join(External)}") from None


def default_workers(runner: str = "threads", ray_address: str | None = None) -> int:
    """Return how many jobs run at a time by default.

    In threads there are more than cores, because nodes mostly wait for models. In processes they compute. On a Ray
    cluster there are as many workers as it has room for, at most 50.
    """
    if ray_address is not None or (runner == "ray" and os.environ.get("RAY_ADDRESS")):
        return 50
    cores = os.cpu_count() or 1
    return min(4, cores) if runner in ("processes", "ray") else min(8, cores * 2)


def batch_code(test: BatchTest, runner: Runner) -> BatchCode:
    """Return where another process loads the code of a batch from.

    If it cannot, the runner carries the code; raise InvalidInput if the runner cannot do that.
    """
    reference = test.source or place_of(test)
    flow = test.flow
    workflow = source_of(flow)
    folder = str(Path.cwd())
    why = _why_not_importable(test, workflow)
    if why is not None:
        if isinstance(runner, CarryingRunner):
            return BatchCode(reference=flow.name, is_batch=False, folder=folder, is_carried=True)
        raise InvalidInput(
            f"runner={test.runner!r} needs a workflow that other processes can import, but {why}. Put it at the top "
            f"level of a file of its own, then import it from there or use `wtb batch run FILE`. {_OR_OTHERS}"
        )
    if reference is not None and not _is_script(reference):
        return BatchCode(reference=reference, is_batch=True, folder=folder)
    assert workflow is not None
    try:
        return BatchCode(
            reference=workflow,
            is_batch=False,
            folder=folder,
            evaluators=tuple(map(describe, test.evaluators)),
            output=describe(test.output),
            tools={name: describe(answer) for name, answer in test.tools.items()},
            limits={name: describe(limit) for name, limit in read_limits(test.limits).items() if limit.overloaded},
        )
    except InvalidInput as error:
        if isinstance(runner, CarryingRunner):
            return BatchCode(reference=flow.name, is_batch=False, folder=folder, is_carried=True)
        raise InvalidInput(
            f"a worker process cannot make the evaluators, output, tools or limits of this batch: {error}; write "
            f"`batch = wtb.BatchTest(…)` at the top level of a file, and run that. {_OR_OTHERS}"
        ) from error


_OR_OTHERS = "runner='threads' and runner='ray' run the batch as it is"


def _why_not_importable(test: BatchTest, workflow: str | None) -> str | None:
    """Say why other processes cannot import the workflow; None if they can."""
    name, definition = test.flow.name, test.flow.definition()
    functions = [each.function for each in (*definition.nodes, *definition.variants)]
    if workflow is None:
        return f"no module holds workflow {name!r} by a name: it was made in a function, or in a notebook"
    if _is_script(workflow) or any(getattr(each, "__module__", None) == "__main__" for each in functions):
        return f"workflow {name!r} is defined in the script that runs, which they would run again"
    return None


def _is_script(reference: str) -> bool:
    """Whether a reference names the script that Python was started with."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    return file is not None and reference.rpartition(":")[0] == str(Path(file).resolve())


def load_batch(reference: str) -> BatchTest:
    """Load `file.py[:batch]` or `module:batch`; its runs remember where to load their workflow from."""
    batch: BatchTest
    batch, place, found_as = load_named(reference, lambda found: isinstance(found, BatchTest), "batch test", "batch")
    module = sys.modules[Path(place).stem if place.endswith(".py") else place]
    for name, value in vars(module).items():
        # Name this file, not the one that first defined the workflow: it may add variants.
        if value is batch.flow or value is batch.flow.origin:
            batch.flow.source = f"{place}:{name}"
    object.__setattr__(batch, "source", f"{place}:{found_as}")
    return batch


def load_workflow_or_batch(reference: str) -> Workflow:
    """Load the workflow that a reference names; if it names a batch test, the workflow of that."""
    try:
        return load_workflow(reference)
    except InvalidInput:
        try:
            return load_batch(reference).flow
        except InvalidInput:
            pass
        raise
