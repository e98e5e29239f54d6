"""CheckpointComparison: finds what changed between two checkpoints, of the same run or of two."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wtb.domain.checkpoint import Checkpoint, NodeRun
from wtb.domain.diff import CallDiff, CheckpointDiff, DiffKind, FileDiff, file_diffs, state_diffs, ways
from wtb.domain.errors import DamagedData, ObjectNotFound
from wtb.domain.files import EMPTY_TREE, FileCommitId, FileEntry, FileTree
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import CheckpointId, ExecutionId, NodeRunId
from wtb.domain.ports import ObjectStore, Storage, UnitOfWork
from wtb.domain.tools import ToolCall
from wtb.domain.values import showing

_BATCH = 64
"""How many files are read at a time."""
_MOST_BYTES = 50_000_000
"""How much one comparison reads; further files are described by size and hash, like large ones."""


_FEW_RUNS = 50
_TAIL = 64
"""How many checkpoints are read first: people mostly compare checkpoints near the end."""


class CheckpointComparison:
    """Compares checkpoints. Reads only the parts that differ, and writes nothing."""

    def __init__(self, storage: Storage, objects: ObjectStore) -> None:
        self._storage = storage
        self._objects = objects

    def compare(
        self,
        old: CheckpointId,
        new: CheckpointId,
        *,
        state: bool = True,
        files: bool = True,
        calls: bool = True,
        texts: bool = True,
    ) -> CheckpointDiff:
        """Return what changed from the old checkpoint to the new one; parts that are turned off are not read.

        Without `texts`, differing files are named and their contents are not read. The calls are those on the way from
        one checkpoint to the other. If neither led to the other, they are those after the point where the lines part.
        """
        with self._storage.unit_of_work(readonly=True) as uow, showing():
            before, after = uow.checkpoints.get(old), uow.checkpoints.get(new)
            differing = self._files(uow, before, after, texts=texts) if files else ()
            return CheckpointDiff(
                old=before,
                new=after,
                state=state_diffs(*uow.checkpoints.compare(old, new)) if state else (),
                files=tuple(differing),
                calls=tuple(_calls(uow, before, after)) if calls and old != new else (),
            )

    def states(self, old: CheckpointId, new: CheckpointId) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return both states, without the keys whose values are the same."""
        with self._storage.unit_of_work(readonly=True) as uow, showing():
            return uow.checkpoints.compare(old, new)

    def _files(self, uow: UnitOfWork, old: Checkpoint, new: Checkpoint, *, texts: bool) -> Sequence[FileDiff]:
        if old.file_commit == new.file_commit:
            return ()
        found = file_diffs(_tree(uow, old), _tree(uow, new))
        return list(self._with_texts(uow, found)) if texts else found

    def _with_texts(self, uow: UnitOfWork, found: Sequence[FileDiff]) -> Iterator[FileDiff]:
        read_bytes = 0
        for start in range(0, len(found), _BATCH):
            batch = found[start : start + _BATCH]
            if read_bytes > _MOST_BYTES:
                yield from batch
                continue
            entries = {entry.digest: entry for diff in batch if diff.may_be_text for entry in diff.files}
            read_bytes += sum(entry.size for entry in entries.values())
            contents = dict(uow.files.get_contents(entries)) if entries else {}
            for digest in entries.keys() - contents.keys():
                contents[digest] = self._large(entries[digest])
            yield from (diff.with_contents(contents) if diff.may_be_text else diff for diff in batch)

    def _large(self, entry: FileEntry) -> bytes:
        try:
            with self._objects.open(entry.digest) as stream:
                content = stream.read()
        except ObjectNotFound as error:
            raise DamagedData(f"{entry.path!r} cannot be compared: {error}; `wtb doctor` shows more") from error
        if hashlib.sha256(content).digest() != entry.digest:
            raise DamagedData(f"{entry.path!r} cannot be compared: its content is damaged; `wtb doctor` shows more")
        return content


def _tree(uow: UnitOfWork, checkpoint: Checkpoint) -> FileTree:
    return EMPTY_TREE if checkpoint.file_commit is None else uow.files.get(FileCommitId(checkpoint.file_commit))


def _calls(uow: UnitOfWork, old: Checkpoint, new: Checkpoint) -> Iterator[CallDiff]:
    histories = _histories(uow, old, new)
    lines = [histories[end.execution_id].lineage_of(end.id) for end in (old, new)]
    for kind, end, way in zip((DiffKind.REMOVED, DiffKind.ADDED), (old, new), ways(*lines), strict=True):
        history = histories[end.execution_id]
        runs = [run for run in way.runs(history.node_runs) if run.tool_count]
        for run, calls in _calls_of(uow, runs):
            for call in calls:
                if way.holds(run, call, history):
                    yield CallDiff(kind=kind, node=run.node, visit=run.visit, call=call)


def _calls_of(uow: UnitOfWork, runs: Sequence[NodeRun]) -> Iterator[tuple[NodeRun, Sequence[ToolCall]]]:
    """Yield node runs with their calls: few of them one by one, many by reading all calls of their executions."""
    if len(runs) <= _FEW_RUNS:
        yield from ((run, uow.tool_calls.list_calls(run.execution_id, run.id)) for run in runs)
        return
    found: dict[NodeRunId, list[ToolCall]] = {}
    for execution_id in {run.execution_id for run in runs}:
        for call in uow.tool_calls.list_calls(execution_id):
            found.setdefault(call.node_run_id, []).append(call)
    yield from ((run, found.get(run.id, ())) for run in runs)


def _histories(uow: UnitOfWork, old: Checkpoint, new: Checkpoint) -> dict[ExecutionId, ExecutionHistory]:
    """Return the histories of both; if they are in one run, only the end of it that holds both."""
    if old.execution_id != new.execution_id or uow.executions.get(old.execution_id).degraded:
        return {id: uow.checkpoints.load_history(id) for id in {old.execution_id, new.execution_id}}
    length = _TAIL
    while True:
        history = uow.checkpoints.load_tail(old.execution_id, length)
        if history.complete or {old.id, new.id} <= {checkpoint.id for checkpoint in history.checkpoints}:
            return {old.execution_id: history}
        length *= 8
