"""BatchPlan: what a batch is to run, and what each of its results depends on."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from wtb.application.code import Fingerprint, fingerprint
from wtb.application.evaluation_engine import digests
from wtb.application.scoring import cases_to_keep
from wtb.domain.batch import Budget, Case, Job
from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import Evaluator, metric_of
from wtb.domain.near_copies import find_near_copies
from wtb.domain.ports import Codec
from wtb.domain.variants import Combination, label
from wtb.domain.workflow import WorkflowDefinition

FindTool = Callable[[str], Any]

Prints = Mapping[str, Mapping[str, Fingerprint]]
"""What every implementation is made of, by combination and node."""


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """What a batch is to run."""

    name: str
    definition: WorkflowDefinition
    source: str | None
    combinations: Sequence[Combination]
    cases: Sequence[Case]
    repeats: int
    baseline: Combination
    evaluators: Sequence[Evaluator]
    weights: Mapping[str, float] = field(default_factory=dict)
    primary: str | None = None
    share: bool = True
    seed: int = 0
    retries: int = 0
    workers: int = 1
    budget: Budget = field(default_factory=Budget)

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """What each evaluator was made of when the batch was planned, by name."""
        return digests(self.evaluators)

    @cached_property
    def by_label(self) -> Mapping[str, Combination]:
        """The combinations by what they are called."""
        return {label(combination): combination for combination in self.combinations}

    def seed_of(self, job: Job) -> int:
        """Return the seed of a job's run: that of its case and repeat, whatever the combination."""
        return zlib.crc32(f"{self.seed}/{job.case_id}/{job.repeat}".encode())


def check_plan(plan: BatchPlan) -> None:
    """Raise InvalidInput for figures that make no sense, before anything runs."""
    if plan.repeats < 1:
        raise InvalidInput(f"repeats must be at least 1, not {plan.repeats}")
    if not plan.evaluators:
        raise InvalidInput("a batch needs at least one evaluator, as wtb.ExactMatch('answer')")


def plan_data(plan: BatchPlan, codec: Codec) -> dict[str, Any]:
    """Return what is kept of a plan with its batch."""
    copies = find_near_copies(plan.cases)
    return {
        "combinations": [label(combination) for combination in plan.combinations],
        "baseline": label(plan.baseline),
        "cases": [case.id for case in plan.cases],
        "expected": cases_to_keep(plan.cases, codec),
        "repeats": plan.repeats,
        "metrics": [metric_of(evaluator).to_dict() for evaluator in plan.evaluators],
        "weights": dict(plan.weights),
        "primary": plan.primary,
        "clusters": {case.id: case.cluster for case in plan.cases if case.cluster is not None},
        "near_copies": None if copies is None else copies.to_data(),
        "workers": plan.workers,
        "cores": os.cpu_count() or 1,
        "source": plan.source,
    }


def fingerprints(plan: BatchPlan, find_tool: FindTool) -> dict[str, dict[str, Fingerprint]]:
    """Return the fingerprint of every implementation, by combination and node; each is looked at once."""
    made: dict[tuple[str, str], Fingerprint] = {}
    found: dict[str, dict[str, Fingerprint]] = {}
    for combination in plan.combinations:
        definition = plan.definition.with_variants(combination)
        for node in definition.nodes:
            if (node.name, node.variant) not in made:
                made[node.name, node.variant] = fingerprint(
                    node.function,
                    {**node.config, **definition.surroundings},
                    definition.version,
                    find_tool,
                )
        found[label(combination)] = {node.name: made[node.name, node.variant] for node in definition.nodes}
    return found


def result_digests(plan: BatchPlan, prints: Prints, codec: Codec, find_tool: FindTool) -> dict[tuple[str, str], str]:
    """Return what the result of each combination on each case depends on."""
    kept = plan.definition.kept
    cases = {case.id: codec.encode(dict(kept(case.input)), f"case {case.id}")[1] for case in plan.cases}
    found: dict[tuple[str, str], str] = {}
    for combination in plan.combinations:
        name, definition = label(combination), plan.definition.with_variants(combination)
        nodes = "".join(prints[name][node.name].digest for node in definition.nodes)
        whole = f"{nodes}{_structure(definition, codec, find_tool)}{plan.seed}"
        for case_id, about in cases.items():
            found[name, case_id] = codec.digest(whole.encode(), about).hex()[:32]
    return found


def _structure(definition: WorkflowDefinition, codec: Codec, find_tool: FindTool) -> str:
    """Return a digest of how nodes are set up and hang together: edges, conditions, reducers."""
    data = definition.to_dict()
    nodes = [{**node, "reference": None, "config": None} for node in data["nodes"]]
    functions = (*(edge.when for edge in definition.edges if callable(edge.when)), *definition.reducers.values())
    prints = [fingerprint(function, {}, "", find_tool).digest for function in functions]
    return codec.digest(codec.encode([nodes, data["edges"], prints], "the workflow")[1]).hex()
