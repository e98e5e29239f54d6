"""Results of batches for answers: statistics over stored scores. No code of a user is needed for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from wtb.api.parts import ServerParts
from wtb.bootstrap import Services
from wtb.domain.batch import Baseline
from wtb.domain.errors import BatchNotFound, InvalidInput

if TYPE_CHECKING:
    from wtb.batch_results import BatchResult

_BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class _Stored:
    """Results as they are stored; their runs are read by other routes."""

    services: Services

    def get(self, run_id: str) -> NoReturn:
        raise InvalidInput(f"a server reads run {run_id!r} through its own routes")


def result_of(parts: ServerParts, name: str, tags: Sequence[str] = ()) -> BatchResult:
    """Return a batch by its id or name, only with the cases that have one of these tags, if any are given.

    `baseline/NAME` means the saved results of a baseline, unless a batch has that very name.
    """
    from wtb.batch_results import BatchResult  # numpy and scipy take half a second to load

    queries = parts.services.queries
    try:
        found = queries.batch(name)
    except BatchNotFound:
        prefix, slash, baseline = name.partition("/")
        if not slash or prefix != _BASELINE:
            raise
        found = queries.baseline(baseline).results
    result = BatchResult(_Stored(parts.services), found.batch, found.jobs)
    return result.tagged(*tags) if tags else result


def saved_result(parts: ServerParts, name: str) -> tuple[Baseline, BatchResult]:
    """Return a baseline with its results."""
    from wtb.batch_results import BatchResult

    found = parts.services.queries.baseline(name)
    return found.baseline, BatchResult(_Stored(parts.services), found.results.batch, found.results.jobs)
