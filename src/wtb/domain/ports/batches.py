"""Batches with their jobs, baselines, the node runs that jobs share, and observations of what jobs read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from wtb.domain.batch import Baseline, Batch, BatchDriver, CacheEntry, Job
from wtb.domain.ids import ExecutionId
from wtb.domain.observation import Observation


class BatchRepository(Protocol):
    """Batches and their jobs."""

    def save(self, batch: Batch) -> None:
        """Store a new or changed batch; its stored `spent_s` never decreases, and its stored `driver` stays."""
        ...

    def took(self, batch_id: str, spent_s: float) -> None:
        """Store how long a batch has taken so far, unless a longer time is already stored."""
        ...

    def note_driver(self, batch_id: str, driver: BatchDriver) -> None:
        """Store which process runs a batch, and that it lives; nothing happens if the batch is gone."""
        ...

    def get(self, batch_id: str) -> Batch:
        """Return it, or raise BatchNotFound."""
        ...

    def list_batches(
        self, *, name: str | None = None, before: tuple[datetime, str] | None = None, limit: int = 100
    ) -> tuple[Batch, ...]:
        """Return batches, newest first; with `before`, a time and an id, only those after it in this order."""
        ...

    def save_jobs(self, jobs: Sequence[Job]) -> None:
        """Store new or changed jobs."""
        ...

    def list_jobs(self, batch_id: str) -> tuple[Job, ...]:
        """Return the jobs of a batch in the order of their numbers."""
        ...

    def digest_jobs(self, batch_id: str) -> bytes | None:
        """Return a value that differs if any job of a batch differs, without reading the jobs; None if it cannot."""
        ...

    def get_job(self, batch_id: str, number: int) -> Job:
        """Return one job, or raise BatchNotFound."""
        ...

    def find_job(self, batch_id: str, execution_id: ExecutionId) -> Job | None:
        """Return the job of a batch whose result comes from this run; None if it has none, or has a newer one."""
        ...

    def delete(self, batch_id: str) -> None:
        """Delete a batch with its jobs; its runs stay."""
        ...

    def lock(self, name: str) -> None:
        """Lock the name of a batch until the end of the transaction, so that no other process plans it."""
        ...


class BaselineRepository(Protocol):
    """Baselines by name, each with its saved results. A baseline never changes; it is replaced or deleted as a whole.

    A damaged baseline can be replaced and deleted like any other.
    """

    def save(self, baseline: Baseline, results: Sequence[Job]) -> None:
        """Save a baseline with its results; it replaces a baseline with the same name."""
        ...

    def get(self, name: str) -> Baseline:
        """Return it, or raise BaselineNotFound, which names those that exist."""
        ...

    def find(self, batch_id: str) -> Baseline | None:
        """Return the baseline whose results carry this batch id."""
        ...

    def list_baselines(self) -> tuple[Baseline, ...]:
        """Return all baselines, sorted by name."""
        ...

    def list_results(self, name: str) -> tuple[Job, ...]:
        """Return the saved results in the order of their numbers.

        Raise BaselineNotFound if there is no such baseline, and DamagedData if one of its results is lost.
        """
        ...

    def delete(self, name: str) -> None:
        """Delete a baseline with its results, if there is one of this name."""
        ...


class NodeCacheRepository(Protocol):
    """Results of node runs by a key of their dependencies. The owner of a key makes the result; others reuse it."""

    def find(self, key: bytes) -> CacheEntry | None:
        """Return the entry of a key: the result, or the owner that is making it."""
        ...

    def claim(self, entry: CacheEntry, *, instead_of: CacheEntry | None = None) -> bool:
        """Store an entry if there is none, or if the current one equals `instead_of`; False if another was first."""
        ...

    def settle(self, entry: CacheEntry) -> bool:
        """Replace the owner's claim with the result; False if another owner has taken the claim over."""
        ...

    def release(self, key: bytes, owner: str) -> None:
        """Give up a claim: there is no result to share."""
        ...

    def renew(self, owner: str, expires_at: datetime) -> None:
        """Extend all claims of an owner."""
        ...


class ObservationRepository(Protocol):
    """Observations of what runs read, by the trace of a batch run, in the order of reading."""

    def add(self, trace_id: str, observations: Mapping[int, Observation]) -> None:
        """Store observations by their number; existing ones do not change."""
        ...

    def list_observations(self, trace_id: str) -> dict[int, Observation]:
        """Return the observations of a trace by their number, in order."""
        ...
