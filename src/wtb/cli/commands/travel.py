"""`wtb rollback`, `redo`, `fork`, `checkpoint`, `delete`: move a run back and forward, branch it, delete it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from wtb.application.queries.views import RunView
from wtb.application.runs.leases import check_not_rolling_back
from wtb.application.runs.reversals import Doubt, RedoDiverged
from wtb.application.time_travel.rollback_executor import RollbackFailed
from wtb.application.time_travel.run_editor import STILL, check_still
from wtb.bench import Bench
from wtb.cli.commands.files import readable
from wtb.cli.commands.runs import advice, drive, end, read_input, read_setting, read_variants, variant_option
from wtb.cli.exit_codes import WORK_FAILED
from wtb.cli.output import as_json, confirm, echo, example, print_json, show, url
from wtb.cli.views.half_done import call_row, half_done, listed, place_of, ways_on
from wtb.domain.display import counted
from wtb.domain.errors import DamagedData, InvalidInput
from wtb.domain.execution import ExecutionStatus
from wtb.domain.ids import ExecutionId
from wtb.domain.rollback import RollbackPlan, chosen, redoable
from wtb.loading import load_workflow
from wtb.runs import Run

_MOST = 20
"""How many files people see."""

workflow_option = click.option("--workflow", metavar="WORKFLOW", help="Load the workflow from here, if it has moved.")


@click.command()
@click.argument("run_id", metavar="RUN")
@click.argument("target", metavar="[TARGET]", required=False)
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--no-tools", is_flag=True, help="Do not undo tool calls.")
@click.option("--no-files", is_flag=True, help="Do not touch the files.")
@click.option(
    "--allow-irreversible", is_flag=True, help="Go back even if tool calls cannot be undone; their effects stay."
)
@click.option(
    "--shared",
    type=click.Choice(["keep", "reverse"]),
    default="keep",
    show_default=True,
    help="Keep or undo tool calls that a fork builds on.",
)
@click.option("--continue", "go_on", is_flag=True, help="Finish a rollback or redo that failed or was killed.")
@click.option("--abandon", is_flag=True, help="Give up an unfinished rollback or redo; the run stays where it was.")
@click.option(
    "--in-doubt",
    type=click.Choice([doubt.value for doubt in Doubt]),
    help="With --continue or --abandon: what became of the undo whose process died: `done` if it happened, `again` if "
    "it must be repeated.",
)
@click.option(
    "--take-over",
    is_flag=True,
    help="With --continue or --abandon: take the run from a process that has ended but, because of a wrong clock, "
    "still seems to own the run.",
)
@workflow_option
@url
@as_json
@example("wtb rollback first draft#1 --dry-run", "wtb rollback first 'before review'", "wtb rollback first --continue")
def rollback(
    *,
    run_id: str,
    target: str | None,
    dry_run: bool,
    yes: bool,
    no_tools: bool,
    no_files: bool,
    allow_irreversible: bool,
    shared: str,
    go_on: bool,
    in_doubt: str | None,
    take_over: bool,
    abandon: bool,
    workflow: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Take a run back to TARGET: its state, its files, and the effects of its tools.

    TARGET is a step number, a node (where its last visit ended), node#2 (its second visit), a name, or the start of a
    checkpoint's id. You see the plan, and WTB asks you before it changes anything.

    Afterwards the run is paused at TARGET. Later steps are kept, and `wtb redo` goes forward again.

    If undoing a tool call fails, the run stops half-way and the command exits with 3. Then finish the rollback with
    --continue, or give it up with --abandon.
    """
    if go_on + abandon + (target is not None) != 1:
        raise InvalidInput(f"give a target, such as `wtb rollback {run_id} NODE`, or --continue, or --abandon")
    if in_doubt is not None and target is not None:
        raise InvalidInput("--in-doubt works only with --continue or --abandon")
    if take_over and target is not None:
        raise InvalidInput(
            "--take-over works only with --continue or --abandon; to take over a run that is not being rolled back, "
            f"use `wtb resume {run_id} --take-over`"
        )
    with Bench(url) as bench:
        run = _run(bench, run_id, workflow)
        if go_on:
            _act(run, lambda: run.continue_rollback(in_doubt=in_doubt, take_over=take_over), as_json=as_json)
        elif abandon:
            _act(run, lambda: run.abandon_rollback(in_doubt=in_doubt, take_over=take_over), as_json=as_json)
        else:
            assert target is not None
            options = {"tools": not no_tools, "files": not no_files, "shared": shared}
            _roll_back(run, target, options, dry_run=dry_run, yes=yes, allowed=allow_irreversible, as_json=as_json)


