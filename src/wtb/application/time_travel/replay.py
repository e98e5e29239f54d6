"""Replayer: applies the current workflow to the recorded results of a run; calls no node and writes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from wtb.domain.checkpoint import Checkpoint
from wtb.domain.engine import Engine
from wtb.domain.errors import DamagedData
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.domain.ports import Codec, Conditions, Storage
from wtb.domain.replay import EngineReplay, ReplayedStep, ReplayReport, StepReplay
from wtb.domain.workflow import WorkflowDefinition


class Replayer:
    """Compares recorded runs with workflows; holds only two states in memory, however long the run is."""

    def __init__(
        self,
        storage: Storage,
        conditions: Conditions,
        codec: Codec,
        engine_of: Callable[[WorkflowDefinition], Engine],
    ) -> None:
        self._storage = storage
        self._conditions = conditions
        self._codec = codec
        self._engine_of = engine_of

    def replay(self, execution_id: ExecutionId, definition: WorkflowDefinition) -> ReplayReport:
        """Apply the recorded results with the workflow's reducers, order and routing, and compare every step.

        Each step starts from the recorded step before it, so that one difference neither hides nor causes another.
        """
        definition.validate(self._conditions)
        rules = self._rules(definition)
        steps: list[ReplayedStep] = []
        with self._storage.unit_of_work(readonly=True) as uow:
            history = uow.checkpoints.load_history(execution_id)
            line, visits = history.lineage(), _visits(history)
            _check_chain(line)
            before = None
            for checkpoint in line:
                recorded = None if checkpoint.deleted else uow.checkpoints.load(checkpoint.id)
                verdict, differences = rules.verdict(before, recorded)
                before = recorded
                steps.append(
                    ReplayedStep(
                        step=checkpoint.step,
                        checkpoint_id=checkpoint.id,
                        trigger=checkpoint.trigger,
                        visits=visits.get(checkpoint.id, ()),
                        verdict=verdict,
                        differences=differences,
                    )
                )
        return ReplayReport(execution_id=execution_id, steps=tuple(steps))

    def _rules(self, definition: WorkflowDefinition) -> StepReplay | EngineReplay:
        if definition.engine is None:
            return StepReplay(definition, self._conditions, self._codec)
        names = tuple(node.name for node in definition.nodes)
        return EngineReplay(self._engine_of(definition), names, self._codec)

    def returned(self, execution_id: ExecutionId) -> dict[str, list[dict[str, Any]]]:
        """Return what each node returned (before reducers) on the active branch, one entry per visit."""
        found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        with self._storage.unit_of_work(readonly=True) as uow:
            history = uow.checkpoints.load_history(execution_id)
            nodes = {run.node for run in history.node_runs}
            for checkpoint in history.lineage():
                for name, update in uow.checkpoints.load(checkpoint.id).returned.items():
                    node, _, _ = name.partition("#")  # further visits in the same superstep
                    if node in nodes:  # LangGraph's Saver stores its records here as well
                        found[node].append(dict(update))
        return dict(found)


def _visits(history: ExecutionHistory) -> dict[CheckpointId, tuple[tuple[str, int], ...]]:
    """Return the visits that ended with each checkpoint."""
    visits: dict[CheckpointId, tuple[tuple[str, int], ...]] = {}
    for boundary in history.boundaries():
        if boundary.last_id is not None:
            visits[boundary.last_id] = (*visits.get(boundary.last_id, ()), (boundary.node, boundary.visit))
    return visits


def _check_chain(line: tuple[Checkpoint, ...]) -> None:
    """Raise DamagedData if a checkpoint was not made after the one that now comes before it."""
    parent_hash = b""
    for checkpoint in line:
        if checkpoint.parent_hash != parent_hash:
            raise DamagedData(
                f"checkpoint {checkpoint.id!r} is damaged: it does not follow the one before it; "
                "`wtb doctor` shows more"
            )
        parent_hash = checkpoint.hash
