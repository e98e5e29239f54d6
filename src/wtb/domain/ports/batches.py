"""Batches with their jobs, baselines, the node runs that jobs share, and what jobs were seen to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from wtb.domain.batch import Baseline, Batch, CacheEntry, Job
from wtb.domain.observation import Observation


class BatchRepository(Protocol):
    """Batches and their jobs."""

    def save(self, batch: Batch) -> None:
        """Keep a batch, new or changed; the seconds that it has taken never become fewer."""
        ...

    def took(self, batch_id: str, spent_s: float) -> None:
        """Keep how long a batch has taken so far, unless it is known to have taken longer."""
        ...

    def get(self, batch_id: str) -> Batch:
        """Return it, or raise BatchNotFound."""
        ...

    def list_batches(self, *, name: str | None = None, limit: int = 100) -> tuple[Batch, ...]:
        """Return batches, newest first."""
        ...

    def save_jobs(self, jobs: Sequence[Job]) -> None:
        """Keep jobs, new or changed."""
        ...

    def list_jobs(self, batch_id: str) -> tuple[Job, ...]:
        """Return the jobs of a batch in the order of their numbers."""
        ...

    def get_job(self, batch_id: str, number: int) -> Job:
        """Return one of them, or raise BatchNotFound."""
        ...

    def delete(self, batch_id: str) -> None:
        """Delete a batch with its jobs; its runs stay."""
        ...

    def lock(self, name: str) -> None:
        """Let nobody else plan a batch of this name until the end of the transaction."""
        ...


class BaselineRepository(Protocol):
    """Baselines by name, each with its saved results. A baseline never changes; it is replaced or deleted as a whole.

    A damaged baseline can be replaced and deleted like any other.
    """

    def save(self, baseline: Baseline, results: Sequence[Job]) -> None:
        """Save a baseline with its results, in place of the one of the same name."""
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
    """Results of node runs by what they depend on. Whoever claims a key makes the result, all others take it."""

    def find(self, key: bytes) -> CacheEntry | None:
        """Return the result, or who is making it."""
        ...

    def claim(self, entry: CacheEntry, *, instead_of: CacheEntry | None = None) -> bool:
        """Put an entry where none is, or in the place of one that is as it was seen; False when somebody was first."""
        ...

    def settle(self, entry: CacheEntry) -> bool:
        """Put the result in the place of the claim of the same owner; False when the claim was taken over."""
        ...

    def release(self, key: bytes, owner: str) -> None:
        """Take back a claim: there is no result to share."""
        ...

    def renew(self, owner: str, expires_at: datetime) -> None:
        """Extend all claims of an owner."""
        ...


class ObservationRepository(Protocol):
    """What runs were observed to read, by the trace of a batch run, in the order in which it was read."""

    def add(self, trace_id: str, observations: Mapping[int, Observation]) -> None:
        """Keep observations by their number; one that is there already is left as it is."""
        ...

    def list_observations(self, trace_id: str) -> dict[int, Observation]:
        """Return the observations of a trace by their number, in order."""
        ...