def _roll_back(
    run: Run, target: str, options: dict[str, Any], *, dry_run: bool, yes: bool, allowed: bool, as_json: bool
) -> None:
    """Show the plan, ask, and carry out exactly that plan."""
    if not dry_run:
        check_still(run.execution, STILL)  # refuse before showing a plan that cannot be carried out
    plan = run.rollback(target, dry_run=True, **options)
    result = {"run": run.id, "status": run.status.value, "plan": plan.to_dict()}
    text = _plan_text(run, plan, tools=options["tools"])
    if dry_run:
        show(result, text, as_json=as_json)
    elif run.status is ExecutionStatus.PAUSED and not _changes(
        plan
    ):  # a rollback that changes nothing would only block redo
        show(result, f"{run.id} is already there, and nothing was changed. {advice(run.view())}", as_json=as_json)
    elif plan.irreversible and not allowed:
        show(result, text, as_json=as_json)
        raise InvalidInput(
            f"{counted(len(plan.irreversible), 'call')} cannot be undone, so nothing was changed; with "
            "--allow-irreversible the run goes back, and the effects of such calls stay"
        )
    else:
        if not as_json:
            echo(text)
        _ask("Go back?", yes=yes)
        how = {**options, "allow_irreversible": allowed, "expected": plan}
        _act(run, lambda: run.rollback(target, **how), as_json=as_json, plan=plan.to_dict())


def _changes(plan: RollbackPlan) -> bool:
    return bool(plan.checkpoints or plan.nodes or plan.reverse or plan.irreversible or plan.kept or plan.files)


def _plan_text(run: Run, plan: RollbackPlan, *, tools: bool) -> str:
    why = "a fork builds on them; --shared reverse undoes them" if tools else "--no-tools"
    nodes = [f"  {node.node}#{node.visit}" for node in plan.nodes]
    return "\n".join(
        [
            f"Go back to {place_of(plan.target)}, {counted(plan.checkpoints, 'checkpoint')} back.",
            *(["Nodes to undo, newest first:", *nodes] if nodes else []),
            *listed("Calls to undo, in this order", plan.reverse),
            *listed("Calls that cannot be undone", plan.irreversible),
            *listed(f"Calls to keep ({why})", plan.kept),
            *_file_lines(run, plan),
        ]
    )


def _file_lines(run: Run, plan: RollbackPlan) -> list[str]:
    """Return a line for each file that changes: + is restored, - is removed, ~ gets its old content."""
    if not plan.files:
        return []
    now = run.files()
    marks = dict.fromkeys(plan.files.removed, "-") | {path: "~" if path in now else "+" for path in plan.files.put}
    lines = [f"  {mark} {readable(path)}" for path, mark in sorted(marks.items())]
    more = [f"  and {len(lines) - _MOST:,} more; --json has all"] if len(lines) > _MOST else []
    return ["Files:", *lines[:_MOST], *more]


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--yes", is_flag=True, help="Do not ask.")
@workflow_option
@url
@as_json
@example("wtb redo first")
def redo(*, run_id: str, yes: bool, workflow: str | None, url: str | None, as_json: bool) -> None:
    """Reverse the last rollback: go forward to where it started.

    This works only if the run has not gone on since the rollback. WTB shows the tool calls that were undone, asks you,
    and makes them again. If a call fails or returns another result than before, WTB undoes them once more, the run
    stays where it is, and the command exits with 3.
    """
    with Bench(url) as bench:
        run = _run(bench, run_id, workflow)
        last = redoable(run.rollbacks)
        again = chosen(run.calls, last.calls)[::-1] if last is not None else []
        if again and run.status is ExecutionStatus.PAUSED:
            echo("\n".join(listed("Calls to repeat, in this order", again)), err=as_json)
            _ask("Go forward?", yes=yes)
        _act(run, run.redo, as_json=as_json)


