"""Run, the object users hold for one run: a thin layer over the services."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wtb.application.queries.service import Queries
from wtb.application.queries.views import CheckpointView, RunView
from wtb.application.runs.node_runner import Watch
from wtb.application.runs.run_request import RunRequest
from wtb.application.time_travel.run_editor import Forked
from wtb.domain.checkpoint import Checkpoint
from wtb.domain.diff import CheckpointDiff, StateDiff
from wtb.domain.display import Display, Displayed, short, state_table
from wtb.domain.engine import Engine
from wtb.domain.errors import CheckpointNotFound, InvalidInput, WTBError
from wtb.domain.events import RecordedEvent
from wtb.domain.execution import Branch, Execution, ExecutionStatus, Failure, Pause
from wtb.domain.figures import Usage
from wtb.domain.files import FileCommitId, FileTree
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import ExecutionId
from wtb.domain.replay import ReplayReport
from wtb.domain.rollback import Rollback, RollbackDirection, RollbackPlan
from wtb.domain.run_scores import RunScores
from wtb.domain.summary import RunSummary
from wtb.domain.tools import CallKind, Effects, ToolCall
from wtb.domain.tree import HistoryTree
from wtb.domain.values import Legible
from wtb.domain.workflow import BASELINE, ENGINE
from wtb.flow import Workflow
from wtb.infrastructure.codecs.foreign import live
from wtb.loading import load_workflow, refuse_while_loading

if TYPE_CHECKING:
    from wtb.bench import Bench


def _is_encoded(value: Any) -> bool:
    """Whether a value, or an item of a list, is in the encoding of another library."""
    return isinstance(value, Legible) or (type(value) is list and any(isinstance(item, Legible) for item in value))


def usage_data(usage: Usage) -> dict[str, Any]:
    """Return usage as users see it."""
    return {**usage.totals(), "unpriced": list(usage.unpriced)} if usage.unpriced else dict(usage.totals())


class Run(Displayed):
    """One run. Every property reads the store when you ask for it."""

    def __init__(self, bench: Bench, id: ExecutionId, flow: Workflow | None, request: RunRequest | None = None) -> None:
        self._bench = bench
        self._request = request
        self._flow = bench._flows.noted(id, flow)
        self.id = id

    def _display(self) -> Display:
        view = self.view()
        execution, steps = view.execution, 0 if view.head is None else view.head.step
        lines = []
        if execution.failure is not None:
            lines.append(f"{execution.failure.type} in {execution.failure.node}: {execution.failure.message}")
        if execution.pause is not None:
            question = execution.pause.question or {}
            lines.append(f"waits: {question.get('question', execution.pause.reason)}")
        return Display(
            title=f"Run {self.id} of {execution.workflow_name}: {execution.status.value}, step {steps}",
            tables=(state_table(view.state),) if view.state else (),
            lines=tuple(map(short, lines)),
        )

    def __repr__(self) -> str:
        return f"<Run {self.id} of {self.execution.workflow_name}: {self.status}>"

    @property
    def _queries(self) -> Queries:
        return self._bench.services.queries

    @property
    def execution(self) -> Execution:
        """The record of the run: its workflow, options, metadata, creation time, and whether it is `degraded`."""
        return self._queries.execution(self.id)

    def view(self) -> RunView:
        """Return everything about the run as it is at one moment: status, state, times, usage, files, branches."""
        return self._shown(self._queries.run(self.id))

    def _shown(self, view: RunView) -> RunView:
        """Return a view of this run whose state holds the objects that nodes see."""
        return replace(view, state=self._shown_state(view.execution, view.state))

    @property
    def status(self) -> ExecutionStatus:
        """The status: `pending`, `running`, `paused`, `rolling_back`, `completed`, `failed` or `cancelled`."""
        return self.execution.status

    @property
    def error(self) -> Failure | None:
        """Why the run failed: type, message, traceback, node. None if it did not fail."""
        return self.execution.failure

    @property
    def waiting(self) -> Pause | None:
        """Why the run is paused: the `reason`, and the `question` if it asks one. None if it is not paused."""
        return self.execution.pause

    @property
    def state(self) -> dict[str, Any]:
        """The state after the last step, as a dict of your own.

        If one node of a graph waits, this includes what the nodes beside it have written, like LangGraph's `get_state`.
        """
        return self._shown_state(*self._queries.state(self.id))

    def at(self, target: str | int) -> CheckpointView:
        """Return one checkpoint with its `state` and `files`."""
        found = self._queries.checkpoint_view(self.id, target)
        return replace(found, state=self._restored(found.state))

    def _shown_state(self, execution: Execution, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return a stored state as users see it, including writes of nodes whose siblings still wait."""
        if self._flow is not None and execution.status is not ExecutionStatus.COMPLETED:
            shown = self._bench.services.controller.state_with_finished(self.id, self._flow.definition())
            if shown is not None:
                return shown
        return self._restored(stored)

    def _restored(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return a stored state, or the stored update of a node, with the objects that nodes see.

        If the graph is known here, it says which classes to build; otherwise they are found by name.
        """
        restored = None if self._flow is None else self._flow.definition().restored
        if restored is not None:
            with suppress(InvalidInput):  # a missing class must not stop anyone from looking at a run
                return restored(stored)
        return live(stored)

    @property
    def history(self) -> ExecutionHistory:
        """What the run did: its checkpoints and branches, and the node visits between them."""
        return self._queries.history(self.id)

    def tree(self) -> HistoryTree:
        """Return the whole run as a tree: its branches, what rollbacks left behind, and forks into other runs."""
        return self._queries.tree(self.id)

    @property
    def branches(self) -> tuple[Branch, ...]:
        """The branches, in the order they were made."""
        return self.history.branches

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """All checkpoints on all branches, without their states."""
        return self._queries.checkpoints(self.id)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Every recorded call to a tool or question to a person, on all branches."""
        return self._queries.calls(self.id)

    @property
    def rollbacks(self) -> tuple[Rollback, ...]:
        """The journals of its rollbacks and redos, oldest first. One that `is_open` is not finished."""
        return self._queries.rollbacks(self.id)

    @property
    def usage(self) -> dict[str, Any]:
        """Tokens and cost that nodes reported on the way to the head; `unpriced` names models without a known price.

        Failed attempts, and work that a rollback or fork left behind, count only in `spent`.
        """
        return usage_data(self._queries.usage(self.id))

    @property
    def spent(self) -> dict[str, Any]:
        """All tokens and cost that the run really used, including failed attempts and work that was left behind.

        A fork does not count what the other run spent before the fork.
        """
        return usage_data(self._queries.spent(self.id))

    @property
    def scores(self) -> RunScores:
        """The scores of the run, from its batch or from `bench.evaluate`: `run.scores["exact_match"].score`.

        `run.scores.all` has all of them: those of the batch that made the run, then the others, oldest first. If the
        evaluator failed, `score` is None and `error` says why.
        """
        return self._queries.scores(self.id)

    @property
    def returned(self) -> dict[str, list[dict[str, Any]]]:
        """What each node returned on the active branch, one entry per visit. Pass it to `flow.mocked`."""
        found = self._bench.services.replay.returned(self.id)
        return {node: [self._restored(update) for update in updates] for node, updates in found.items()}

    def events(self, **filters: Any) -> tuple[RecordedEvent, ...]:
        """Return the first recorded events, 1,000 by default. Filters: `types`, `severities`, `after`, `limit`.

        `types` are those of `bench.subscribe`: `"node.failed"`, `"tool"` for all events of tools, or several.
        """
        return self._queries.list_events(self.id, **filters)

    def all_events(self, **filters: Any) -> list[RecordedEvent]:
        """Return all matching events, however many there are. Filters: `types`, `severities`."""
        return list(self._queries.each_event(self.id, **filters))

    def summary(self) -> RunSummary:
        """Return what the run took up to its head, in all, by node and by tool, and how often each event occurred."""
        return self._queries.summary(self.id)

    def files(self, target: str | int | None = None) -> FileTree:
        """Return the files at the head, or at the checkpoint `target`, as a mapping from path to entry."""
        return self._bench.services.workspaces.tree(self._file_commit(target))

    def export(self, folder: str | Path, target: str | int | None = None) -> FileTree:
        """Write the files at the head, or at a checkpoint, into a new or empty folder, and return them.

        It raises `InvalidInput` if there are no files.
        """
        commit = self._file_commit(target)
        tree = self._bench.services.workspaces.tree(commit)
        if commit is None or not tree:
            place = "" if target is None else f" at checkpoint {str(target)!r}"
            raise InvalidInput(f"run {self.id!r} has no files{place}; `wtb show {self.id} --files` lists what it has")
        self._bench.services.workspaces.export(commit, Path(folder))
        return tree

    def diff(
        self,
        a: str | int,
        b: str | int | None = None,
        *,
        state: bool = True,
        files: bool = True,
        calls: bool = True,
        texts: bool = True,
        objects: bool = True,
    ) -> CheckpointDiff:
        """Return what changed from checkpoint `a` to checkpoint `b`; without `b`, to the head.

        To compare with another run, write `RUN@CHECKPOINT`, or `RUN@` for its head. Turn off the parts you do not need,
        and they are not read: `state`, `files`, `calls`, and `texts` (the contents of changed files). With
        `objects=False`, values of a graph come as plain data and no class is imported.
        """
        old, new = self._checkpoint(a).id, self._checkpoint(b).id
        compare = self._bench.services.comparison.compare
        found = compare(old, new, state=state, files=files, calls=calls, texts=texts)
        return replace(found, state=tuple(map(self._with_objects, found.state))) if objects else found

    def _with_objects(self, item: StateDiff) -> StateDiff:
        stored = {side: value for side in ("old", "new") if _is_encoded(value := getattr(item, side))}
        return replace(item, **self._restored(stored)) if stored else item

    def _checkpoint(self, target: str | int | None) -> Checkpoint:
        """Return the checkpoint that a person means, which may belong to another run."""
        try:
            return self._queries.checkpoint(self.id, target)
        except CheckpointNotFound:
            run_id, at, other = str(target).partition("@")
            if not at:
                raise
        return (self._bench.get(run_id) if run_id else self)._checkpoint(other or None)

    def _file_commit(self, target: str | int | None) -> FileCommitId | None:
        return self._queries.file_commit(self.id, target)

    def resume(
        self,
        *,
        update: Mapping[str, Any] | None = None,
        answer: Any = None,
        rerun_node: bool = False,
        strict: bool = False,
        take_over: bool = False,
        watch: Watch | None = None,
        **options: Any,
    ) -> Run:
        """Continue until the run ends or pauses again. Options such as `break_before` replace the run's own.

        - `update`: overwrite these keys of the state first.
        - `answer`: the answer to the question that the run asks.
        - `rerun_node`: undo what can be undone of the unfinished node, and start it over.
        - `strict`: refuse to continue if the workflow has changed since the run began; by default you only get a
          warning.
        - `take_over`: take the run from a process that cannot be seen from here, when a wrong clock has put the end of
          its lease far into the future. Use it only when that process has ended.
        - `watch`: a function that gets each attempt of a node and returns a context manager to run it in.

        It raises `Conflict` if another process is running the run, and `InvalidInput` if the run has completed or was
        stopped.
        """
        refuse_while_loading()
        flow = self._flow or self._loaded(f"bench.resume({self.id!r}, flow)")
        self._bench.services.controller.run(
            self.id,
            flow.definition(),
            update=update,
            answer=answer,
            rerun_node=rerun_node,
            strict=strict,
            take_over=take_over,
            options=options,
            watch=watch,
            request=self._request,
        )
        return Run(self._bench, self.id, flow)

    def replay(self, flow: Workflow | None = None) -> ReplayReport:
        """Check what today's workflow would make of the recorded results. No node runs and nothing is written."""
        flow = flow or self._flow or self._loaded("run.replay(flow)")
        return self._bench.services.replay.replay(self.id, flow.definition())

    def _loaded(self, call: str) -> Workflow:
        source = self.execution.workflow_source
        if self.execution.is_thread:
            raise InvalidInput(
                f"run {self.id!r} is a LangGraph thread: only its graph goes on with it; "
                f"graph.invoke(None, {{'configurable': {{'thread_id': {self.id!r}}}}})"
            )
        if source is None:
            raise InvalidInput(
                f"run {self.id!r} does not know where its workflow came from (a notebook or a script made it); "
                f"pass it: {call}"
            )
        try:
            return load_workflow(source)
        except InvalidInput as error:
            raise InvalidInput(
                f"{error}; put that right, or say where it is now with `--workflow` (in Python: {call})"
            ) from error

    def pause(self) -> None:
        """Ask the run to pause after the current step. If its process is gone, it is paused at once."""
        self._bench.services.controller.request(self.id, "pause")

    def stop(self) -> None:
        """Ask the run to stop for good after the current step. If no process runs it, it is stopped at once."""
        self._bench.services.controller.request(self.id, "stop")

    def rollback(
        self,
        target: str | int,
        *,
        dry_run: bool = False,
        tools: bool = True,
        files: bool = True,
        allow_irreversible: bool = False,
        shared: str = "keep",
        expected: RollbackPlan | None = None,
        created_by: str | None = None,
    ) -> RollbackPlan:
        """Go back to a checkpoint, and return what was done. Afterwards the run is paused.

        The state, the files and the effects of tools go back together.

        - `dry_run`: return the plan and do nothing.
        - `expected`: a plan from a dry run; do exactly that, or raise `Conflict` and do nothing.
        - `tools=False`, `files=False`: leave these as they are.
        - `allow_irreversible`: go back even if some calls cannot be undone; otherwise that raises `InvalidInput`.
        - `shared`: `"keep"` or `"reverse"` calls that another branch builds on.
        """
        travel = self._bench.services.travel
        if tools:
            self._learn_tools()
        if dry_run:
            return travel.plan(self.id, target, tools=tools, files=files, shared=shared)
        return travel.rollback(
            self.id,
            target,
            tools=tools,
            files=files,
            allow_irreversible=allow_irreversible,
            shared=shared,
            expected=expected,
            created_by=created_by,
        )

    def continue_rollback(self, *, in_doubt: str | None = None, take_over: bool = False) -> Run:
        """Finish a rollback that failed or was killed.

        `in_doubt` says what to do about a reversal that was interrupted: it is `done`, or make it `again`. `take_over`
        is as for `resume`.
        """
        self._learn_tools()
        self._bench.services.travel.continue_rollback(self.id, in_doubt, take_over=take_over)
        return self

    def abandon_rollback(self, *, in_doubt: str | None = None, take_over: bool = False) -> Run:
        """Give up a rollback that failed. The run stays where it was; what was undone stays undone.

        `in_doubt` says whether a call that was interrupted is `done` or to be made `again`. `take_over` is as for
        `resume`.
        """
        if any(journal.is_open and journal.direction is RollbackDirection.REDO for journal in self.rollbacks):
            self._learn_tools()
        else:  # a rollback can be abandoned even if its workflow is gone
            with suppress(InvalidInput):
                self._learn_tools()
        self._bench.services.travel.abandon_rollback(self.id, in_doubt, take_over=take_over)
        return self

    def redo(self, *, created_by: str | None = None) -> Run:
        """Undo the last rollback.

        It raises `InvalidInput` if there is none, or if the run has gone on since.
        """
        self._learn_tools()
        self._bench.services.travel.redo(self.id, created_by=created_by)
        return self

    def fork(
        self,
        target: str | int | None = None,
        *,
        run_id: str | None = None,
        name: str = "main",
        update: Mapping[str, Any] | None = None,
        input: Mapping[str, Any] | None = None,
        variants: Mapping[str, str] | None = None,
        created_by: str | None = None,
    ) -> Run:
        """Start a new run at a checkpoint of this one, by default the last. This run stays as it is.

        - `run_id`: the id of the new run. `name`: the name of its branch.
        - `update`: overwrite these keys of the state.
        - `input`: start from the beginning with this input; then give no `target`.
        - `variants`: use these variants in place of this run's.

        Call `resume` on the new run to continue it.
        """
        how: dict[str, Any] = {"run_id": run_id, "name": name, "variants": variants, "created_by": created_by}
        forked = self.forked(target, update=update, input=input, **how)
        return Run(self._bench, forked.execution.id, self._flow)

    def forked(
        self,
        target: str | int | None = None,
        *,
        update: Mapping[str, Any] | None = None,
        input: Mapping[str, Any] | None = None,
        **how: Any,
    ) -> Forked:
        """Do the same as `fork`, but return the new run's record and the checkpoint it begins at."""
        is_changed = bool(update) or input is not None
        if is_changed and self.execution.is_thread:
            raise InvalidInput(
                f"run {self.id!r} is a LangGraph thread: only its graph changes what it holds; fork it as it is, then "
                "call graph.update_state on the new thread"
            )
        if how.get("variants"):
            self._check_variants(how["variants"])
        engine = self._engine() if is_changed else None
        return self._bench.services.run_editor.fork(self.id, target, update=update, input=input, engine=engine, **how)

    def _check_variants(self, chosen: Mapping[str, str]) -> None:
        """Raise InvalidInput if the workflow has no such variants: as it is now, or else as the run recorded it."""
        flow = self._flow
        if flow is None and self.execution.workflow_source is not None:
            with suppress(WTBError):  # its code cannot be loaded here
                flow = self._loaded("run.fork(variants=…)")
        if flow is not None:
            flow.definition().with_variants(chosen)
            return
        _, recorded = self._bench.services.queries.variants(self.id)
        for node, name in chosen.items():
            if name not in (known := [BASELINE, *recorded.get(node, ())]):
                raise InvalidInput(f"node {node!r} has no variant {name!r}; it has {', '.join(known)}")

    def _engine(self) -> Engine | None:
        """Return the engine of another library if one drives the run: it must see changes to the state."""
        services, execution = self._bench.services, self.execution
        if ENGINE not in services.queries.definition(execution.workflow_id).get("metadata", {}):
            return None
        definition = (self._flow or self._loaded(f"wtb.Run(bench, {self.id!r}, flow)")).definition()
        return services.engine_of(definition.with_variants(execution.options.get("variants", {})))

    def checkpoint(self, name: str, description: str = "", *, created_by: str | None = None) -> Checkpoint:
        """Name the current position of an idle run, so that you can go back to it or fork from it by name.

        It raises `AlreadyExists` if the run has a checkpoint of this name.
        """
        return self._bench.services.run_editor.checkpoint(self.id, name, description, created_by=created_by)

    def delete(self, target: str | int | None = None) -> None:
        """Delete the run with its checkpoints and files, or one checkpoint. Forks and the effects of tools stay."""
        if target is None:
            self._bench.services.run_editor.delete_run(self.id)
        else:
            self._bench.services.run_editor.delete_checkpoint(self.id, target)

    @property
    def workspace(self) -> Path:
        """A folder with the files of the last step, to look at.

        Nodes begin with the stored files, not with changes you make here.
        """
        folder = self._bench.services.workspaces.path(self.id, self.execution.branch_id)
        return self._bench.services.workspaces.materialise(folder, self._file_commit(None))

    def _learn_tools(self) -> None:
        """Load the workflow if its source is known; importing it registers the tools to reverse."""
        if self._flow is not None or self.execution.workflow_source is None:
            return
        if any(call.kind is CallKind.TOOL and call.effects is Effects.EXTERNAL for call in self.calls):
            self._loaded(f"wtb.Run(bench, {self.id!r}, flow)")
