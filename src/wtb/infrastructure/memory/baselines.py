"""MemoryBaselineRepository: baselines in a dictionary, each with its results."""

from __future__ import annotations

from collections.abc import Sequence

from wtb.domain.batch import Baseline, Job
from wtb.domain.errors import BaselineNotFound
from wtb.domain.values import evolve
from wtb.infrastructure.memory.batches import stored_job, stored_record
from wtb.infrastructure.memory.tables import MemoryTransaction


class MemoryBaselineRepository:
    """Baselines by name."""

    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction

    def save(self, baseline: Baseline, results: Sequence[Job]) -> None:
        record = stored_record(baseline.record, f"baseline {baseline.name!r}")
        jobs = tuple(sorted(map(stored_job, results), key=lambda job: job.number))
        self._transaction.put("baselines", baseline.name, (evolve(baseline, record=record), jobs))

    def get(self, name: str) -> Baseline:
        return self._found(name)[0]

    def find(self, batch_id: str) -> Baseline | None:
        return next((each for each in self.list_baselines() if each.batch_id == batch_id), None)

    def list_baselines(self) -> tuple[Baseline, ...]:
        found = (baseline for baseline, _ in self._transaction.all("baselines"))
        return tuple(sorted(found, key=lambda baseline: baseline.name))

    def list_results(self, name: str) -> tuple[Job, ...]:
        return self._found(name)[1]

    def delete(self, name: str) -> None:
        if self._transaction.find("baselines", name) is not None:
            self._transaction.drop("baselines", name)

    def _found(self, name: str) -> tuple[Baseline, tuple[Job, ...]]:
        found: tuple[Baseline, tuple[Job, ...]] | None = self._transaction.find("baselines", name)
        if found is None:
            raise BaselineNotFound.among(name, [baseline.name for baseline in self.list_baselines()])
        return found
