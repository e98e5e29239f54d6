"""MemoryToolCallRepository: recorded calls in a dictionary, encoded so that they cannot change afterwards."""

from __future__ import annotations

from wtb.domain.ids import ExecutionId, NodeRunId
from wtb.domain.ports import Codec
from wtb.domain.rollback import CallKey
from wtb.domain.tools import ToolCall
from wtb.domain.values import evolve
from wtb.infrastructure.memory.tables import MemoryTransaction


class MemoryToolCallRepository:
    """Calls by node run and identity."""

    def __init__(self, transaction: MemoryTransaction, codec: Codec) -> None:
        self._transaction = transaction
        self._codec = codec

    def save(self, call: ToolCall) -> None:
        key = (call.execution_id, call.node_run_id, call.identity)
        arguments, _ = self._codec.encode(dict(call.arguments), f"{call.tool}()")
        result, _ = self._codec.encode(call.result, f"the result of {call.tool}")
        self._transaction.put("tool_calls", key, (evolve(call, arguments={}, result=None), arguments, result))

    def list_calls(self, execution_id: ExecutionId, node_run_id: NodeRunId | None = None) -> tuple[ToolCall, ...]:
        calls = [
            evolve(call, arguments=self._codec.decode(arguments), result=self._codec.decode(result))
            for call, arguments, result in self._transaction.group("tool_calls", 0, execution_id)
            if node_run_id in (None, call.node_run_id)
        ]
        return tuple(sorted(calls, key=lambda call: (call.node_run_id, call.sequence)))

    def list_lost(self, execution_id: ExecutionId) -> tuple[CallKey, ...]:
        known = {run.id for run in self._transaction.group("node_runs", 0, execution_id)}
        calls = [call for call, _, _ in self._transaction.group("tool_calls", 0, execution_id)]
        lost = {(call.node_run_id, call.identity) for call in calls if call.node_run_id not in known}
        return tuple(CallKey(node_run_id=run, identity=identity) for run, identity in sorted(lost))
