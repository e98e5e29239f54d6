"""RecentResults: the results of the last batches that were asked for. No code of a user is needed for them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn

from wtb.application.queries.views import BatchView
from wtb.bootstrap import Services
from wtb.domain.batch import Job
from wtb.domain.errors import InvalidInput

if TYPE_CHECKING:
    from wtb.batch_results import BatchResult

_MOST_BATCHES, _MOST_JOBS = 4, 50_000
"""How much is kept in memory."""


@dataclass(frozen=True, slots=True)
class StoredResults:
    """Results as they are stored; their runs are read by other routes."""

    services: Services

    def get(self, run_id: str) -> NoReturn:
        raise InvalidInput(f"a server reads run {run_id!r} through its own routes")


@dataclass(frozen=True)
class _KeptResult:
    """The jobs of a batch as they were at one moment."""

    services: Services
    view: BatchView
    digest: bytes | None

    @cached_property
    def result(self) -> BatchResult:
        """The results, which remember their statistics."""
        from wtb.batch_results import BatchResult  # numpy and scipy take half a second to load

        return BatchResult(StoredResults(self.services), self.view.batch, self.view.jobs)


class RecentResults:
    """Keeps the jobs of the last batches that were asked for, with their statistics, until one of them changes.

    A page asks for several views of one batch, one after the other; to read 10,000 jobs for each takes a second.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._kept: OrderedDict[str, _KeptResult] = OrderedDict()
        self._lock = threading.Lock()

    def result(self, name: str) -> BatchResult:
        """Return the results of a batch; raise BatchNotFound."""
        return self._get(name).result

    def jobs(self, name: str) -> Sequence[Job]:
        """Return the jobs of a batch; raise BatchNotFound."""
        return self._get(name).view.jobs

    def _get(self, name: str) -> _KeptResult:
        batch, digest = self._services.queries.batch_stamp(name)
        with self._lock:
            kept = self._kept.get(batch.id)
        if kept is not None and digest is not None and (kept.view.batch, kept.digest) == (batch, digest):
            return kept
        found = _KeptResult(self._services, self._services.queries.batch(batch.id), digest)
        if digest is not None and len(found.view.jobs) <= _MOST_JOBS:
            self._keep(found)
        return found

    def _keep(self, found: _KeptResult) -> None:
        with self._lock:
            self._kept.pop(found.view.batch.id, None)
            self._kept[found.view.batch.id] = found
            while len(self._kept) > _MOST_BATCHES:
                self._kept.popitem(last=False)
