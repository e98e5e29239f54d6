"""Commands about runs. Each decides by what is stored whether an earlier worker has carried it out already."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from wtb.application.server.run_marks import RunMark, read_mark
from wtb.domain.commands import Command
from wtb.domain.errors import AlreadyExists, CheckpointNotFound, ExecutionNotFound, InvalidInput, VersionMismatch
from wtb.domain.execution import Execution, ExecutionStatus, PauseKind
from wtb.domain.ids import ExecutionId
from wtb.domain.rollback import Rollback, RollbackPlan
from wtb.server_commands.context import CommandContext, run_data

Result = dict[str, Any]
_BUSY = (ExecutionStatus.PENDING, ExecutionStatus.RUNNING)


def start(ctx: CommandContext, command: Command) -> Result:
    """Begin a run, and run it until it ends or pauses; if it has begun already, go on with it."""
    run_id, given = _subject(command), command.arguments
    starts = given.get("start", True)
    flow = ctx.flow()
    begun = _begun(ctx, command)
    if begun is not None:
        return _gone_on(ctx, command, begun) if starts else _result(ctx, run_id)
    options = {
        "run_id": run_id,
        "metadata": given.get("metadata"),
        "created_by": command.created_by,
        **given.get("options", {}),
    }
    state = ctx.read_values(given.get("input"), "input")
    if starts:
        ctx.bench._run(ctx.request, flow, state, **options)
    else:
        ctx.bench.create(flow, state, **options)
    return _result(ctx, run_id)


def _begun(ctx: CommandContext, command: Command) -> Execution | None:
    """Return the run that an earlier worker of this command has made; None if none has.

    It raises AlreadyExists if somebody else has made a run with the id that the caller chose.
    """
    if command.attempts == 1:
        return None
    try:
        found = ctx.services.queries.execution(_subject(command))
    except ExecutionNotFound:
        return None
    if found.created_by != command.created_by:
        raise AlreadyExists(f"somebody else has made a run {found.id!r} meanwhile; give another id")
    return found


def _gone_on(ctx: CommandContext, command: Command, execution: Execution) -> Result:
    """Go on with a run that an earlier worker left, or that the server paused when it ended."""
    paused_at = (command.result or {}).get("paused_at_version")
    if execution.status in _BUSY or paused_at == execution.version:
        _run(ctx, execution.id)
    return _result(ctx, execution.id)


def resume(ctx: CommandContext, command: Command) -> Result:
    """Go on with a run, after an edit of its state or with an answer."""
    run_id, given = _subject(command), command.arguments
    mark = RunMark.from_data(given["mark"])
    execution, now = read_mark(ctx.services.storage, run_id)
    run = ctx.run(run_id)
    if command.attempts > 1 and now.version != mark.version:
        return _resumed_again(ctx, command, execution, now, mark)
    answer = ctx.json.read(given["answer"], place="answer") if "answer" in given else None
    _run(
        ctx,
        run_id,
        update=ctx.update(run, given.get("update")),
        answer=answer,
        rerun_node=given.get("rerun_node", False),
        strict=given.get("strict", False),
        options=given.get("options", {}),
        version=given.get("version"),
    )
    return _result(ctx, run_id)


def _resumed_again(ctx: CommandContext, command: Command, execution: Execution, now: RunMark, mark: RunMark) -> Result:
    """Go on after a worker was killed. An edit moves the head before anything else, an answer is counted."""
    given, run_id = command.arguments, execution.id
    if execution.status not in _BUSY:
        return _gone_on(ctx, command, execution)
    edit = given.get("update") if now.head == mark.head else None
    _run(ctx, run_id, update=ctx.update(ctx.run(run_id), edit), options=given.get("options", {}))
    found, after = read_mark(ctx.services.storage, run_id)
    if mark.is_before_node and after.is_before_node and _is_still_there(ctx, run_id, mark):
        _run(ctx, run_id)  # the killed worker had passed this breakpoint
    waits = found.pause is not None and found.pause.kind in (PauseKind.QUESTION, PauseKind.IN_DOUBT)
    if "answer" in given and waits and (after.head, after.answers) == (mark.head, mark.answers):
        _run(ctx, run_id, answer=ctx.json.read(given["answer"], place="answer"))
    return _result(ctx, run_id)


def _is_still_there(ctx: CommandContext, run_id: str, mark: RunMark) -> bool:
    """Whether a run has made no step since a mark; an edit is not a step."""
    head = ctx.services.queries.checkpoint(run_id)
    return head.id == mark.head or (head.parent_id == mark.head and head.node_run_id is None)


def _run(ctx: CommandContext, run_id: str, **how: Any) -> None:
    ctx.services.controller.run(ExecutionId(run_id), ctx.flow().definition(), request=ctx.request, **how)


def plan_rollback(ctx: CommandContext, command: Command) -> Result:
    """Return what a rollback would do, and the tag that a rollback of exactly this plan names."""
    run_id = _subject(command)
    execution, plan = _plan(ctx, run_id, command.arguments)
    shown = ctx.services.masker.data(plan.to_dict())
    return {"plan": shown, "version": execution.version, "digest": _digest(plan)}


def rollback(ctx: CommandContext, command: Command) -> Result:
    """Roll a run back, if the plan is still the one that the caller has seen."""
    run_id, given = _subject(command), command.arguments
    done = _travelled(ctx, command)
    if done is not None:
        return done
    execution, plan = _plan(ctx, run_id, given)
    version = given["version"] if command.attempts == 1 else None
    execution.check_version(version)
    if _digest(plan) != given["digest"]:
        raise VersionMismatch(
            f"the plan to roll back run {run_id!r} has changed; look at the new plan, and decide again"
        )
    ctx.services.travel.rollback(
        execution.id,
        given["target"],
        allow_irreversible=given.get("allow_irreversible", False),
        expected=plan,
        created_by=command.created_by,
        version=version,
        **_scope(given),
    )
    return _result(ctx, run_id)


def redo(ctx: CommandContext, command: Command) -> Result:
    """Undo the last rollback of a run."""
    run_id, given = _subject(command), command.arguments
    done = _travelled(ctx, command)
    if done is not None:
        return done
    run = ctx.run(run_id)
    version = given["version"] if command.attempts == 1 else None
    ctx.services.travel.redo(run.id, created_by=command.created_by, version=version)
    return _result(ctx, run_id)


def _travelled(ctx: CommandContext, command: Command) -> Result | None:
    """Finish a rollback or a redo that an earlier worker has begun; None if none has.

    It raises VersionMismatch if somebody else was first, between the end of that worker and now.
    """
    if command.attempts == 1:
        return None
    run_id = _subject(command)
    execution = ctx.services.queries.execution(run_id)
    with ctx.services.storage.unit_of_work(readonly=True) as uow:
        journals = sorted(uow.rollbacks.list_rollbacks(execution.id), key=lambda each: each.order)
    begun = journals[command.arguments["mark"]["rollbacks"] :]
    if not begun:
        return None
    if not _is_of(ctx, begun[0], command):
        raise VersionMismatch(
            f"run {run_id!r} was changed by {begun[0].created_by} before this began, so nothing was done; look at it "
            "again, and decide again"
        )
    if execution.status is ExecutionStatus.ROLLING_BACK:
        ctx.run(run_id).continue_rollback()
    return _result(ctx, run_id)


def _is_of(ctx: CommandContext, journal: Rollback, command: Command) -> bool:
    """Whether a rollback or a redo is the one that a command asked for."""
    if journal.created_by != command.created_by or f"run.{journal.direction}" != command.kind:
        return False
    target = command.arguments.get("target")
    try:
        return target is None or ctx.services.queries.checkpoint(journal.execution_id, target).id == journal.target_id
    except CheckpointNotFound:  # the other rollback went back further
        return False


def continue_rollback(ctx: CommandContext, command: Command) -> Result:
    """Finish a rollback that failed or was killed."""
    run_id = _subject(command)
    run = ctx.run(run_id)
    if command.attempts == 1 or run.status is ExecutionStatus.ROLLING_BACK:
        run.continue_rollback(in_doubt=command.arguments.get("in_doubt"))
    return _result(ctx, run_id)


def abandon_rollback(ctx: CommandContext, command: Command) -> Result:
    """Give up a rollback that failed."""
    run_id = _subject(command)
    run = ctx.run(run_id)
    if command.attempts == 1 or run.status is ExecutionStatus.ROLLING_BACK:
        run.abandon_rollback(in_doubt=command.arguments.get("in_doubt"))
    return _result(ctx, run_id)


def fork(ctx: CommandContext, command: Command) -> Result:
    """Make a new run from a checkpoint of another one."""
    new_id, given = _subject(command), command.arguments
    run = ctx.run(given["run"])
    if _begun(ctx, command) is not None:
        return {**_result(ctx, new_id), "forked_from": {"run": run.id}}
    if given.get("variants"):
        ctx.flow()  # its names are checked, and only with code that the server serves
    target = given.get("target")
    edit = given.get("update")
    forked = run.forked(
        target,
        run_id=new_id,
        name=given.get("name") or "main",
        update=ctx.update(run, edit, target) if edit else None,
        input=ctx.read_values(given.get("input"), "input"),
        variants=given.get("variants"),
        created_by=command.created_by,
    )
    return {**_result(ctx, new_id), "forked_from": {"run": run.id, "checkpoint": forked.checkpoint.id}}


def checkpoint(ctx: CommandContext, command: Command) -> Result:
    """Name the current position of a run."""
    run_id, given = _subject(command), command.arguments
    found = None
    if command.attempts > 1:
        with suppress(CheckpointNotFound):
            found = ctx.services.queries.checkpoint(run_id, given["name"])
    if found is None:
        run = ctx.services.queries.execution(run_id)
        how = {"created_by": command.created_by}
        found = ctx.services.run_editor.checkpoint(run.id, given["name"], given.get("description", ""), **how)
    return {**_result(ctx, run_id), "checkpoint": {"id": found.id, "step": found.step, "name": given["name"]}}


def _plan(ctx: CommandContext, run_id: str, given: Mapping[str, Any]) -> tuple[Execution, RollbackPlan]:
    run = ctx.run(run_id)
    return run.execution, ctx.services.travel.plan(run.id, given["target"], **_scope(given))


def _scope(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in ("tools", "files", "shared") if name in given}


def _digest(plan: RollbackPlan) -> str:
    return hashlib.sha256(json.dumps(plan.to_dict(), sort_keys=True).encode()).hexdigest()[:32]


def _result(ctx: CommandContext, run_id: str) -> Result:
    return {"run": run_data(ctx.services.queries.execution(run_id))}


def _subject(command: Command) -> str:
    if command.subject is None:
        raise InvalidInput(f"command {command.id!r} names no run")
    return command.subject
