"""BatchServices: the services that are needed to run batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wtb.application.batches.job_reversals import JobReversals
from wtb.application.batches.planner import BatchPlanner
from wtb.application.batches.scoring import Scoring
from wtb.application.dependencies.traces import Traces
from wtb.application.evaluation_engine import EvaluationEngine
from wtb.application.node_cache import AttemptRef, NodeCache
from wtb.application.runs.execution_controller import ExecutionController
from wtb.application.runs.run_limits import RunLimits
from wtb.application.store_time import store_time
from wtb.domain.job_limits import JOB_TIMEOUT_S
from wtb.domain.ports import NO_TELEMETRY, Clock, Codec, Ids, ObjectStore, Owners, Storage, Telemetry
from wtb.domain.secrets import Masker


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchServices:
    """The services that are needed to run batches."""

    storage: Storage
    clock: Clock
    ids: Ids
    codec: Codec
    controller: ExecutionController
    cache: NodeCache
    evaluation: EvaluationEngine
    scoring: Scoring
    masker: Masker
    planner: BatchPlanner
    traces: Traces
    reversals: JobReversals
    owners: Owners
    objects: ObjectStore
    limits: RunLimits
    """The limits of the settings."""
    telemetry: Telemetry = NO_TELEMETRY
    user: str | None = None
    """Who runs the batches."""
    settings: Mapping[str, Any] | None = None
    """The settings with which another process opens the same store; None if no other process can."""
    job_timeout_s: float = JOB_TIMEOUT_S
    """How long a job may take, unless its batch says otherwise."""

    def new_attempt(self) -> AttemptRef:
        """Return a new attempt at a batch or a job. Failures are final within an attempt."""
        return AttemptRef(id=self.ids.new(), began_at=store_time(self.storage))
