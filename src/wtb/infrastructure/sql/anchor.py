"""SqliteAnchor: notes external calls in a file beside the database, and finds those that the database has lost."""

from __future__ import annotations

import json
import logging
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from wtb.domain.anchor import Act, AnchoredCall, first_id
from wtb.domain.errors import StorageError, UnknownFormat
from wtb.domain.events import EventType
from wtb.domain.execution import ExecutionStatus
from wtb.domain.ids import ExecutionId, NodeRunId
from wtb.domain.integrity import Fault, FaultKind
from wtb.domain.tools import CallStatus
from wtb.infrastructure.sql.anchor_file import AnchorFile
from wtb.infrastructure.sql.database import Transaction
from wtb.infrastructure.sql.sqlite import SqliteDatabase
from wtb.infrastructure.timestamps import to_us

_log = logging.getLogger(__name__)

_ANY_CALL = "SELECT 1 FROM wtb_tool_calls WHERE kind = 'tool' AND effects = 'external' LIMIT 1"
_CALLS = (
    "SELECT node_run_id, identity, started_step, started_number, status, error FROM wtb_tool_calls "
    "WHERE execution_id = ? AND node_run_id IN (??)"
)
_ROLLBACKS = "SELECT id FROM wtb_rollbacks WHERE execution_id = ? AND status IN ('completed', 'abandoned')"
_LEFT_BEHIND = "SELECT id FROM wtb_node_runs WHERE execution_id = ? AND status = 'skipped'"
_DELETION = f"SELECT 1 FROM wtb_events WHERE stream = ? AND type = '{EventType.EXECUTION_DELETED}' LIMIT 1"
_ENDED = (None, ExecutionStatus.COMPLETED, ExecutionStatus.CANCELLED)
_TEXT = json.JSONEncoder(separators=(",", ":")).encode
_DONE = {Act.CALL: "called", Act.REVERSAL: "took back", Act.REPEAT: "called again"}
_MANY = 4_096
"""After this many lines a long-lived process empties the file itself."""
_NAMED = 3
"""The most lost calls of a run that are named one by one."""


