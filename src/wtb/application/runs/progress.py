"""RunProgress: how far a run has come in this process, and how much of it is stored."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from wtb.application.runs.recorder import Recorder
from wtb.application.runs.steps import Ending, Position, Step
from wtb.domain.checkpoint import NodeRun
from wtb.domain.errors import StorageUnavailable
from wtb.domain.ports import NO_TELEMETRY, Measure, Telemetry, measured
from wtb.domain.secrets import masked_logger
from wtb.domain.state import State

_log = masked_logger(__name__)

_WAITS_S = (0.05, 0.2, 1.0)
"""How long to wait between tries to write an end: if it cannot be written, the steps in memory are lost."""


class RunProgress:
    """The state, the counters and the next nodes of a run; `at` is the last stored position.

    If a checkpoint cannot be written, and that is not fatal, its step is kept here and goes into the next checkpoint.
    The run is then marked as degraded. A crash meanwhile loses such steps but repeats no tool call, since a call whose
    intent cannot be written is not made.
    """

    def __init__(
        self,
        recorder: Recorder,
        at: Position,
        *,
        state: State,
        memory: Mapping[str, Any],
        visits: Mapping[str, int],
        steps: int,
        fatal: bool,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        self._recorder = recorder
        self._fatal = fatal
        workflow = at.execution.workflow_name
        self._telemetry = telemetry
        self._save_step = measured(telemetry, Measure.SAVE, workflow, recorder.step)
        self._save_mark = measured(telemetry, Measure.SAVE, workflow, recorder.mark)
        self._unsaved: list[Step] = []
        self._trouble: str | None = None
        self._attempted = 0
        self._lock = threading.Lock()
        self.at = at
        self.state = state
        self.memory = memory
        """The engine's own data beside the state."""
        self.visits = dict(visits)
        self.steps = steps
        """The number of supersteps since the beginning of the run, not counting checkpoints inside nodes."""
        self.next_nodes = at.head.next_nodes
        self.joins = at.head.joins

    @property
    def is_stored(self) -> bool:
        """Whether all steps so far are stored."""
        return not self._unsaved

    def advance(self, step: Step, state: State) -> None:
        """Advance by one superstep, and store it if possible."""
        self._unsaved.append(step)
        try:
            self._store(step.ending)
        except StorageUnavailable as error:
            if self._fatal or step.files is not None:  # files are in a folder, and only a commit saves them
                raise
            _log.warning(
                "run %s continues, but its step %d could not be stored: %s", self.at.execution.id, self.steps + 1, error
            )
        except BaseException:
            self._unsaved.pop()
            raise
        self.state = state
        self.steps += 1
        self.next_nodes, self.joins = step.next_nodes, step.joins
        for run in step.runs:
            self.visits[run.node] = run.visit

    def _store(self, ending: Ending | None) -> None:
        """Write everything that is not stored yet as one checkpoint; for an end, wait and try again."""
        for wait_s in (*_WAITS_S, None) if ending is not None and not self._fatal else (None,):
            try:
                self._write()
            except StorageUnavailable:
                if wait_s is None:
                    raise
                time.sleep(wait_s)
            else:
                return

    def _write(self) -> None:
        if self._trouble is not None:
            self._adopt()
        if self._unsaved:
            self._attempted = len(self._unsaved)
            whole = self._unsaved[0] if len(self._unsaved) == 1 else reduce(Step.followed_by, self._unsaved)
            try:
                self.at = self._save_step(self.at, whole, degraded=self._trouble)
            except StorageUnavailable as error:
                self._trouble = str(error)
                raise
            self._count_bytes()
            self._unsaved.clear()
        self._trouble = None

    def _adopt(self) -> None:
        """Check whether a step that seemed to fail was stored after all: the database's answer may have been lost."""
        stored = self._recorder.load(self.at.execution.id)
        mine = stored.execution.lease_token == self.at.execution.lease_token
        if mine and stored.head.parent_id == self.at.head.id:
            self.at = stored
            del self._unsaved[: self._attempted]
            self._trouble = None

    def end(self, ending: Ending, runs: tuple[NodeRun, ...] = ()) -> None:
        """Store what is not stored yet, and record that this process stops driving the run."""
        if self._unsaved:
            self._store(ending)
        self.at = self._recorder.end(self.at, ending, runs)

    def mark(self, run: NodeRun, **facts: Any) -> NodeRun:
        """Store a checkpoint in the middle of a node (see `Recorder.mark`), and return the run with it."""
        with self._lock:
            if self._unsaved:
                self._write()
            self.at, run = self._save_mark(self.at, run, **facts)
            self._count_bytes()
            return run

    def _count_bytes(self) -> None:
        if self._telemetry.is_on:
            checkpoint = self.at.head
            self._telemetry.count(Measure.CHECKPOINT_BYTES, self.at.execution.workflow_name, checkpoint.size_bytes)


Mark = Callable[..., NodeRun]
"""The function with which a journal makes checkpoints: `RunProgress.mark`."""
