"""Verbs that read runs: lists, states, histories, differences and files."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import Any

from wtb.api.models.base import ListAnswer
from wtb.api.models.checkpoints import CheckpointCountsAnswer, CheckpointDetailAnswer, CheckpointRowAnswer, FileAnswer
from wtb.api.models.diffs import DiffAnswer, StatePartDiffAnswer
from wtb.api.models.executions import ExecutionAnswer, ExecutionRowAnswer, ScoreAnswer
from wtb.api.models.failures import FailureExplanation
from wtb.api.models.histories import (
    BranchAnswer,
    CallAnswer,
    NodeUsageAnswer,
    RunEventAnswer,
    TimelineAnswer,
    TreeAnswer,
    VariantsAnswer,
)
from wtb.api.models.states import StateAnswer
from wtb.client.connection import Connection, inner_path, path_of
from wtb.client.requests import Names, each_of, get
from wtb.client.values import read_value

RUNS = "executions"
PAGE = 500


class RunReadVerbs(Connection):
    """What a client reads of runs. `run` is always the id of a run, and a target is what `run.at` of a Bench takes."""

    async def list_runs(
        self,
        *,
        statuses: Names = (),
        workflow: str | None = None,
        batch: str | None = None,
        created_by: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        prefix: str | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[ExecutionRowAnswer]:
        """Return runs one by one, newest first, and read page after page as you go on.

        `batch="none"` leaves out the runs of all batches. `limit` is the most that you get.
        """
        filters = {
            "status": each_of(statuses),
            "workflow": workflow,
            "batch": batch,
            "created_by": created_by,
            "since": since,
            "until": until,
            "prefix": prefix,
        }
        left = limit
        if left is not None and left <= 0:
            return
        async for row in self._each(ExecutionRowAnswer, path_of(RUNS), **filters, limit=min(left or PAGE, PAGE)):
            yield row
            left = None if left is None else left - 1
            if left == 0:
                return

    async def get(self, run: str) -> ExecutionAnswer:
        """Return everything about a run."""
        return await self._ask(ExecutionAnswer, get(path_of(RUNS, run)))

    async def explain(self, run: str) -> FailureExplanation:
        """Return why a run failed, what its node got, and what changed since the last run that went well."""
        return await self._ask(FailureExplanation, get(path_of(RUNS, run, "failure")))

    async def state(self, run: str, at: str | int | None = None) -> Any:
        """Return the state of a run, or its state at a checkpoint.

        Plain values and those of the standard library are built. Objects of classes stay as data.
        """
        answer = await self._ask(StateAnswer, get(path_of(RUNS, run, "state"), at=at, whole=True))
        return read_value(answer.value)

    async def checkpoint_at(self, run: str, target: str | int) -> CheckpointDetailAnswer:
        """Return one checkpoint with its state, as tagged JSON, and its first files."""
        return await self._ask(CheckpointDetailAnswer, get(path_of(RUNS, run, "checkpoints", target)))

    async def history(self, run: str, *, every: bool = False) -> AsyncGenerator[CheckpointRowAnswer]:
        """Return the checkpoints of a run one by one, newest first; with `every` also those that rollbacks left."""
        async for row in self._each(CheckpointRowAnswer, path_of(RUNS, run, "checkpoints"), every=every, limit=PAGE):
            yield row

    async def restore_points(self, run: str) -> AsyncGenerator[CheckpointRowAnswer]:
        """Return the checkpoints that a run can go back to, newest first, without its head."""
        async for row in self._each(CheckpointRowAnswer, path_of(RUNS, run, "restore-points"), limit=PAGE):
            yield row

    async def counts(self, run: str) -> CheckpointCountsAnswer:
        """Return how many checkpoints and restore points a run has, on all its lines."""
        return await self._ask(CheckpointCountsAnswer, get(path_of(RUNS, run, "counts")))

    async def diff(
        self, run: str, a: str | int, b: str | int | None = None, *, other: str | None = None, texts: bool = True
    ) -> DiffAnswer:
        """Return what changed from checkpoint `a` to checkpoint `b`; without `b`, to the head.

        With `other`, `b` is a checkpoint of that run. Very large differences of states raise `TooMuchToShow`: look at
        them with `diff_state`.
        """
        query = {"from": a, "to": b, "run": other, "texts": texts}
        found = await self._ask(DiffAnswer, get(path_of(RUNS, run, "diff"), **query))
        state = [item.model_copy(update=_read(item, "old", "new")) for item in found.state]
        calls = [item.model_copy(update=_read(item, "arguments", "result")) for item in found.calls]
        return found.model_copy(update={"state": state, "calls": calls})

    async def diff_state(
        self,
        run: str,
        a: str | int,
        b: str | int | None = None,
        *,
        path: Sequence[Any] = (),
        other: str | None = None,
        cursor: str | None = None,
    ) -> StatePartDiffAnswer:
        """Return the parts of the state that differ at one place, one level deep; append a `key` to look deeper.

        `cursor` is the `next` of the page before. Values are tagged JSON, as the server sends them.
        """
        query = {"from": a, "to": b, "run": other, "path": json.dumps(list(path)), "cursor": cursor}
        return await self._ask(StatePartDiffAnswer, get(path_of(RUNS, run, "diff", "state"), **query))

    async def files(self, run: str, at: str | int | None = None) -> AsyncGenerator[FileAnswer]:
        """Return the files of a run at its head, or at a checkpoint, one by one, sorted by path."""
        async for file in self._each(FileAnswer, path_of(RUNS, run, "files"), at=at, limit=PAGE):
            yield file

    async def read_file(self, run: str, path: str, at: str | int | None = None) -> bytes:
        """Return the content of a file at the head, or at a checkpoint."""
        address = inner_path(path_of(RUNS, run, "files"), *path.split("/"))
        return (await self._send(get(address, at=at))).body

    async def branches(self, run: str) -> list[BranchAnswer]:
        """Return the branches of a run, in the order they were made."""
        return (await self._ask(ListAnswer[BranchAnswer], get(path_of(RUNS, run, "branches")))).items

    async def tree(self, run: str) -> TreeAnswer:
        """Return the whole run as a tree: branches, what rollbacks left behind, and forks."""
        return await self._ask(TreeAnswer, get(path_of(RUNS, run, "tree")))

    async def timeline(self, run: str, *, before: int | None = None, limit: int = 100) -> TimelineAnswer:
        """Return when each node of the last steps ran."""
        return await self._ask(TimelineAnswer, get(path_of(RUNS, run, "timeline"), before=before, limit=limit))

    async def calls(self, run: str) -> AsyncGenerator[CallAnswer]:
        """Return the calls to tools and questions to people one by one, in the order of their starts."""
        async for call in self._each(CallAnswer, path_of(RUNS, run, "calls"), limit=PAGE):
            yield call.model_copy(update=_read(call, "arguments", "result"))

    async def usage(self, run: str) -> list[NodeUsageAnswer]:
        """Return tokens, money and time of each node."""
        return (await self._ask(ListAnswer[NodeUsageAnswer], get(path_of(RUNS, run, "usage")))).items

    async def scores(self, run: str) -> list[ScoreAnswer]:
        """Return what evaluators said about a run, oldest first."""
        return (await self._ask(ListAnswer[ScoreAnswer], get(path_of(RUNS, run, "scores")))).items

    async def run_events(self, run: str, types: Names = ()) -> AsyncGenerator[RunEventAnswer]:
        """Return the stored events of a run one by one, newest first."""
        async for event in self._each(RunEventAnswer, path_of(RUNS, run, "events"), type=each_of(types), limit=PAGE):
            yield event

    async def variants(self, run: str) -> VariantsAnswer:
        """Return the variants of the nodes of a run's workflow, and those that it uses."""
        return await self._ask(VariantsAnswer, get(path_of(RUNS, run, "variants")))


def _read(answer: Any, *fields: str) -> dict[str, Any]:
    return {name: read_value(getattr(answer, name)) for name in fields}