class SqliteAnchor:
    """Writes a line to `<database>-anchor` for each external intent, after its commit and before the call.

    SQLite silently ends its write-ahead log at the first damaged frame, as if nothing had come after it. That happens
    only when a database is opened while no other process uses it. So a run has lost nothing if it had no line when this
    process first looked, and has got none from this process since.
    """

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        real = Path(os.path.realpath(database.path))  # like SQLite for its own files: links may have other names
        self._log_path = real.with_name(f"{real.name}-wal")
        self._file = AnchorFile(
            real.with_name(f"{real.name}-anchor"),
            is_flushed=database.synchronous == "FULL",
            timeout_s=database.busy_timeout_s,
        )
        self._runs: set[ExecutionId] | None = None
        """The runs that had lines when this process first looked, or got some from it."""
        self._noted = 0

    def open(self) -> None:
        """Create the file if there is none. Warn about lost calls, or empty it if the database has all calls."""
        size = self._file.size()
        if size is None:
            self._begin()
        elif size:
            try:
                self._compare()
            except StorageError as error:  # resuming a run, and the doctor, report it; nothing else needs it
                _log.warning("%s cannot be compared with the database: %s", self._file.path, error)

    def _compare(self) -> None:
        lost = self._all_lost(map(_call, self._file.read().lines))
        if lost:
            runs = sorted({call.execution_id for call in lost})
            _log.warning(
                "%s has lost its last steps, and with them external calls of %s; `wtb doctor` names them",
                self._database.path,
                f"run {runs[0]}" if len(runs) == 1 else f"{len(runs)} runs",
            )
        elif self._log_is_empty():
            self._empty(write_log_back=False)

    def _begin(self) -> None:
        self._file.create(self._database.path.stat().st_mode & 0o777)
        with closing(self._database.begin(readonly=True)) as transaction:
            has_calls = transaction.row(_ANY_CALL) is not None
        if has_calls:
            _log.warning(
                "%s was missing and has been created again: an earlier wtb wrote the database, or it was copied or "
                "restored without it. If the database has lost its last steps, WTB cannot tell which calls they made",
                self._file.path,
            )

    def _empty(self, *, write_log_back: bool) -> None:
        """Empty the file if the database file itself has all calls, none of them only in a log that may be cut."""
        with self._file.kept_from_growing() as content:
            if content.damaged or self._all_lost(map(_call, content.lines)):
                return
            if self._log_is_empty() or (write_log_back and self._database.write_log_back()):
                self._file.replace(())

    def _log_is_empty(self) -> bool:
        try:
            return self._log_path.stat().st_size == 0
        except FileNotFoundError:
            return True

    def note(self, call: AnchoredCall) -> None:
        self._database.check_log()
        self._file.append(_TEXT(call.to_data()))
        if self._runs is not None:
            self._runs.add(call.execution_id)
        self._noted += 1
        if self._noted % _MANY == 0:
            try:
                self._empty(write_log_back=True)
            except StorageError as error:  # the call is noted; emptying the file can wait
                _log.warning("%s could not be emptied and keeps growing: %s", self._file.path, error)

    def list_lost(self, execution_id: ExecutionId) -> tuple[AnchoredCall, ...]:
        if self._runs is None:
            self._runs = {_call(line).execution_id for line in self._file.read().lines}
        if execution_id not in self._runs:
            return ()
        quoted = json.dumps(execution_id)
        calls = map(_call, (line for line in self._file.read().lines if quoted in line))
        return self._all_lost(call for call in calls if call.execution_id == execution_id)

    def _all_lost(self, calls: Iterable[AnchoredCall]) -> tuple[AnchoredCall, ...]:
        with closing(self._database.begin(readonly=True)) as transaction:
            return tuple(call for run, own in _by_run(calls).items() for call in _lost(transaction, run, own))

    def inspect(self) -> tuple[Fault, ...]:
        content = self._file.read()
        try:
            lost = _by_run(self._all_lost(map(_call, content.lines)))
        except StorageError as error:
            problem = f"{self._file.path} cannot be compared with the database: {error}"
            return (Fault(kind=FaultKind.ANCHOR, what=str(self._file.path), problem=problem),)
        return (*self._damaged(content.damaged), *(self._lost_by(run, calls) for run, calls in lost.items()))

    def _damaged(self, count: int) -> Iterator[Fault]:
        if count:
            path = self._file.path
            noted = "1 line is" if count == 1 else f"{count} lines are"
            problem = f"{noted} damaged in {path}, which notes calls of external tools; WTB cannot tell which calls"
            yield Fault(kind=FaultKind.ANCHOR, what=str(path), problem=problem, remedy="removes them")

    def _lost_by(self, run: ExecutionId, calls: Sequence[AnchoredCall]) -> Fault:
        named = [f"{_DONE[call.act]} {call.tool} in node {call.node!r} ({call.started_at:%F %T} UTC)" for call in calls]
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        can_go_on = self._status(run) not in _ENDED
        then = f"`wtb resume {run}` treats this as in doubt" if can_go_on else "find out whether this happened"
        return Fault(
            kind=FaultKind.ANCHOR,
            what=run,
            problem=f"the database has lost its last steps: after the last stored step, run {run!r} "
            f"{', '.join(named[:_NAMED])}{more}; {then}",
            runs=(run,),
            remedy=None if can_go_on else "removes the notes about these calls",
        )

    def _status(self, run: ExecutionId) -> str | None:
        with closing(self._database.begin(readonly=True)) as transaction:
            found = transaction.row("SELECT status FROM wtb_executions WHERE id = ?", (run,))
        return None if found is None else str(found[0])

    def repair(self, faults: Sequence[Fault]) -> None:
        mended = {fault.what for fault in faults if fault.kind is FaultKind.ANCHOR and fault.remedy is not None}
        if mended:
            with self._file.kept_from_growing() as content:
                self._file.replace([line for line in content.lines if _call(line).execution_id not in mended])

    def close(self) -> None:
        self._file.close()


