"""Run: one run as a user holds it; a thin skin over the services."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wtb.application.queries.service import Queries
from wtb.application.queries.views import CheckpointView, RunView
from wtb.application.runs.node_runner import Watch
from wtb.application.time_travel.run_editor import Forked
from wtb.domain.checkpoint import Checkpoint
from wtb.domain.diff import CheckpointDiff, StateDiff
from wtb.domain.engine import Engine
from wtb.domain.errors import CheckpointNotFound, InvalidInput
from wtb.domain.events import RecordedEvent
from wtb.domain.execution import THREAD, Branch, Execution, ExecutionStatus, Failure, Pause
from wtb.domain.figures import Usage
from wtb.domain.files import FileCommitId, FileTree
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import ExecutionId
from wtb.domain.replay import ReplayReport
from wtb.domain.rollback import Direction, Rollback, RollbackPlan
from wtb.domain.summary import RunSummary
from wtb.domain.tools import CallKind, Effects, ToolCall
from wtb.domain.tree import HistoryTree
from wtb.domain.values import Legible
from wtb.domain.workflow import ENGINE
from wtb.flow import Workflow
from wtb.infrastructure.codecs.foreign import live
from wtb.loading import load_workflow, refuse_while_loading

if TYPE_CHECKING:
    from wtb.bench import Bench


def _is_encoded(value: Any) -> bool:
    """Whether a value, or an item of a list, is in the encoding of another library."""
    return isinstance(value, Legible) or (type(value) is list and any(isinstance(item, Legible) for item in value))


def usage_data(usage: Usage) -> dict[str, Any]:
    """Return usage as users are shown it."""
    return {**usage.totals(), "unpriced": list(usage.unpriced)} if usage.unpriced else dict(usage.totals())


class Run:
    """One run. Everything is read when it is asked for, so it is as true as the store."""

    def __init__(self, bench: Bench, id: ExecutionId, flow: Workflow | None) -> None:
        self._bench = bench
        self._flow = flow
        self.id = id

    def __repr__(self) -> str:
        return f"<Run {self.id} of {self.execution.workflow_name}: {self.status}>"

    @property
    def _queries(self) -> Queries:
        return self._bench.services.queries

    @property
    def execution(self) -> Execution:
        """The record of the run: its workflow, options, metadata, when it was made, whether it is `degraded`."""
        return self._queries.execution(self.id)

    def view(self) -> RunView:
        """Return everything about the run, read at one moment: status, state, times, figures, files, branches."""
        return self._shown(self._queries.run(self.id))

    def _shown(self, view: RunView) -> RunView:
        """Return a view of this run whose state holds the objects that nodes see."""
        return replace(view, state=self._shown_state(view.execution, view.state))

    @property
    def status(self) -> ExecutionStatus:
        """Where it stands: `pending`, `running`, `paused`, `rolling_back`, `completed`, `failed` or `cancelled`."""
        return self.execution.status

    @property
    def error(self) -> Failure | None:
        """What went wrong, when it failed: type, message, traceback, node; None otherwise."""
        return self.execution.failure

    @property
    def waiting(self) -> Pause | None:
        """Why it is paused, as `reason`, and the `question` if it asks one; None when it is not."""
        return self.execution.pause

    @property
    def state(self) -> dict[str, Any]:
        """The state after its last step, as a dict of your own.

        When a graph waits in one node, what the nodes beside it have written is in it, as in LangGraph's `get_state`.
        """
        return self._shown_state(*self._queries.state(self.id))

    def at(self, target: str | int) -> CheckpointView:
        """Return a checkpoint with its `state` and `files`: target is a step, node, `node#2`, name or id."""
        found = self._queries.checkpoint_view(self.id, target)
        return replace(found, state=self._restored(found.state))

    def _shown_state(self, execution: Execution, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return a stored state as users see it, with what nodes have written whose siblings still wait."""
        if self._flow is not None and execution.status is not ExecutionStatus.COMPLETED:
            shown = self._bench.services.controller.state_with_finished(self.id, self._flow.definition())
            if shown is not None:
                return shown
        return self._restored(stored)

    def _restored(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return a stored state, or a stored update of a node, with the objects that nodes see.

        A graph that is known here says itself which classes it builds; otherwise they are found by their names.
        """
        restored = None if self._flow is None else self._flow.definition().restored
        if restored is not None:
            with suppress(InvalidInput):  # a class that is not here: a run can be looked at all the same
                return restored(stored)
        return live(stored)

    @property
    def history(self) -> ExecutionHistory:
        """What it did: checkpoints, branches, and the visits of nodes between them."""
        return self._queries.history(self.id)

    def tree(self) -> HistoryTree:
        """Return all lines of the run as a tree: branches, what rollbacks left behind, and forks into other runs."""
        return self._queries.tree(self.id)

    @property
    def branches(self) -> tuple[Branch, ...]:
        """Its branches, in the order of their making."""
        return self.history.branches

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """All its checkpoints, on whichever branch, without their states."""
        return self._queries.checkpoints(self.id)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """What its nodes asked of tools and people, on whichever line."""
        return self._queries.calls(self.id)

    @property
    def rollbacks(self) -> tuple[Rollback, ...]:
        """The journals of its rollbacks and redos, oldest first; one that `is_open` waits to be finished."""
        return self._queries.rollbacks(self.id)

    @property
    def usage(self) -> dict[str, Any]:
        """Tokens and money that its nodes reported along its line; `unpriced` are models whose price nobody knew.

        What a rollback or a fork left behind, and attempts that failed, are in `spent` only.
        """
        return usage_data(self._queries.usage(self.id))

    @property
    def spent(self) -> dict[str, Any]:
        """Tokens and money that its nodes took in fact: on all lines, and in attempts that failed.

        A run that was forked from another has not spent what that one had before the fork.
        """
        return usage_data(self._queries.spent(self.id))

    @property
    def returned(self) -> dict[str, list[dict[str, Any]]]:
        """What each node returned along the active branch, one entry a visit: what `flow.mocked` takes."""
        found = self._bench.services.replay.returned(self.id)
        return {node: [self._restored(update) for update in updates] for node, updates in found.items()}

    def events(self, **filters: Any) -> tuple[RecordedEvent, ...]:
        """Return what was recorded of the run, in order; filters are types, severities, after and limit."""
        return self._queries.list_events(self.id, **filters)

    def all_events(self, **filters: Any) -> list[RecordedEvent]:
        """Return all events that fit, however many; filters are types and severities."""
        return list(self._queries.each_event(self.id, **filters))

    def summary(self) -> RunSummary:
        """Return the figures of its line, in all and by node and tool, and how often each event was recorded."""
        return self._queries.summary(self.id)

    def files(self, target: str | int | None = None) -> FileTree:
        """Return the files at the head, or at a checkpoint: its step, node, `node#2`, name or id."""
        return self._bench.services.workspaces.tree(self._file_commit(target))

    def export(self, folder: str | Path, target: str | int | None = None) -> FileTree:
        """Write the files of the head, or of a checkpoint, into a folder that is absent or empty; return them."""
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
        """Return what makes checkpoint `b` (the head, when it is left out) of checkpoint `a`.

        Each is a step, node, `node#2`, name or id; `RUN@CHECKPOINT` is one of another run, `RUN@` its head. Parts that
        are not wanted are not read; without `texts` files are named, and their contents left out. Values that a graph
        added or removed come as its nodes see them; without `objects` no class is imported, and they come as data.
        """
        old, new = self._checkpoint(a).id, self._checkpoint(b).id
        compare = self._bench.services.comparison.compare
        found = compare(old, new, state=state, files=files, calls=calls, texts=texts)
        return replace(found, state=tuple(map(self._with_objects, found.state))) if objects else found

    def _with_objects(self, item: StateDiff) -> StateDiff:
        stored = {side: value for side in ("old", "new") if _is_encoded(value := getattr(item, side))}
        return replace(item, **self._restored(stored)) if stored else item

    def _checkpoint(self, target: str | int | None) -> Checkpoint:
        """Return what a person means, which may be a checkpoint of another run."""
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
        """Go on until the run ends or pauses again; options such as break_before replace those it has.

        `update` overwrites keys of the state first; `answer` is that to the question which the run waits for.
        `rerun_node` undoes what can be undone of the node that was begun, and begins it afresh. `strict` refuses to go
        on with a workflow that has changed since the run began; otherwise that is only warned of. `take_over` takes the
        run from a process that cannot be seen and whose lease a wrong clock has put far into the future: use it only
        when that process has ended. `watch(node_run)` gives a context that is entered while an attempt of a node runs.
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
        )
        return Run(self._bench, self.id, flow)

    def replay(self, flow: Workflow | None = None) -> ReplayReport:
        """Compare the record with what the workflow as it is now makes of it; no node runs, nothing is written."""
        flow = flow or self._flow or self._loaded("run.replay(flow)")
        return self._bench.services.replay.replay(self.id, flow.definition())

    def _loaded(self, call: str) -> Workflow:
        source = self.execution.workflow_source
        if self.execution.workflow_name == THREAD:
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
        """Ask the run to pause at its next step boundary; one whose process is gone is paused at once."""
        self._bench.services.controller.request(self.id, "pause")

    def stop(self) -> None:
        """Ask the run to stop for good at its next step boundary; one that nobody runs is stopped at once."""
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
        """Go back to a node (its last exit), `node#2`, a step, a name or a checkpoint's id; return what was done.

        State, files and effects of tools move together; `tools=False` and `files=False` leave those as they are. Calls
        that cannot be undone are refused unless `allow_irreversible`; calls that another branch builds on are kept
        unless `shared="reverse"`. A dry run says what would be done; given as `expected`, exactly that is done, or
        nothing. Afterwards the run is paused.
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
        """Finish a rollback that failed or was killed; `in_doubt` (`done`, `again`) answers for a reversal.

        `take_over` takes the run from a process that cannot be seen and whose lease a wrong clock has put far into the
        future: use it only when that process has ended.
        """
        self._learn_tools()
        self._bench.services.travel.continue_rollback(self.id, in_doubt, take_over=take_over)
        return self

    def abandon_rollback(self, *, in_doubt: str | None = None, take_over: bool = False) -> Run:
        """Give up a rollback that failed; what was undone stays undone, and the run stays where it was.

        `in_doubt` (`done`, `again`) answers for a call that was being dealt with when its process died. `take_over` as
        for `continue_rollback`.
        """
        if any(journal.is_open and journal.direction is Direction.REDO for journal in self.rollbacks):
            self._learn_tools()
        else:  # a rollback can be given up also where its workflow is gone
            with suppress(InvalidInput):
                self._learn_tools()
        self._bench.services.travel.abandon_rollback(self.id, in_doubt, take_over=take_over)
        return self

    def redo(self) -> Run:
        """Go forward again to where the last rollback came from, if nothing has happened since."""
        self._learn_tools()
        self._bench.services.travel.redo(self.id)
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
        """Begin a new run at a checkpoint of this one (its last, without a target); this one stays as it is.

        `update` overwrites keys of the state first; `input` begins from the start with another input; `variants` are
        laid over those that this run has. Resume it to go on.
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
        """Do as `fork`, and return the record of the new run with the checkpoint that it begins at."""
        is_changed = bool(update) or input is not None
        if is_changed and self.execution.workflow_name == THREAD:
            raise InvalidInput(
                f"run {self.id!r} is a LangGraph thread: only its graph changes what it holds; fork it as it is, then "
                "call graph.update_state on the new thread"
            )
        engine = self._engine() if is_changed else None
        return self._bench.services.run_editor.fork(self.id, target, update=update, input=input, engine=engine, **how)

    def _engine(self) -> Engine | None:
        """Return what drives the run, when that is another library: it must see what is put into the state."""
        services, execution = self._bench.services, self.execution
        if ENGINE not in services.queries.definition(execution.workflow_id).get("metadata", {}):
            return None
        definition = (self._flow or self._loaded(f"wtb.Run(bench, {self.id!r}, flow)")).definition()
        return services.engine_of(definition.with_variants(execution.options.get("variants", {})))

    def checkpoint(self, name: str, description: str = "", *, created_by: str | None = None) -> Checkpoint:
        """Make a checkpoint where the run stands, to go back to or fork from by its name; nobody may be running it."""
        return self._bench.services.run_editor.checkpoint(self.id, name, description, created_by=created_by)

    def delete(self, target: str | int | None = None) -> None:
        """Delete the run with its checkpoints and files, or one checkpoint; forks stay, and what its tools did too."""
        if target is None:
            self._bench.services.run_editor.delete_run(self.id)
        else:
            self._bench.services.run_editor.delete_checkpoint(self.id, target)

    @property
    def workspace(self) -> Path:
        """A folder with the files of the last step, to look at: a node begins with those of the step, not these."""
        folder = self._bench.services.workspaces.path(self.id, self.execution.branch_id)
        return self._bench.services.workspaces.materialise(folder, self._file_commit(None))

    def _learn_tools(self) -> None:
        """Load the workflow where it is known from: its module registers the tools that are to be reversed."""
        if self._flow is not None or self.execution.workflow_source is None:
            return
        if any(call.kind is CallKind.TOOL and call.effects is Effects.EXTERNAL for call in self.calls):
            self._loaded(f"wtb.Run(bench, {self.id!r}, flow)")
