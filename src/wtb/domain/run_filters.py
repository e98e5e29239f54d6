"""RunFilters: which runs are listed or counted."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TypedDict

from wtb.domain.execution import ExecutionStatus


class RunFilters(TypedDict, total=False):
    """Which runs are listed or counted: those that fit all of these."""

    statuses: Collection[ExecutionStatus]
    workflow: str | None
    since: datetime | None
    """Created at this moment or later."""
    until: datetime | None
    """Created before this moment."""
    created_by: str | None
    prefix: str
    """How their ids begin."""
    batch: str | None
    """The id of the batch that made them. A fork of such a run was not made by the batch."""
    without_batches: bool
    """Whether runs that batches made are left out."""
