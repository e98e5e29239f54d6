"""UnfinishedCalls: the calls of nodes that did not finish: those that the store has lost, and those to undo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from wtb.application.runs.recorder import Recorder
from wtb.application.runs.recovery import Recovery, Standing
from wtb.application.runs.reversals import Reversals
from wtb.application.runs.steps import Position
from wtb.domain.anchor import Act, AnchoredCall, begun_again
from wtb.domain.ids import ExecutionId
from wtb.domain.ports import CallAnchor, Storage
from wtb.domain.secrets import masked_logger
from wtb.domain.tools import ToolCall
from wtb.domain.values import evolve

_log = masked_logger(__name__)


class UnfinishedCalls:
    """Finds and undoes the calls of unfinished nodes, before a run continues."""

    def __init__(
        self, storage: Storage, anchor: CallAnchor, recorder: Recorder, recovery: Recovery, reversals: Reversals
    ) -> None:
        self._storage = storage
        self._anchor = anchor
        self._recorder = recorder
        self._recovery = recovery
        self._reversals = reversals

    def list_lost(self, execution_id: ExecutionId) -> tuple[AnchoredCall, ...]:
        """Return the calls that a run made and the store has lost, and warn about them."""
        found = self._anchor.list_lost(execution_id)
        lost = tuple(call for call in found if call.act is Act.CALL)
        if taken_back := sorted({call.tool for call in found if call.act is Act.REVERSAL}):
            _log.warning(
                "the database lost its end: run %s had undone %s there, and continues as if that were still in effect. "
                "To undo it again, pause the run and roll it back",
                execution_id,
                ", ".join(taken_back),
            )
        if lost:
            _log.warning(
                "the database lost its end: after the last step that it kept, run %s called %s. These calls are in "
                "doubt and are not simply made again",
                execution_id,
                ", ".join(sorted({call.tool for call in lost})),
            )
        return lost

    def undo(self, at: Position, lost: Sequence[AnchoredCall]) -> tuple[AnchoredCall, ...]:
        """Undo the external calls of unfinished nodes, last first, and abandon those node runs.

        A warning names each call that cannot be undone, because the node may make it again. Finished members of a
        parallel superstep stay as they are. Return the lost calls of nodes that do not start over here.
        """
        standing = self._recovery.standing(at)
        runs = [run for run in standing.open_runs if run.pending is None]
        with self._storage.unit_of_work(readonly=True) as uow:
            found = [call for run in runs for call in uow.tool_calls.list_calls(run.execution_id, run.id)]
            history = uow.checkpoints.load_history(at.execution.id)
        calls = [call for call in found if not history.is_inherited(call)]
        for call in sorted(calls, key=lambda call: call.start_order, reverse=True):
            if self._reversals.can_reverse(call):
                self._reversals.reverse(call, at.token)
            elif call.may_have_happened:
                _warn_that_it_stays(at, call)
        for run in runs:
            self._recorder.abandon(at, run)
        return self._abandon_lost(at, standing, lost)

    def _abandon_lost(self, at: Position, standing: Standing, lost: Sequence[AnchoredCall]) -> tuple[AnchoredCall, ...]:
        """Abandon the lost runs of the nodes that come next. Too little is known of their calls to undo them."""
        due = Counter(at.head.next_nodes)
        here = [call for call in lost if call.visit <= standing.visits.get(call.node, 0) + due[call.node]]
        for call in here:
            _warn_that_it_stays(at, call)
        for place, lost_id in {call.place: call.node_run_id for call in here}.items():
            run = self._recorder.node_run(at, *place)
            self._recorder.abandon(at, evolve(run, id=begun_again(run.id, lost_id)))
        return tuple(call for call in lost if call not in here)


def _warn_that_it_stays(at: Position, call: ToolCall | AnchoredCall) -> None:
    _log.warning(
        "run %s: %s (%s) stays as it is and cannot be undone here; the node may do it again",
        at.execution.id,
        call.tool,
        call.identity,
    )
