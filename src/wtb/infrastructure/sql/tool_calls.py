"""SqlToolCallRepository: recorded calls of tools, steps and questions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from wtb.domain.figures import NO_CALL_FIGURES, CallFigures
from wtb.domain.ids import ExecutionId, NodeRunId
from wtb.domain.integrity import FaultKind
from wtb.domain.ports import Codec
from wtb.domain.rollback import CallKey
from wtb.domain.tools import CallKind, CallStatus, Effects, ToolCall
from wtb.infrastructure.json_text import json_text
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.mapping import mapping
from wtb.infrastructure.sql.seals import RowSeal, sealed, unsealed
from wtb.infrastructure.timestamps import from_us, to_us

CALL_FIELDS = (
    "execution_id, node_run_id, identity, sequence, kind, tool, effects, arguments, status, error, "
    "started_at_us, ended_at_us, started_step, started_number, ended_step, result"
)
"""The columns that the seal of a result covers, then the result."""
_FIRST_PLACE = 12
"""The index of the first step column: older rows have no steps, and their seals do not cover them."""

FIGURES_SEAL = RowSeal(
    kind=FaultKind.TOOL_CALL,
    table="wtb_tool_calls",
    key=("execution_id", "node_run_id", "identity"),
    rest=("figures",),
    part="figures",
)
"""Figures were added after the seal of the result. Most calls have none, and then no second seal either."""

_SAVE = (
    f"INSERT INTO wtb_tool_calls ({CALL_FIELDS}, figures, seal) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (execution_id, node_run_id, identity) DO UPDATE SET status = excluded.status, "
    "result = excluded.result, error = excluded.error, started_at_us = excluded.started_at_us, "
    "ended_at_us = excluded.ended_at_us, started_step = excluded.started_step, "
    "started_number = excluded.started_number, ended_step = excluded.ended_step, figures = excluded.figures, "
    "seal = excluded.seal"
)
_LOST = (
    "SELECT node_run_id, identity FROM wtb_tool_calls WHERE execution_id = ? AND NOT EXISTS (SELECT 1 FROM "
    "wtb_node_runs WHERE wtb_node_runs.execution_id = wtb_tool_calls.execution_id AND id = node_run_id) "
    "ORDER BY node_run_id, identity"
)


class SqlToolCallRepository:
    """Calls by node run and identity."""

    def __init__(self, transaction: Transaction, codec: Codec) -> None:
        self._transaction = transaction
        self._codec = codec

    def save(self, call: ToolCall) -> None:
        facts = (
            call.execution_id,
            call.node_run_id,
            call.identity,
            call.sequence,
            call.kind.value,
            call.tool,
            call.effects.value,
            self._codec.encode(dict(call.arguments), f"{call.tool}()")[0],
            call.status.value,
            None if call.error is None else json.dumps(call.error),  # it may hold characters that no database accepts
            to_us(call.started_at),
            None if call.ended_at is None else to_us(call.ended_at),
            call.started_step,
            call.started_number,
            call.ended_step,
        )
        result, _ = self._codec.encode(call.result, f"the result of {call.tool}")
        figures = _figures_text(call)
        seal = None if figures is None else FIGURES_SEAL.of((*facts[:3], figures))
        self._transaction.run(_SAVE, (*facts, sealed(self._codec, _covered(facts), result), figures, seal))

    def list_calls(self, execution_id: ExecutionId, node_run_id: NodeRunId | None = None) -> tuple[ToolCall, ...]:
        where, values = "execution_id = ?", [str(execution_id)]
        if node_run_id is not None:
            where += " AND node_run_id = ?"
            values.append(node_run_id)
        statement = (
            f"SELECT {CALL_FIELDS}, figures, seal FROM wtb_tool_calls WHERE {where} ORDER BY node_run_id, sequence"
        )
        return tuple(self._call(row) for row in self._transaction.rows(statement, values))

    def list_lost(self, execution_id: ExecutionId) -> tuple[CallKey, ...]:
        return tuple(
            CallKey(node_run_id=run, identity=identity)
            for run, identity in self._transaction.rows(_LOST, (execution_id,))
        )

    def _call(self, row: Any) -> ToolCall:
        result = result_in(self._codec, row[:16])
        FIGURES_SEAL.check((*row[:3], row[16]), row[17])
        figures, reversible = _figures((row[2], row[16]))
        return ToolCall(
            execution_id=ExecutionId(row[0]),
            node_run_id=NodeRunId(row[1]),
            identity=row[2],
            sequence=row[3],
            kind=CallKind(row[4]),
            tool=row[5],
            effects=Effects(row[6]),
            arguments=self._codec.decode(row[7]),
            status=CallStatus(row[8]),
            error=_error(row[9]),
            started_at=from_us(row[10]),
            ended_at=None if row[11] is None else from_us(row[11]),
            started_step=row[12],
            started_number=row[13],
            ended_step=row[14],
            result=self._codec.decode(result),
            figures=figures,
            reversible=reversible,
        )


def result_in(codec: Codec, row: Sequence[Any]) -> bytes:
    """Return the result in a row, or raise DamagedData if the row does not match its seal."""
    return unsealed(codec, _covered(row[:-1]), row[-1], f"call {row[2]!r} of run {row[0]!r}")


def _covered(facts: Sequence[Any]) -> Sequence[Any]:
    """Return the facts that the seal covers."""
    return facts if any(fact is not None for fact in facts[_FIRST_PLACE:]) else facts[:_FIRST_PLACE]


@mapping("call")
def _figures(row: tuple[str, str | None]) -> tuple[CallFigures, bool | None]:
    """Return what `_figures_text` wrote: the figures, and whether the call can be undone."""
    if row[1] is None:
        return NO_CALL_FIGURES, None
    data = json.loads(row[1])
    return CallFigures.from_data(data), data.get("reversible")


def _figures_text(call: ToolCall) -> str | None:
    """Return the figures of a call as JSON, with whether it can be undone, which older versions did not write."""
    data = call.figures.to_data() | ({} if call.reversible is None else {"reversible": call.reversible})
    return json_text(data, f"the figures of {call.tool}") if data else None


def _error(text: str | None) -> str | None:
    """Return the error message; rows of the first versions hold it as plain text, which never begins with a quote."""
    return json.loads(text) if text is not None and text.startswith('"') else text
