"""Verbs that change runs: start, resume, pause, stop, roll back, redo, fork, name, delete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wtb.api.models.commands import CommandAnswer
from wtb.api.models.executions import ExecutionAnswer
from wtb.api.models.run_changes import (
    CheckpointRequest,
    ForkRequest,
    InDoubtRequest,
    NewCheckpoint,
    PlanRequest,
    RequestedAnswer,
    ResumeRequest,
    RollbackRequest,
    StartRequest,
    StateEditRequest,
)
from wtb.client.connection import LONGEST_WAIT_S, first_wait_s, made, path_of
from wtb.client.requests import Request, delete, post
from wtb.client.run_reads import RUNS, RunReadVerbs
from wtb.client.values import write_value
from wtb.domain.state import DELETE

_WAIT_S = LONGEST_WAIT_S

Update = Mapping[str, Any] | StateEditRequest
"""New values of keys of a state; or changes at any path of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPlan:
    """What a rollback would do, or did."""

    data: Mapping[str, Any]
    """The nodes and calls to undo, calls that stay, and files that change."""
    tag: str
    """Names this plan to the server, which refuses to carry out another one."""


class RunChangeVerbs(RunReadVerbs):
    """What a client does with runs. After `wait_s` seconds a verb raises `NotFinished`; the run goes on."""

    async def run(
        self,
        /,
        workflow: str,
        input: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        wait_s: float | None = None,
        **options: Any,
    ) -> ExecutionAnswer:
        """Run a workflow of the server until it ends or pauses, and return the run.

        `run_id` is an id of your choice; it raises `AlreadyExists` if it is taken. The options are those of
        `bench.run`: `break_before`, `variants`, `seed` and so on. If a node fails, nothing is raised: see
        `run.failure`.
        """
        given: dict[str, Any] = {"input": input, "run_id": run_id, "metadata": metadata, "options": options}
        return await self._changed(_start(workflow, **given, wait_s=first_wait_s(wait_s)), wait_s)

    async def create(
        self,
        /,
        workflow: str,
        input: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> ExecutionAnswer:
        """Record a run without starting it; `resume` starts it. It takes the same options as `run`."""
        given: dict[str, Any] = {"input": input, "run_id": run_id, "metadata": metadata, "options": options}
        return await self._changed(_start(workflow, **given, start=False, wait_s=_WAIT_S), None)

    async def start(
        self,
        /,
        workflow: str,
        input: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> CommandAnswer:
        """Start a run and do not wait for it. The `subject` of the answer is its id; `wait_for` waits for it."""
        given: dict[str, Any] = {"input": input, "run_id": run_id, "metadata": metadata, "options": options}
        return await self._accepted(_start(workflow, **given, wait_s=0))

    async def resume(
        self,
        /,
        run: str,
        *,
        update: Update | None = None,
        answer: Any = None,
        rerun_node: bool = False,
        strict: bool = False,
        version: int | None = None,
        wait: bool = True,
        wait_s: float | None = None,
        **options: Any,
    ) -> ExecutionAnswer:
        """Continue until the run ends or pauses again, and return it; with `wait=False`, return it at once.

        - `update`: overwrite these keys of the state first; `wtb.DELETE` deletes one.
        - `answer`: the answer to the question that the run asks.
        - `rerun_node`: undo what can be undone of the unfinished node, and start it over.
        - `strict`: refuse to continue if the workflow has changed since the run began.
        - `version`: the version of the run that you have seen; it raises `VersionMismatch` if it has changed. Without
          it, an update changes the version that the run has now.

        Further options replace those of the run.
        """
        given: dict[str, Any] = {"rerun_node": rerun_node, "strict": strict, "options": options}
        if update is not None:
            given["update"] = _edit(update)
            version = (await self._show(run)).version if version is None else version
        if answer is not None:
            given["answer"] = write_value(answer)
        asked = first_wait_s(wait_s) if wait else 0
        request = post(_path(run, "resume"), made(ResumeRequest, **given), if_match=_tag(version), wait_s=asked)
        if wait:
            return await self._changed(request, wait_s)
        await self._accepted(request)
        return await self._show(run)

    async def pause(self, run: str) -> RequestedAnswer:
        """Ask a run to pause after its current step, wherever it runs."""
        return await self._ask(RequestedAnswer, post(_path(run, "pause")))

    async def stop(self, run: str) -> RequestedAnswer:
        """Ask a run to stop for good after its current step."""
        return await self._ask(RequestedAnswer, post(_path(run, "stop")))

    async def rollback(
        self,
        run: str,
        target: str | int,
        *,
        dry_run: bool = False,
        tools: bool = True,
        files: bool = True,
        allow_irreversible: bool = False,
        shared: str = "keep",
        expected: ShownPlan | None = None,
    ) -> ShownPlan:
        """Go back to a checkpoint, and return what was done. The state, the files and the effects of tools go together.

        - `dry_run`: return the plan and do nothing.
        - `expected`: a plan from a dry run; do exactly that, or raise `VersionMismatch` and do nothing.
        - `tools`, `files`: turn off to leave the effects of tools, or the files, as they are.
        - `allow_irreversible`: go back even if some calls cannot be undone.
        - `shared`: `reverse` also undoes calls that another branch builds on.
        """
        scope = {"target": target, "tools": tools, "files": files, "shared": shared}
        plan = expected or await self._plan(run, scope)
        if not dry_run:
            body = made(RollbackRequest, **scope, allow_irreversible=allow_irreversible)
            await self._carried_out(post(_path(run, "rollback"), body, if_match=plan.tag, wait_s=_WAIT_S), None)
        return plan

    async def _plan(self, run: str, scope: Mapping[str, Any]) -> ShownPlan:
        request = post(_path(run, "rollback", "plan"), made(PlanRequest, **scope), wait_s=_WAIT_S)
        result = await self._carried_out(request, None)
        return ShownPlan(data=result["plan"], tag=f'"{result["version"]}-{result["digest"]}"')

    async def redo(self, run: str, *, version: int | None = None) -> ExecutionAnswer:
        """Undo the last rollback. `version` is that of the run that you have seen; by default its current one."""
        version = (await self._show(run)).version if version is None else version
        request = post(_path(run, "redo"), if_match=_tag(version), wait_s=_WAIT_S)
        return await self._changed(request, None)

    async def continue_rollback(self, run: str, *, in_doubt: str | None = None) -> ExecutionAnswer:
        """Finish a rollback that failed. `in_doubt` says `done` or `again` about a reversal that was interrupted."""
        body = made(InDoubtRequest, in_doubt=in_doubt)
        return await self._changed(post(_path(run, "rollback", "continue"), body, wait_s=_WAIT_S), None)

    async def abandon_rollback(self, run: str, *, in_doubt: str | None = None) -> ExecutionAnswer:
        """Give up a rollback that failed: the run stays where it was, and what was undone stays undone."""
        body = made(InDoubtRequest, in_doubt=in_doubt)
        return await self._changed(post(_path(run, "rollback", "abandon"), body, wait_s=_WAIT_S), None)

    async def fork(
        self,
        run: str,
        target: str | int | None = None,
        *,
        run_id: str | None = None,
        name: str | None = None,
        update: Update | None = None,
        input: Mapping[str, Any] | None = None,
        variants: Mapping[str, str] | None = None,
    ) -> ExecutionAnswer:
        """Make a new run that begins at a checkpoint of this one, and return it; `resume` continues it.

        With `input` it begins anew instead, with this input.
        """
        given = {
            "target": target,
            "run_id": run_id,
            "name": name,
            "update": None if update is None else _edit(update),
            "input": None if input is None else write_value(dict(input)),
            "variants": None if variants is None else dict(variants),
        }
        body = made(ForkRequest, **{key: value for key, value in given.items() if value is not None})
        return await self._changed(post(_path(run, "fork"), body, wait_s=_WAIT_S), None)

    async def checkpoint(self, run: str, name: str, description: str = "") -> NewCheckpoint:
        """Name the current position of a run that waits or has ended."""
        body = made(CheckpointRequest, name=name, description=description)
        result = await self._carried_out(post(_path(run, "checkpoints"), body, wait_s=_WAIT_S), None)
        return NewCheckpoint.model_validate(result["checkpoint"])

    async def delete(self, run: str) -> None:
        """Delete a run that no process runs, with its checkpoints and files. It needs the role admin."""
        await self._send(delete(path_of(RUNS, run)))

    async def delete_checkpoint(self, run: str, target: str | int) -> None:
        """Delete one checkpoint; those after it stay whole. It needs the role admin."""
        await self._send(delete(_path(run, "checkpoints", target)))

    async def _changed(self, request: Request, wait_s: float | None) -> ExecutionAnswer:
        """Wait for a change of a run, and return the run as it is then."""
        result = await self._carried_out(request, wait_s)
        return await self._show(result["run"]["id"])

    async def _show(self, run: str) -> ExecutionAnswer:
        return await RunReadVerbs.get(self, run)


def _start(
    workflow: str, *, input: Mapping[str, Any] | None, metadata: Mapping[str, Any] | None, wait_s: float, **more: Any
) -> Request:
    given: dict[str, Any] = {"workflow": workflow, **more}
    if input is not None:
        given["input"] = write_value(dict(input))
    if metadata is not None:
        given["metadata"] = dict(metadata)
    return post(path_of(RUNS), made(StartRequest, **given), wait_s=wait_s)


def _edit(update: Update) -> StateEditRequest:
    if isinstance(update, StateEditRequest):
        return update
    changes = [{"path": [key], "value": write_value(value)} for key, value in update.items() if value is not DELETE]
    return made(StateEditRequest, set=changes, delete=[[key] for key, value in update.items() if value is DELETE])


def _path(run: str, *parts: str | int) -> str:
    return path_of(RUNS, run, *parts)


def _tag(version: int | None) -> str | None:
    return None if version is None else f'"{version}"'
