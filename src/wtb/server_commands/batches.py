"""Commands about batches and evaluations. A batch that has begun goes on: jobs that have ended are kept."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from wtb.application.server.command_errors import load_error
from wtb.batch_results import BatchResult
from wtb.batch_results.job_results import failed_jobs, unscored_jobs
from wtb.batches import BatchTest, load_batch
from wtb.domain.batch import BatchStatus
from wtb.domain.cases import Case
from wtb.domain.commands import Command
from wtb.domain.errors import BatchNotFound, InvalidInput
from wtb.domain.secrets import Masker
from wtb.infrastructure.cases import read_cases
from wtb.infrastructure.evaluators import builtin
from wtb.server_commands.context import CommandContext

_LOOK_S = 0.2
_KEYED = {
    each.name: each
    for each in (
        builtin.ExactMatch,
        builtin.Contains,
        builtin.RegexMatch,
        builtin.NumericMatch,
        builtin.TokenF1,
        builtin.FitsSchema,
    )
}
"""Evaluators that score one key of the state."""


def described(references: Sequence[str], masker: Masker) -> list[dict[str, Any]]:
    """Return the batch tests that these references name."""
    return [_described(reference, masker) for reference in references]


def _described(reference: str, masker: Masker) -> dict[str, Any]:
    try:
        test = load_batch(reference)
    except Exception as error:  # noqa: BLE001  the user's module may raise anything
        return load_error(reference, error, masker)
    return {"reference": reference, "name": test.name or test.flow.name, "workflow": test.flow.name}


def start(ctx: CommandContext, command: Command) -> dict[str, Any]:
    """Run a batch until all jobs have ended, somebody cancels it, its budget is used up, or the server ends."""
    test = _test(ctx, command.arguments)
    name = test.name or test.flow.name
    if _was_cancelled(ctx, command, name):
        return {"batch": _counts(ctx.bench.get_batch(name))}
    if command.arguments.get("retry") and command.attempts == 1:
        test = _of_before(ctx, test, name)
    cancelled = threading.Event()
    with _stopping(ctx) as stop:
        result = ctx.bench.batch(
            test,
            only=command.arguments.get("only", ()),
            stop=stop,
            on_planned=lambda _: None,
            on_progress=lambda progress: cancelled.set() if progress.is_cancelled else None,
        )
    # `stop` does not tell: it is also set if the batch was cancelled or its budget is used up.
    is_stopped = ctx.request.wanted is not None and not cancelled.is_set() and result.left > 0
    return {"batch": _counts(result), **({"stopped_by_server": True} if is_stopped else {})}


def _was_cancelled(ctx: CommandContext, command: Command, name: str) -> bool:
    """Whether somebody cancelled the batch after the worker that had begun with it was killed."""
    if command.attempts == 1 or command.result is not None:  # a server that ended in order has put it back
        return False
    with suppress(BatchNotFound):
        before = ctx.bench.get_batch(name)
        return before.batch.status is BatchStatus.CANCELLED and before.batch.updated_at > command.created_at
    return False


def _counts(result: BatchResult) -> dict[str, Any]:
    failed = len(failed_jobs(result))
    return {
        "id": result.id,
        "name": result.batch.name,
        "status": result.status,
        "left": result.left,
        "completed": len(result.results) - failed,
        "failed": failed,
    }


def plan(ctx: CommandContext, command: Command) -> dict[str, Any]:
    """Say what a batch would do, without running anything."""
    found = ctx.bench.plan(_test(ctx, command.arguments), only=command.arguments.get("only", ()))
    return {
        "plan": {
            "jobs": found.jobs,
            "kept": found.kept,
            "scored": found.scored,
            "run": found.run,
            "node_runs": {
                "kept": found.node_runs_kept,
                "shared": found.node_runs_shared,
                "executed": found.node_runs_executed,
            },
            "changes": {node: list(words) for node, words in found.changes.items()},
            "outside": {node: list(names) for node, names in found.outside.items()},
            "external": [str(tool) for tool in found.external],
        }
    }


def evaluate(ctx: CommandContext, command: Command) -> dict[str, Any]:
    """Score finished runs, or all runs of a batch, without running them again."""
    given = command.arguments
    if ctx.reference is not None:
        ctx.flow()  # registers the classes of the state
    evaluators = [_evaluator(each) for each in given["evaluators"]]
    if "batch" in given:
        result = ctx.bench.evaluate(ctx.bench.get_batch(given["batch"]), evaluators)
        return {"batch": {"id": result.id, "name": result.batch.name, "metrics": list(result.metrics)}}
    expected = ctx.json.read(given["expected"], place="expected") if "expected" in given else None
    scores = {
        run_id: ctx.bench.evaluate(ctx.run(run_id), evaluators, expected=expected, created_by=command.created_by)
        for run_id in given["runs"]
    }
    return {"scores": scores}


def _test(ctx: CommandContext, given: Mapping[str, Any]) -> BatchTest:
    if "reference" in given:
        return load_batch(given["reference"])
    options = dict(given.get("options", {}))
    return BatchTest(
        ctx.flow(),
        name=given.get("name"),
        cases=[_case(ctx, case) for case in given["cases"]],
        evaluators=[_evaluator(each) for each in given.get("evaluators", ())],
        **options,
    )


def _case(ctx: CommandContext, case: Mapping[str, Any]) -> dict[str, Any]:
    id = case.get("id") or _id_of(case["input"])
    given = [name for name in ("input", "expected") if name in case]
    read = {name: ctx.json.read(case[name], place=f"case {id}.{name}") for name in given}
    return {**case, "id": id, **read}


def _id_of(input: Mapping[str, Any]) -> str:
    """Return the id of a case that came without one. It follows from the input, so that later batches compare it."""
    return hashlib.sha256(json.dumps(input, sort_keys=True).encode()).hexdigest()[:8]


def _evaluator(given: Any) -> Any:
    if isinstance(given, str):
        return given
    name, key = given["name"], given["key"]
    if name not in _KEYED:
        raise InvalidInput(f"evaluator {name!r} does not take a key; these do: {', '.join(_KEYED)}")
    kind: Any = _KEYED[name]
    return kind(key)


def _of_before(ctx: CommandContext, test: BatchTest, name: str) -> BatchTest:
    """Return the batch with the cases and repeats of its last run; raise InvalidInput if nothing failed there."""
    try:
        before = ctx.bench.get_batch(name)
    except BatchNotFound:
        return test
    if not failed_jobs(before) and not unscored_jobs(before) and not before.not_taken_back:
        raise InvalidInput(f"there is nothing to retry: no job and no evaluator of batch {name!r} failed")
    now: dict[str, Case] = {case.id: case for case in read_cases(test.cases)}
    cases = [now[case] for case in before.batch.record.cases if case in now]
    return replace(test, cases=cases, repeats=before.batch.record.repeats)


@contextmanager
def _stopping(ctx: CommandContext) -> Iterator[threading.Event]:
    """Give an event that is set when the server ends: then no more jobs start."""
    stop, ended = threading.Event(), threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK_S):
            if ctx.request.wanted is not None:
                stop.set()
                return

    threading.Thread(target=watch, name="wtb-batch-stop", daemon=True).start()
    try:
        yield stop
    finally:
        ended.set()
