"""Results of batches for answers: statistics over stored scores. No code of a user is needed for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wtb.api.parts import ServerParts
from wtb.api.recent_results import StoredResults
from wtb.domain.batch import Baseline
from wtb.domain.errors import BatchNotFound

if TYPE_CHECKING:
    from wtb.batch_results import BatchResult

_BASELINE = "baseline"


def result_of(parts: ServerParts, name: str, tags: Sequence[str] = ()) -> BatchResult:
    """Return a batch by its id or name, only with the cases that have one of these tags, if any are given.

    `baseline/NAME` means the saved results of a baseline, unless a batch has that very name.
    """
    try:
        result = parts.results.result(name)
    except BatchNotFound:
        result = _other_result(parts, name)
    return result.tagged(*tags) if tags else result


def _other_result(parts: ServerParts, name: str) -> BatchResult:
    """Return the results of a baseline, by the id of its results or as `baseline/NAME`."""
    from wtb.batch_results import BatchResult

    queries = parts.services.queries
    try:
        found = queries.batch(name)
    except BatchNotFound:
        prefix, slash, baseline = name.partition("/")
        if not slash or prefix != _BASELINE:
            raise
        found = queries.baseline(baseline).results
    return BatchResult(StoredResults(parts.services), found.batch, found.jobs)


def saved_result(parts: ServerParts, name: str) -> tuple[Baseline, BatchResult]:
    """Return a baseline with its results."""
    from wtb.batch_results import BatchResult

    found = parts.services.queries.baseline(name)
    return found.baseline, BatchResult(StoredResults(parts.services), found.results.batch, found.results.jobs)
