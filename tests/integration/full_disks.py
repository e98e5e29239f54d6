"""Told: a run that is written until its disk is full, and what each of its checkpoints must hold."""

from __future__ import annotations

import random

from tests.run_writer import RunWriter
from wtb.application.runs.steps import Position
from wtb.bootstrap import Services
from wtb.domain.checkpoint import Checkpoint
from wtb.domain.errors import StorageUnavailable
from wtb.domain.events import EventType
from wtb.domain.ids import ExecutionId
from wtb.domain.ports import Storage
from wtb.domain.state import Append, SetValue, State, StateDelta

WORKFLOW = {"name": "w", "version": "1", "nodes": []}


class Told:
    """A run that is written as long as the disk allows, and what each of its checkpoints must hold."""

    def __init__(self, services: Services, run: str | None = None) -> None:
        self.recorder = RunWriter(services.storage, services.clock, services.ids)
        self.at: Position = self.recorder.start(WORKFLOW, {"log": []}, execution_id=run)
        self.line: list[Checkpoint] = [self.at.head]
        self.states = [State({"log": []})]

    def step(self, size: int) -> None:
        text = random.Random(len(self.line)).randbytes(size).hex()[:size]
        delta = StateDelta.of(log=Append((text,)), last=SetValue(text * 2))
        run = self.recorder.node_run(self.at, "node", len(self.line))
        self.at = self.recorder.complete(self.at, run, delta)
        self.line.append(self.at.head)
        self.states.append(self.states[-1].apply(delta))

    def check(self, storage: Storage) -> None:
        """Everything that was committed is there and whole, and nothing else."""
        with storage.unit_of_work(readonly=True) as uow:
            run = ExecutionId(self.at.execution.id)
            assert list(uow.checkpoints.list_infos(run)) == self.line
            assert list(uow.checkpoints.load_history(run).lineage()) == self.line
            assert len(uow.events.list_events(stream=run, types=[EventType.NODE_COMPLETED])) == len(self.line) - 1
            for checkpoint, state in zip(self.line, self.states, strict=True):
                assert dict(uow.checkpoints.load(checkpoint.id).state) == dict(state)


def fill(told: Told, size: int) -> StorageUnavailable:
    """Take steps until the disk is full."""
    for _ in range(10_000):
        try:
            told.step(size)
        except StorageUnavailable as error:
            return error
    raise AssertionError("the disk does not get full")
