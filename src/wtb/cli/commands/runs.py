"""`wtb run`, `resume`, `pause`, `stop`: start runs, continue them, and end them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from wtb.application.queries.views import RunView
from wtb.bench import Bench
from wtb.cli.exit_codes import WORK_FAILED
from wtb.cli.interrupts import Interrupts, requests_to
from wtb.cli.output import as_json, echo, echo_state, example, print_json, show, url
from wtb.cli.views.half_done import ways_on
from wtb.cli.views.live import LiveDisplay
from wtb.domain.errors import InvalidInput
from wtb.domain.execution import Execution, ExecutionStatus
from wtb.domain.options import Keep, OnFailure
from wtb.infrastructure.json_text import read_json
from wtb.loading import load_workflow
from wtb.runs import Run

variant_option = click.option(
    "--variant",
    "variants",
    metavar="NODE=NAME",
    multiple=True,
    help="Use variant NAME of NODE; repeatable.",
)


@click.command()
@click.argument("workflow", metavar="WORKFLOW")
@click.option("--input", "given", metavar="JSON|@FILE", help="Input of the run: a JSON object, or @file.json.")
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set one key of the input; VALUE is JSON or plain text; repeatable.",
)
@variant_option
@click.option("--run-id", metavar="ID", help="Id of the new run; it must not exist yet.")
@click.option("--break-before", metavar="NODE", multiple=True, help="Pause before this node; repeatable.")
@click.option("--break-after", metavar="NODE", multiple=True, help="Pause after this node; repeatable.")
@click.option(
    "--max-steps",
    type=int,
    default=1_000,
    show_default=True,
    help="Fail after this many steps, to end endless loops.",
)
@click.option("--timeout-s", type=float, help="Fail if the run takes longer than this many seconds.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed for ctx.rng and ctx.seed.")
@click.option(
    "--checkpoints",
    type=click.Choice([keep.value for keep in Keep]),
    default=Keep.EVERY_NODE.value,
    show_default=True,
    help="When to keep the checkpoints of all nodes after the run has ended: always, only if it completed, or only if "
    "it did not.",
)
@click.option("--fine-grained", is_flag=True, help="Also make checkpoints at tool calls inside nodes.")
@click.option(
    "--checkpoint-failure",
    type=click.Choice([choice.value for choice in OnFailure]),
    help="If a checkpoint cannot be written: warn and go on, or stop the run. Default: as in your settings.",
)
@click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Copy the files of this folder into the run's workspace.",
)
@url
@as_json
@example("wtb run support.py --set question='Where is my invoice?' --break-before answer")
def run(
    *,
    workflow: str,
    given: str | None,
    settings: tuple[str, ...],
    variants: tuple[str, ...],
    run_id: str | None,
    break_before: tuple[str, ...],
    break_after: tuple[str, ...],
    max_steps: int,
    timeout_s: float | None,
    seed: int,
    checkpoints: str,
    fine_grained: bool,
    checkpoint_failure: str | None,
    workspace: Path | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Run a workflow.

    WORKFLOW is file.py[:flow], module:flow or flow.json. In a file, the default name is `flow`.

    Ctrl-C pauses the run at the end of the current step. A second Ctrl-C stops it for good, and a third one ends the
    process. The command exits with 3 if the run failed.
    """
    flow = load_workflow(workflow)
    state = {**read_input(given), **dict(read_setting(item) for item in settings)}
    with Bench(url) as bench:
        made = bench.create(
            flow,
            state,
            run_id=run_id,
            break_before=break_before,
            break_after=break_after,
            max_steps=max_steps,
            timeout_s=timeout_s,
            seed=seed,
            checkpoints=checkpoints,
            fine_grained=fine_grained,
            checkpoint_failure=checkpoint_failure,
            variants=read_variants(variants),
            workspace=workspace,
        )
        end(drive(bench, made, as_json=as_json), as_json=as_json)


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--workflow", metavar="WORKFLOW", help="Load the workflow from here, if it has moved.")
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set a key of the state before the run goes on; repeatable.",
)
@variant_option
@click.option("--answer", metavar="JSON|TEXT", help="Answer the question that the run asks.")
@click.option(
    "--rerun-node", is_flag=True, help="Undo what can be undone of the unfinished node, and start that node again."
)
@click.option(
    "--strict", is_flag=True, help="Refuse, instead of warning, if the workflow has changed since the run started."
)
@click.option(
    "--take-over",
    is_flag=True,
    help="Take the run from a process that has ended but, because of a wrong clock, still seems to own the run.",
)
@click.option(
    "--break-before",
    metavar="NODE",
    multiple=True,
    help="Pause before this node, instead of the earlier --break-before; repeatable.",
)
@click.option(
    "--break-after",
    metavar="NODE",
    multiple=True,
    help="Pause after this node, instead of the earlier --break-after; repeatable.",
)
@click.option("--no-breakpoints", is_flag=True, help="Remove the run's breakpoints, except those given here.")
@click.option("--max-steps", type=int, help="Replace the limit on steps.")
@url
@as_json
@example("wtb resume 0199a3b2-1c4d --set k=5", "wtb resume first --answer yes")
def resume(
    *,
    run_id: str,
    workflow: str | None,
    settings: tuple[str, ...],
    variants: tuple[str, ...],
    answer: str | None,
    rerun_node: bool,
    strict: bool,
    take_over: bool,
    break_before: tuple[str, ...],
    break_after: tuple[str, ...],
    no_breakpoints: bool,
    max_steps: int | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Continue a run that is paused, has failed, or has lost its process.

    RUN is the id of the run, or the start of it if no other run starts the same way. Ctrl-C works as in `wtb run`. The
    command exits with 3 if the run failed.
    """
    with Bench(url) as bench:
        found = Run(bench, bench.get(run_id).id, load_workflow(workflow) if workflow else None)
        options: dict[str, Any] = {"rerun_node": rerun_node, "strict": strict, "take_over": take_over}
        if break_before or no_breakpoints:
            options["break_before"] = break_before
        if break_after or no_breakpoints:
            options["break_after"] = break_after
        if max_steps is not None:
            options["max_steps"] = max_steps
        if variants:
            options["variants"] = {**found.execution.options.get("variants", {}), **read_variants(variants)}
        update = dict(read_setting(item) for item in settings)
        options["answer"] = None if answer is None else read_value(answer, "--answer")
        end(drive(bench, found, as_json=as_json, update=update, **options), as_json=as_json)


@click.command()
@click.argument("run_id", metavar="RUN")
@url
@as_json
@example("wtb pause first")
def pause(run_id: str, url: str | None, as_json: bool) -> None:
    """Pause a running run at the end of its current step.

    The run may be in any process. If its process has ended, the run is paused at once.
    """
    _request(url, run_id, "pause", as_json=as_json)


@click.command()
@click.argument("run_id", metavar="RUN")
@url
@as_json
@example("wtb stop first")
def stop(run_id: str, url: str | None, as_json: bool) -> None:
    """Stop a run for good at the end of its current step.

    The run may be in any process. If no process runs it (it is paused, has failed, or its process has ended), it is
    stopped at once.
    """
    _request(url, run_id, "stop", as_json=as_json)


def _request(url: str | None, run_id: str, request: str, *, as_json: bool) -> None:
    with Bench(url) as bench:
        run = bench.get(run_id)
        if request == "pause":
            run.pause()
        else:
            run.stop()
        status = run.status
    waits = status is ExecutionStatus.RUNNING
    text = f"{run.id} will {request} at the end of its current step." if waits else f"{run.id} is {status} now."
    show({"run": run.id, "requested": request, "status": status.value}, text, as_json=as_json)


def drive(bench: Bench, run: Run, *, as_json: bool, **how: Any) -> Run:
    """Continue a run and pass Ctrl-C on to it; show it live unless the output is JSON."""
    if as_json:
        with Interrupts(requests_to(run), _say, lambda: None).handled():
            return run.resume(**how)
    display = LiveDisplay(run)
    with display.shown(bench), Interrupts(requests_to(run), display.say, display.stop).handled():
        return run.resume(watch=display.watch, **how)


def end(run: Run, *, as_json: bool, **more: Any) -> None:
    """Print how a run ended; exit with 3 if it failed. `more` is added to the JSON output."""
    report(run, as_json=as_json, **more)
    if run.status is ExecutionStatus.FAILED:
        sys.exit(WORK_FAILED)


def _say(text: str) -> None:
    echo(text, err=True)


def report(run: Run, *, as_json: bool, **more: Any) -> None:
    """Print how a run ended or why it waits, as text or as JSON."""
    view = run.view()
    if as_json:
        print_json({**outcome(view), **more})
        return
    echo(advice(view))
    if view.execution.status is ExecutionStatus.COMPLETED:
        echo_state(more.get("state", view.state))


def outcome(view: RunView) -> dict[str, Any]:
    """Return the status of a run for programs."""
    execution = view.execution
    return {
        "run": execution.id,
        "workflow": execution.workflow_name,
        "status": execution.status.value,
        "state": view.state,
        "error": None if execution.failure is None else f"{execution.failure.type}: {execution.failure.message}",
        "waiting": None if execution.pause is None else execution.pause.reason,
        "question": None if execution.pause is None else execution.pause.question,
    }


def advice(view: RunView) -> str:
    """Return the status of a run and the next command to type, in a sentence or two."""
    if view.execution.is_thread:
        return f"This is a LangGraph thread: to continue it, invoke its graph with thread_id {view.id!r}."
    return _advice(view, view.execution)


def _advice(view: RunView, execution: Execution) -> str:
    match execution.status:
        case ExecutionStatus.FAILED if execution.failure is not None:
            why = f"{execution.failure.type}: {execution.failure.message}"
            return f"Failed: {why}\nContinue from the last good step with `wtb resume {view.id}`."
        case ExecutionStatus.PAUSED if execution.pause is not None and execution.pause.question:
            question = execution.pause.question
            schema = question.get("schema")
            choices = "|".join(map(str, schema)) if schema and isinstance(schema, list) else "…"
            return f"{question['question']}\nAnswer with `wtb resume {view.id} --answer {choices}`."
        case ExecutionStatus.PAUSED if execution.pause is not None:
            return f"Paused: {execution.pause.reason}. Continue with `wtb resume {view.id}`."
        case ExecutionStatus.PENDING:
            return f"Not started yet. Start it with `wtb resume {view.id}`."
        case ExecutionStatus.COMPLETED:
            return f"Completed: {'; '.join(view.notes)}." if view.notes else "Completed."
    is_half_done = execution.status is ExecutionStatus.ROLLING_BACK
    return ways_on(view) if is_half_done else f"{execution.status.value.capitalize()}."


def read_input(given: str | None) -> dict[str, Any]:
    """Read the input from a JSON object or from @file.json."""
    if given is None:
        return {}
    try:
        text = Path(given[1:]).read_text() if given.startswith("@") else given
    except (OSError, ValueError) as error:
        raise InvalidInput(f"--input cannot be read: {error}") from error
    try:
        value = read_json(text, "--input")
    except InvalidInput as error:
        raise InvalidInput(f'{error}; give an object, such as \'{{"question": "…"}}\', or @file.json') from error
    if not isinstance(value, dict):
        raise InvalidInput(f"--input must be a JSON object, not a {type(value).__name__}")
    return value


def read_setting(item: str) -> tuple[str, Any]:
    """Read the key and the value from KEY=VALUE."""
    key, equals, value = item.partition("=")
    if not equals or not key:
        raise InvalidInput(f"--set takes KEY=VALUE, not {item!r}")
    return key, read_value(value, f"--set {key}")


def read_variants(items: Sequence[str]) -> dict[str, str]:
    """Read the variant of each node from several NODE=NAME."""
    pairs = [item.partition("=") for item in items]
    wrong = [item for item, (node, equals, name) in zip(items, pairs, strict=True) if not (node and equals and name)]
    if wrong:
        raise InvalidInput(f"--variant takes NODE=NAME, not {wrong[0]!r}")
    return {node: name for node, _, name in pairs}


def read_value(text: str, what: str) -> Any:
    """Return the value if the text is JSON, else the text itself; refuse JSON that is too large."""
    try:
        return read_json(text, what)
    except InvalidInput as error:
        if isinstance(error.__cause__, json.JSONDecodeError):
            return text
        raise
