"""BatchPlanner: decides which jobs of a batch are kept and which run, and finds what has changed since last time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

from wtb.application.batches.external_tools import external_tools
from wtb.application.batches.forecast import ExternalTool, Forecast, NodeRunCount, NodeRunKey
from wtb.application.batches.plan import BatchPlan, Fingerprints
from wtb.application.batches.scoring import scored_by, waiting_for_scores
from wtb.application.dependencies.fingerprint import Fingerprint, combined, digest_of, parts_that_count
from wtb.application.dependencies.objects import module_of
from wtb.application.dependencies.own_code import is_own_module
from wtb.application.dependencies.traces import Traces, in_words
from wtb.application.dependencies.walk import FindTool, Surroundings, fingerprint
from wtb.application.dependencies.workflow_code import changed_parts, node_fingerprint, surroundings
from wtb.domain.batch import Job, JobStatus
from wtb.domain.batch_record import MadeOf
from wtb.domain.ids import ExecutionId
from wtb.domain.job_record import JobRecord
from wtb.domain.observation import Window
from wtb.domain.ports import Codec, Ids
from wtb.domain.variants import Combination, label
from wtb.domain.workflow import WorkflowDefinition

SETUP = "the workflow"
"""The name for what belongs to no node: edges, reducers, settings of nodes, the seed."""

CASE = "the cases"
"""The name for the inputs of cases."""


@dataclass(frozen=True, kw_only=True)
class PlannedJobs:
    """All jobs of a batch (those to run are pending), and the reasons why they run."""

    fingerprints: Fingerprints
    workflows: Mapping[str, str]
    """The digest of what the results of each combination depend on; its jobs carry it, too."""
    jobs: Sequence[Job]
    made_of: MadeOf
    forecast: Forecast


@dataclass(frozen=True, kw_only=True)
class _Now:
    """A combination as it is now: the digest that its jobs carry, and the fingerprints of its nodes."""

    whole: str
    nodes: Mapping[str, Fingerprint]
    """The fingerprint of each node; under SETUP, that of everything that belongs to no node."""

    @cached_property
    def digests(self) -> Mapping[str, str]:
        return {node: each.digest for node, each in self.nodes.items()}


class BatchPlanner:
    """Compares what a batch depends on now with what its jobs depended on when they ran."""

    def __init__(
        self,
        codec: Codec,
        ids: Ids,
        traces: Traces,
        find_tool: FindTool,
        *,
        state_types: Callable[[], Iterable[type]] = tuple,
        state_functions: Callable[[], Mapping[str, tuple[Any, Any]]] = dict,
    ) -> None:
        self._codec = codec
        self._ids = ids
        self._traces = traces
        self._find_tool = find_tool
        self._state_types = state_types
        self._state_functions = state_functions

    def modules_of_states(self) -> tuple[str, ...]:
        """Return the user's own modules that registered classes of states in this process."""
        functions = chain.from_iterable(self._state_functions().values())
        modules = {module_of(thing) for thing in (*self._state_types(), *functions)}
        return tuple(sorted(module for module in modules if is_own_module(module)))

    def fingerprints(self, plan: BatchPlan, changing: frozenset[str]) -> dict[str, dict[str, Fingerprint]]:
        """Return the fingerprint of every implementation, by combination and node; each is computed once."""
        around = surroundings(plan.definition, self._find_tool, self._state_types(), self._state_functions())
        made: dict[tuple[str, str], Fingerprint] = {}
        found: dict[str, dict[str, Fingerprint]] = {}
        for combination in plan.combinations:
            definition = plan.definition.with_variants(combination)
            for node in definition.nodes:
                if (node.name, node.variant) not in made:
                    made[node.name, node.variant] = node_fingerprint(node, definition, around).without(changing)
            nodes = {node.name: made[node.name, node.variant] for node in definition.nodes}
            setup = self._setup(definition, plan.seed, around).without(changing)
            found[label(combination)] = {**nodes, SETUP: setup}
        return found

    def planned(self, plan: BatchPlan, batch_id: str, known: Sequence[Job], before: MadeOf) -> PlannedJobs:
        """Return all jobs of a plan; a known job is kept if everything it depends on is unchanged."""
        self._traces.look_again()
        fingerprints = self.fingerprints(plan, before.changing)
        return _Planning(self, plan, batch_id=batch_id, known=known, before=before, fingerprints=fingerprints).planned()

    def changing(self, plan: BatchPlan, fingerprints: Fingerprints) -> frozenset[str]:
        """Return the values that the runs of the batch have changed since it was planned."""
        now = self.fingerprints(plan, frozenset())
        return frozenset(
            name
            for combination, nodes in fingerprints.items()
            for node, each in nodes.items()
            for name in each.values | now[combination][node].values
            if now[combination][node].parts.get(name) != each.parts.get(name)
        )

    def _setup(self, definition: WorkflowDefinition, seed: int, around: Surroundings) -> Fingerprint:
        """Return the fingerprint of the parts of a workflow that belong to no node."""
        data = definition.to_dict()
        found: dict[str, Any] = {f"the settings of node `{node['name']}`": _settings(node) for node in data["nodes"]}
        found |= {"the edges": data["edges"], "the seed": seed}
        parts = {name: self._codec.digest(self._codec.encode(value, name)[1]).hex() for name, value in found.items()}
        conditions = [edge.when for edge in definition.edges if callable(edge.when)]
        functions = {f"condition {number} of the edges": each for number, each in enumerate(conditions, 1)}
        functions |= {f"the reducer of `{key}`": reducer for key, reducer in definition.reducers.items()}
        return combined({name: fingerprint(each, around=around) for name, each in functions.items()}, parts)

    def case_digests(self, plan: BatchPlan) -> dict[str, str]:
        """Return a digest of the input of each case."""
        kept = plan.definition.kept
        encoded = {case.id: self._codec.encode(dict(kept(case.input)), f"case {case.id}")[1] for case in plan.cases}
        return {case: self._codec.digest(about).hex()[:32] for case, about in encoded.items()}

    def scored_by(self, plan: BatchPlan) -> dict[str, dict[str, str]]:
        """Return what scores depend on beside the run, by case and evaluator."""
        return {case.id: scored_by(case, plan.digests, self._codec) for case in plan.cases}

    def anew(self, job: Job) -> Job:
        """Return a job that will run again as a new run; its spending so far still counts."""
        kept = JobRecord(
            spent=job.spent,
            alone=job.record.alone,
            external=job.record.external,
            take_back=job.record.take_back,
        )
        return replace(job, status=JobStatus.PENDING, execution_id=ExecutionId(self._ids.new()), record=kept)

    def queued_again(self, job: Job) -> Job:
        """Return a failed job that will run again. It keeps its error until then, so it stays failed.

        A run that waits for a person is continued. Its spending is counted again when the job ends.
        """
        again, waits = self.anew(job).noted(error=job.record.error), job.record.waits
        if waits is None:
            return again
        return replace(again, execution_id=job.execution_id).noted(spent=job.spent - waits)

    def changed_sources(self, job: Job, nodes: Mapping[str, Fingerprint]) -> list[str]:
        """Return the sources that these nodes read for a job and that have changed since, in words."""
        found = set(self._traces.changed(job.record.traces, list(nodes.values())))
        for node, windows in job.record.taken.items():
            found.update(self._traces.changed(windows, [nodes[node]]) if node in nodes else ())
        return list(in_words(sorted(found)))

    def changed_in(self, windows: Sequence[Window], fingerprints: Sequence[Fingerprint]) -> list[str]:
        """Return the sources that these functions read in these windows and that have changed since, in words."""
        return list(in_words(self._traces.changed(windows, fingerprints)))

    def external(
        self, plan: BatchPlan, fingerprints: Fingerprints, known: Sequence[Job], waiting: Sequence[Job]
    ) -> tuple[ExternalTool, ...]:
        """Return the known external tools that the jobs to run may call."""
        return external_tools(plan, fingerprints, known, waiting, self._find_tool)

    def outside(self, plan: BatchPlan, fingerprints: Fingerprints, traces: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Return the nodes that were seen to use the network or other programs, with what they used."""
        looked_at = list(traces)
        nodes = _implementations(plan, fingerprints)
        found = {node: self._traces.outside(looked_at, each) for node, each in nodes.items()}
        return {node: tuple(map(str, sources)) for node, sources in found.items() if sources}


def workflow_digest(nodes: Mapping[str, Fingerprint]) -> str:
    """Return the digest of what the results of a combination depend on."""
    return digest_of(f"{node}={each.digest}" for node, each in sorted(nodes.items()))


def _named(node: str, combination: Combination) -> str:
    """Return the name of an implementation: the node, or `node@variant`."""
    return f"{node}@{combination[node]}" if node in combination else node


def _implementations(plan: BatchPlan, fingerprints: Fingerprints) -> dict[str, Fingerprint]:
    """Return the fingerprints of all nodes and variants, by name."""
    return {
        _named(node, plan.by_label[combination]): each
        for combination, nodes in fingerprints.items()
        for node, each in nodes.items()
    }


def _settings(node: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in node.items() if name not in ("reference", "config", "depends_on")}


class _Planning:
    """Plans one batch, given the jobs of the last batch of its name."""

    def __init__(
        self,
        planner: BatchPlanner,
        plan: BatchPlan,
        *,
        batch_id: str,
        known: Sequence[Job],
        before: MadeOf,
        fingerprints: Fingerprints,
    ) -> None:
        self._planner = planner
        self._plan = plan
        self._batch_id = batch_id
        self._known = known
        self._before = before
        self._fingerprints = fingerprints
        self._now = {name: self._current(name) for name in fingerprints}
        self._changes: dict[str, dict[str, None]] = defaultdict(dict)
        self._reasons: dict[tuple[str, str], Mapping[str, Sequence[str]]] = {}

    def _current(self, name: str) -> _Now:
        nodes = self._fingerprints[name]
        return _Now(whole=workflow_digest(nodes), nodes=nodes)

    def planned(self) -> PlannedJobs:
        jobs = list(self._jobs())
        made_of = self._before.only(_whole(job) for job in self._known).with_more(self._made_of())
        return PlannedJobs(
            fingerprints=self._fingerprints,
            workflows={name: now.whole for name, now in self._now.items()},
            jobs=jobs,
            made_of=made_of,
            forecast=self._forecast(jobs),
        )

    def _made_of(self) -> MadeOf:
        workflows = {now.whole: now.digests for now in self._now.values()}
        parts = {each.digest: each.all_parts for now in self._now.values() for each in now.nodes.values()}
        return MadeOf(workflows=workflows, parts=parts)

    def _jobs(self) -> Iterator[Job]:
        plan = self._plan
        before = {(job.combination, job.case_id, job.repeat): job for job in self._known}
        cases, wanted = self._planner.case_digests(plan), self._planner.scored_by(plan)
        numbers = iter(range(len(self._known), len(self._known) + len(self._now) * len(cases) * plan.repeats))
        for name, now in self._now.items():
            for case_id, case in cases.items():
                for repeat in range(plan.repeats):
                    job = before.get((name, case_id, repeat))
                    if job is None:
                        job = self._new(next(numbers), name, case_id, repeat)
                    yield self._decided(job, f"{now.whole}.{case}", wanted[case_id])

    def _new(self, number: int, name: str, case_id: str, repeat: int) -> Job:
        return Job(
            batch_id=self._batch_id, number=number, combination=name, case_id=case_id, repeat=repeat, fingerprint=""
        )

    def _decided(self, job: Job, digest: str, scored_by: Mapping[str, str]) -> Job:
        """Return a job with the decision about it: kept, to be scored, or to be run."""
        reasons = self._why(job, digest) if job.fingerprint else {}
        for node, words in reasons.items():
            self._changes[_named(node, self._plan.by_label[job.combination])].update(dict.fromkeys(words))
        if not job.fingerprint or reasons or self._is_unwanted(job):
            return replace(self._planner.anew(job), fingerprint=digest)
        job = job if job.fingerprint == digest else replace(job, fingerprint=digest)
        if job.status is JobStatus.FAILED:
            return self._planner.queued_again(job)
        if not job.has_run:
            return job
        if job.has_calls_left:
            job = replace(job, status=JobStatus.PENDING)
        return waiting_for_scores(self._without_misread(job), scored_by, self._plan.output_digest)

    def _without_misread(self, job: Job) -> Job:
        """Return a job in which scores are outdated if their evaluator read something that has changed since."""
        known = job.record.scored_by
        true = {name: how for name, how in known.items() if not self._misread(job, name)}
        return job if len(true) == len(known) else job.noted(scored_by=true)

    def _misread(self, job: Job, evaluator: str) -> bool:
        """Whether an evaluator read something for this job that has changed since."""
        window, now = job.record.scored_in.get(evaluator), self._plan.evaluator_fingerprints.get(evaluator)
        if window is None or now is None:
            return False
        words = self._planner.changed_in([window], [now])
        if words:
            self._changes[f"the evaluator {evaluator}"].update(dict.fromkeys(words))
        return bool(words)

    def _is_unwanted(self, job: Job) -> bool:
        """Whether a job has to run again although nothing has changed."""
        return bool(self._plan.fresh_nodes) or (not self._plan.share and job.has_run)

    def _why(self, job: Job, digest: str) -> Mapping[str, Sequence[str]]:
        """Return the changes in what a job depends on, by node."""
        whole, case = _whole(job), job.fingerprint.partition(".")[2]
        if (whole, job.combination) not in self._reasons:
            self._reasons[whole, job.combination] = self._differences(whole, self._now[job.combination])
        reasons = self._reasons[whole, job.combination]
        if case != digest.partition(".")[2]:
            reasons = {**reasons, CASE: [f"the input of case {job.case_id}"]}
        return _together(reasons, self._read_differences(job))

    def _differences(self, whole: str, now: _Now) -> Mapping[str, Sequence[str]]:
        if whole == now.whole:
            return {}
        old = self._before.workflows.get(whole)
        if old is None:
            return {SETUP: ["these results come from an earlier version of WTB"]}
        found = {}
        for node, each in now.nodes.items():
            was = self._before.parts.get(old.get(node, ""), {})
            ignored = self._before.changing
            changed = changed_parts(parts_that_count(was, ignored), parts_that_count(each.all_parts, ignored))
            if changed:
                found[node] = changed
        return found

    def _read_differences(self, job: Job) -> Mapping[str, Sequence[str]]:
        nodes = self._now[job.combination].nodes
        if not self._planner.changed_sources(job, nodes):
            return {}
        found = {node: self._planner.changed_sources(job, {node: each}) for node, each in nodes.items()}
        return {node: words for node, words in found.items() if words}

    # Forecast

    def _forecast(self, jobs: Sequence[Job]) -> Forecast:
        waiting = [job for job in jobs if job.status is JobStatus.PENDING and not job.has_run]
        kept, shared, executed = self._node_runs(jobs, waiting)
        nodes = _implementations(self._plan, self._fingerprints)
        traces = {window.trace_id for job in self._known for window in job.record.all_traces}
        return Forecast(
            jobs=len(jobs),
            kept=sum(job.status is not JobStatus.PENDING for job in jobs),
            scored=sum(job.status is JobStatus.PENDING and job.has_run for job in jobs),
            run=len(waiting),
            node_runs_kept=kept,
            node_runs_shared=shared,
            node_runs_executed=executed,
            changes={node: tuple(words) for node, words in self._changes.items()},
            coarse={node: each.coarse for node, each in nodes.items() if each.coarse},
            changing=tuple(sorted(self._before.changing)),
            outside=self._planner.outside(self._plan, self._fingerprints, traces),
            external=self._planner.external(self._plan, self._fingerprints, self._known, waiting),
        )

    def _node_runs(self, jobs: Sequence[Job], waiting: Sequence[Job]) -> tuple[int, int, int]:
        """Return how many node runs are kept with their jobs, shared, and executed."""
        count = NodeRunCount(self._plan, self._before, self._made_of())
        shareable: set[NodeRunKey] = set()
        for job in self._known:
            digests = self._before.workflows.get(_whole(job))
            if job.has_run and digests is not None and job.combination in self._now:
                shareable.update(count.shareable(job, digests, self._stale_nodes(job)))
        return count.count(jobs, [(job, self._now[job.combination].digests) for job in waiting], shareable)

    def _stale_nodes(self, job: Job) -> set[str]:
        nodes = self._now[job.combination].nodes
        return {node for node in nodes if self._planner.changed_sources(job, {node: nodes[node]})}


def _together(one: Mapping[str, Sequence[str]], other: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Return both, but no change of a whole module if a changed part of it is known."""
    found: dict[str, Sequence[str]] = dict(one)
    for node, words in other.items():
        known = found.get(node, ())
        named = {f"module {word.rpartition(' in ')[2]}" for word in known}
        found[node] = [*known, *(word for word in words if word not in named)]
    return found


def _whole(job: Job) -> str:
    return job.fingerprint.partition(".")[0]