@click.command()
@click.argument("run_id", metavar="RUN")
@click.argument("target", metavar="[TARGET]", required=False)
@click.option("--run-id", "new_id", metavar="ID", help="Id of the new run; it must not exist yet.")
@click.option("--name", metavar="BRANCH", default="main", show_default=True, help="Name of its branch.")
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set a key of the state of the new run; repeatable.",
)
@variant_option
@click.option("--input", "given", metavar="JSON|@FILE", help="Start from the beginning, with this input.")
@click.option("--resume", "go_on", is_flag=True, help="Run the new run at once.")
@workflow_option
@url
@as_json
@example(
    "wtb fork first retrieve --set k=10 --run-id second --resume",
    "wtb fork first retrieve --variant answer=long --resume",
)
def fork(
    *,
    run_id: str,
    target: str | None,
    new_id: str | None,
    name: str,
    settings: tuple[str, ...],
    variants: tuple[str, ...],
    given: str | None,
    go_on: bool,
    workflow: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Start a new run at a checkpoint of another run.

    The other run does not change, and it may even be running. TARGET is a step number, a node, node#2, a name, or the
    start of a checkpoint's id; the default is the last checkpoint. A fork is cheap, however large the state is.

    The tool calls that the other run made after TARGET are not undone; WTB lists them. With --resume, the command exits
    with 3 if the new run failed.
    """
    with Bench(url) as bench:
        source = _run(bench, run_id, workflow)
        forked = source.forked(
            target,
            run_id=new_id,
            name=name,
            update=dict(read_setting(item) for item in settings),
            input=None if given is None else read_input(given),
            variants=read_variants(variants) or None,
        )
        run = _run(bench, forked.execution.id, workflow)
        effects = bench.services.run_editor.effects_after(source.id, forked.checkpoint)
        facts = {"from": source.id, "checkpoint": forked.checkpoint.id, "effects": list(map(call_row, effects))}
        if not as_json:
            echo(f"{run.id} starts at {place_of(forked.checkpoint)} of {source.id}.")
            stays = listed(f"These later calls of {source.id} are not undone", effects)
            echo("".join(f"{line}\n" for line in stays), nl=False)
        if go_on:
            end(drive(bench, run, as_json=as_json), as_json=as_json, **facts)
        else:
            result = {"run": run.id, **facts, "status": run.status.value}
            is_thread = forked.execution.is_thread
            show(result, advice(run.view()) if is_thread else f"Continue with `wtb resume {run.id}`.", as_json=as_json)


@click.command()
@click.argument("run_id", metavar="RUN")
@click.argument("name", metavar="NAME")
@click.option("--description", metavar="TEXT", default="", help="Why you made it.")
@url
@as_json
@example("wtb checkpoint first 'before review' --description 'all sources found'")
def checkpoint(*, run_id: str, name: str, description: str, url: str | None, as_json: bool) -> None:
    """Name the current position of an idle run.

    `wtb rollback RUN NAME` goes back to it. No process may be running the run: use `wtb pause` first.
    """
    with Bench(url) as bench:
        run = bench.get(run_id)
        made = run.checkpoint(name, description)
    result = {"run": run.id, "checkpoint": made.id, "name": made.name, "step": made.step}
    show(result, f"Step {made.step} of {run.id} is now called {name!r}.", as_json=as_json)


@click.command()
@click.argument("place", metavar="RUN[@CHECKPOINT]")
@click.option("--yes", is_flag=True, help="Do not ask.")
@url
@as_json
@example("wtb delete first", "wtb delete 'first@before review'")
def delete(*, place: str, yes: bool, url: str | None, as_json: bool) -> None:
    """Delete a run with its checkpoints and files, or one of its checkpoints.

    Forks of the run and its recorded events stay. The effects of its tools are not undone: to undo them, roll the run
    back first.
    """
    run_id, at, target = place.partition("@")
    with Bench(url) as bench:
        try:
            run = bench.get(run_id)
        except DamagedData as error:
            if at:
                raise
            _delete_damaged(bench, run_id, error, yes=yes, as_json=as_json)
            return
        if at:
            _delete_checkpoint(bench, run, target, yes=yes, as_json=as_json)
        else:
            _delete_run(bench, run, yes=yes, as_json=as_json)


def _delete_checkpoint(bench: Bench, run: Run, target: str, *, yes: bool, as_json: bool) -> None:
    check_not_rolling_back(run.execution)
    found = bench.services.queries.checkpoint(run.id, target)
    echo(f"This deletes checkpoint {found.id} ({place_of(found)}) of {run.id}; later checkpoints stay.", err=True)
    _ask("Delete it?", yes=yes)
    run.delete(found.id)
    show({"run": run.id, "deleted": found.id, "name": found.name}, "Deleted.", as_json=as_json)


def _delete_run(bench: Bench, run: Run, *, yes: bool, as_json: bool) -> None:
    found = bench.services.queries.deletion(run.id)
    forks, own, execution = found.forks, found.checkpoints, found.execution
    stays = f"; {counted(len(forks), 'fork')} will stay: {', '.join(forks)}" if forks else ""
    name, status = execution.workflow_name, execution.status
    going = f"This deletes run {run.id} ({name}, {status}) with {counted(own, 'checkpoint')}{stays}."
    echo(going, err=True)
    _ask("Delete it?", yes=yes)
    run.delete()
    result = {"run": run.id, "deleted": run.id, "checkpoints": own, "forks": forks}
    show(result, "Deleted.", as_json=as_json)


def _delete_damaged(bench: Bench, run_id: str, error: DamagedData, *, yes: bool, as_json: bool) -> None:
    echo(f"{error}. WTB cannot tell whether a process is running it; if one is, it stops.", err=True)
    _ask("Delete it?", yes=yes)
    bench.services.run_editor.delete_run(ExecutionId(run_id))
    show({"run": run_id, "deleted": run_id}, "Deleted.", as_json=as_json)


def _run(bench: Bench, run_id: str, workflow: str | None) -> Run:
    """Return a run with the given workflow; refuse a workflow that is not its own."""
    run = bench.get(run_id)
    if workflow is None:
        return run
    flow, name = load_workflow(workflow), run.execution.workflow_name
    if flow.name != name:
        raise InvalidInput(f"run {run.id!r} belongs to workflow {name!r}, but {workflow} contains {flow.name!r}")
    return Run(bench, run.id, flow)


def _ask(question: str, *, yes: bool) -> None:
    """Ask, unless --yes was given. Without a terminal, --yes is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput("there is no terminal to ask on, so nothing was changed; pass --yes to go ahead")
    confirm(question)


def _act(run: Run, act: Callable[[], object], *, as_json: bool, **more: Any) -> None:
    """Act, then print the run's position and how to go on; exit with 3 if the action stopped half-way."""
    try:
        act()
    except (RollbackFailed, RedoDiverged) as error:
        view = run.view()
        if as_json:
            print_json({**_standing(view), **more})
        is_half_done = view.execution.status is ExecutionStatus.ROLLING_BACK
        echo(f"wtb: {ways_on(view) if is_half_done and not as_json else error}", err=True)
        sys.exit(WORK_FAILED)
    except KeyboardInterrupt:
        echo(f"Interrupted; `wtb show {run.id}` shows where the run is now.", err=True)
        raise
    view = run.view()
    show({**_standing(view), **more}, advice(view), as_json=as_json)


def _standing(view: RunView) -> dict[str, Any]:
    head = view.head
    assert head is not None
    facts = {"checkpoint": head.id, "step": head.step, "node": head.node, "next": head.next_nodes}
    status = view.execution.status.value
    return {"run": view.id, "status": status, **facts, "state": view.state, "rollback": half_done(view)}
