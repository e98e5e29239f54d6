"""Forecast: what running a batch would do, and how many node runs it would execute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wtb.application.batches.plan import BatchPlan
from wtb.application.dependencies.fingerprint import parts_digest, parts_that_count
from wtb.domain.batch import Job
from wtb.domain.batch_record import MadeOf
from wtb.domain.display import counted
from wtb.domain.workflow import WorkflowDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalTool:
    """An external tool that a batch may call."""

    name: str
    answer: str
    """What happens to its calls: `run`, `reverse`, `refuse`, `mock`, `record`, or `run answers`."""
    jobs: int
    """How many of the jobs to run have nodes that name it, or called it the last time."""
    earlier_calls: int
    """How many real calls earlier runs of the batch made to it."""
    earlier_jobs: int
    """How many jobs made those calls."""
    taken_back: bool | None = None
    """Whether its real calls will be taken back: False if they should be, but the tool has no `reverse`.

    None if they need not be taken back, or if there are none.
    """

    def __str__(self) -> str:
        earlier = f"; earlier runs called it {self.earlier_calls:,} times" if self.earlier_calls else ""
        back = "" if self.taken_back is None else _TAKEN_BACK[self.taken_back]
        return (
            f"External tool {self.name}: {_ANSWERS[self.answer]}{back}, in up to {counted(self.jobs, 'job')}{earlier}."
        )


_ANSWERS = {
    "run": "called for real",
    "reverse": "called for real",
    "refuse": "refused",
    "mock": "mocked",
    "record": "called once for each case, then recorded",
    "run answers": "answered from a recorded run",
}
_TAKEN_BACK = {
    True: " and taken back after each job",
    False: " but NOT taken back, because it has no reverse= (declare one, or mock the tool)",
}


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What running a batch would do: how many jobs and node runs, and what has changed in each node.

    Node runs are counted as if every job visited every node once; loops and branches make them more or fewer.
    """

    jobs: int
    kept: int
    scored: int
    """Jobs whose run is kept: they only need scores, or have calls left to take back."""
    run: int
    node_runs_kept: int
    node_runs_shared: int
    node_runs_executed: int
    changes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    coarse: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    changing: tuple[str, ...] = ()
    outside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    external: tuple[ExternalTool, ...] = ()
    """The external tools that the batch knows of; a node may call others."""


NodeRunKey = tuple[Any, ...]
"""Everything that the result of a node run depends on: two runs with the same key share one result."""


class NodeRunCount:
    """Counts the node runs that are kept with their jobs, shared with others, or executed."""

    def __init__(self, plan: BatchPlan, before: MadeOf, now: MadeOf) -> None:
        self._plan = plan
        self._before = before
        self._now = now
        self._upstream = _upstream(plan.definition)
        self._known_stable: dict[tuple[bool, str], str] = {}
        """Stable digests by digest; thousands of jobs have the same few nodes."""

    def count(
        self, jobs: Sequence[Job], waiting: Sequence[tuple[Job, Mapping[str, str]]], shareable: set[NodeRunKey]
    ) -> tuple[int, int, int]:
        """Return how many are kept, shared and executed; `waiting` holds the jobs to run with their node digests."""
        uncached = {node.name for node in self._plan.definition.nodes if not node.cache} | set(self._plan.fresh_nodes)
        made: set[NodeRunKey] = set()
        executed = 0
        for job, digests in waiting:
            for node, run in self._runs(job, self._stable(digests, is_now=True)):
                is_shared = self._plan.share and ((run in shareable and node not in uncached) or run in made)
                executed += not is_shared
                if node not in uncached or node in self._plan.fresh_nodes:
                    made.add(run)
        of_each = len(self._plan.definition.nodes)
        of_waiting, of_kept = of_each * len(waiting), of_each * (len(jobs) - len(waiting))
        return of_kept, of_waiting - executed, executed

    def shareable(self, job: Job, digests: Mapping[str, str], stale: set[str]) -> Iterator[NodeRunKey]:
        """Yield the node runs of a finished job that others can share, but none after a stale node."""
        for node, run in self._runs(job, self._stable(digests, is_now=False)):
            if not stale & set(self._upstream.get(node, ())):
                yield run

    def _stable(self, digests: Mapping[str, str], *, is_now: bool) -> dict[str, str]:
        """Return the digests of nodes without the values that runs change."""
        return {node: self._stable_digest(digest, is_now=is_now) for node, digest in digests.items()}

    def _stable_digest(self, digest: str, *, is_now: bool) -> str:
        if (is_now, digest) not in self._known_stable:
            parts = (self._now if is_now else self._before).parts.get(digest, {})
            self._known_stable[is_now, digest] = parts_digest(parts_that_count(parts, self._before.changing))
        return self._known_stable[is_now, digest]

    def _runs(self, job: Job, digests: Mapping[str, str]) -> Iterator[tuple[str, NodeRunKey]]:
        for node in digests:
            if node in self._upstream:
                before = tuple(digests.get(each, "") for each in self._upstream[node])
                yield node, (job.case_id, job.repeat, node, before)


def _upstream(definition: WorkflowDefinition) -> dict[str, tuple[str, ...]]:
    """Return each node with all nodes that may run before it, including itself."""
    direct: dict[str, set[str]] = {node.name: {node.name} for node in definition.nodes}
    for edge in definition.edges:
        direct.setdefault(edge.target, {edge.target}).update(edge.sources)
    found = {}
    for node in direct:
        reached, waiting = {node}, [node]
        while waiting:
            more = direct.get(waiting.pop(), set()) - reached
            reached |= more
            waiting += more
        found[node] = tuple(sorted(reached))
    return found