def _call(line: str) -> AnchoredCall:
    try:
        return AnchoredCall.from_data(json.loads(line))
    except (ValueError, KeyError, TypeError) as error:
        raise UnknownFormat(
            f"a call was noted in a format that this wtb does not know; install a newer wtb: {line}"
        ) from error


def _by_run(calls: Iterable[AnchoredCall]) -> dict[ExecutionId, list[AnchoredCall]]:
    found: defaultdict[ExecutionId, list[AnchoredCall]] = defaultdict(list)
    for call in calls:
        found[call.execution_id].append(call)
    return dict(found)


def _lost(transaction: Transaction, run: ExecutionId, noted: Sequence[AnchoredCall]) -> Iterator[AnchoredCall]:
    """Yield the calls of a run that the database lacks, or for which it has only an earlier try."""
    last = list(_last_tries(_of_living_run(transaction, run, noted)))
    node_runs = {call.node_run_id for call in last}
    known = {row[:2]: row[2:] for row in transaction.run_in(_CALLS, sorted(node_runs), run)}
    lost = [call for call in last if not _is_known(call, known.get((call.node_run_id, call.identity)))]
    if lost:
        left = {first_id(NodeRunId(id)) for (id,) in transaction.rows(_LEFT_BEHIND, (run,))}
        ended = {id for (id,) in transaction.rows(_ROLLBACKS, (run,))}
        yield from (call for call in lost if not _is_settled(call, left, ended))


def _is_known(call: AnchoredCall, row: tuple[Any, Any, str, str | None] | None) -> bool:
    """Whether the database has this try of an act, or one after it."""
    if row is None:
        return False
    step, number, status, error = row
    match call.act:
        case Act.CALL if step is None and number is None:
            return True  # the database was downgraded to a schema without them, and upgraded again
        case Act.CALL:
            is_whole = isinstance(step, int) and isinstance(number, int)  # damage can make them anything
            return is_whole and (step, number) >= (call.started_step, call.started_number)
        case Act.REVERSAL:  # an error shows that it was tried and failed
            return status in (CallStatus.REVERSING, CallStatus.REVERSED, CallStatus.REDOING) or error is not None
        case Act.REPEAT:
            return status in (CallStatus.REDOING, CallStatus.SUCCEEDED) or error is not None


def _is_settled(call: AnchoredCall, left_behind: Collection[NodeRunId], ended: Collection[str]) -> bool:
    """Whether the database has the end of the node run, rollback or redo that an act belongs to."""
    return call.rollback_id in ended if call.rollback_id else first_id(call.node_run_id) in left_behind


def _of_living_run(transaction: Transaction, run: ExecutionId, noted: Sequence[AnchoredCall]) -> Sequence[AnchoredCall]:
    """Leave out the calls of a deleted run that had the same id."""
    found = transaction.row("SELECT created_at_us FROM wtb_executions WHERE id = ?", (run,))
    own = [call for call in noted if found is not None and to_us(call.run_created_at) == found[0]]
    return noted if len(own) == len(noted) or transaction.row(_DELETION, (run,)) is None else own


def _last_tries(noted: Iterable[AnchoredCall]) -> Iterable[AnchoredCall]:
    """Return the last try of each call, and the last act of a rollback or redo on it.

    If a visit of a node ran several times, only the calls of the last run count: earlier runs were abandoned.
    """
    calls: dict[tuple[str, int], tuple[NodeRunId, dict[str, AnchoredCall]]] = {}
    others: dict[tuple[NodeRunId, str], AnchoredCall] = {}
    for call in noted:
        if call.act is not Act.CALL:
            others[call.node_run_id, call.identity] = call
            continue
        first = first_id(call.node_run_id)
        if call.place not in calls or calls[call.place][0] != first:
            calls[call.place] = (first, {})
        calls[call.place][1][call.identity] = call
    return (*(call for _, own in calls.values() for call in own.values()), *others.values())
