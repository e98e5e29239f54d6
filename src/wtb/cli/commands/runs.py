"""`wtb run`, `resume`, `pause`, `stop`: begin runs, go on with them, and end them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from wtb.application.queries.views import RunView
from wtb.bench import Bench
from wtb.cli.interrupts import Interrupts, requests_to
from wtb.cli.output import as_json, echo, echo_state, example, print_json, show, url
from wtb.cli.views.half_done import ways_on
from wtb.cli.views.live import LiveDisplay
from wtb.domain.errors import InvalidInput
from wtb.domain.execution import THREAD, Execution, ExecutionStatus
from wtb.domain.options import Keep, OnFailure
from wtb.infrastructure.json_text import read_json
from wtb.loading import load_workflow
from wtb.runs import Run

FAILED = 3
"""Exit code of a run that finished with a failure."""

variant_option = click.option(
    "--variant", "variants", metavar="NODE=NAME", multiple=True, help="Run this variant of a node; may be repeated."
)


@click.command()
@click.argument("workflow", metavar="WORKFLOW")
@click.option("--input", "given", metavar="JSON|@FILE", help="The input: a JSON object, or @file.json.")
@click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True, help="One key of the input; VALUE is JSON or text."
)
@variant_option
@click.option("--run-id", metavar="ID", help="The id of the new run; a reused one is refused.")
@click.option("--break-before", metavar="NODE", multiple=True, help="Pause before this node.")
@click.option("--break-after", metavar="NODE", multiple=True, help="Pause after this node.")
@click.option("--max-steps", type=int, default=1_000, show_default=True, help="Stop endless loops.")
@click.option("--timeout-s", type=float, help="Fail a run that takes longer.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of ctx.rng and ctx.seed.")
@click.option(
    "--checkpoints",
    type=click.Choice([keep.value for keep in Keep]),
    default=Keep.EVERY_NODE.value,
    show_default=True,
    help="Which checkpoints are kept after the end; until then all are.",
)
@click.option("--fine-grained", is_flag=True, help="Make checkpoints at calls of tools too.")
@click.option(
    "--checkpoint-failure",
    type=click.Choice([choice.value for choice in OnFailure]),
    help="Whether a checkpoint that cannot be written ends the run; as the settings say by default.",
)
@click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder whose files the run begins with; it is copied.",
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
    """Run WORKFLOW: file.py[:flow], module:flow or flow.json.

    Ctrl-C pauses at the end of the step, a second one stops the run for good, a third one ends the process.
    Exits with 3 when the run failed.
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
@click.option("--workflow", metavar="WORKFLOW", help="Where the workflow is now, if not where it was.")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Overwrite a key of the state first.")
@variant_option
@click.option("--answer", metavar="JSON|TEXT", help="The answer to the question that the run waits for.")
@click.option("--rerun-node", is_flag=True, help="Undo what can be undone of the node that was begun; begin it afresh.")
@click.option("--strict", is_flag=True, help="Refuse to go on with a workflow that has changed since the run began.")
@click.option(
    "--take-over",
    is_flag=True,
    help="Take the run from a process that has ended, but whose lease a wrong clock has put far into the future.",
)
@click.option("--break-before", metavar="NODE", multiple=True, help="Replace the breakpoints before nodes.")
@click.option("--break-after", metavar="NODE", multiple=True, help="Replace the breakpoints after nodes.")
@click.option("--max-steps", type=int, help="Replace the limit of steps.")
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
    max_steps: int | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Go on with a run that is paused, has failed, or whose process is gone.

    RUN is the id, or as much of its beginning as no other run has. Ctrl-C works as in `wtb run`. Exits with 3 when the
    run failed.
    """
    with Bench(url) as bench:
        found = Run(bench, bench.get(run_id).id, load_workflow(workflow) if workflow else None)
        options: dict[str, Any] = {"rerun_node": rerun_node, "strict": strict, "take_over": take_over}
        if break_before:
            options["break_before"] = break_before
        if break_after:
            options["break_after"] = break_after
        if max_steps is not None:
            options["max_steps"] = max_steps
        if variants:
            options["variants"] = {**found.execution.options.get("variants", {}), **read_variants(variants)}
        update = dict(read_setting(item) for item in settings)
        options["answer"] = None if answer is None else _value(answer, "--answer")
        end(drive(bench, found, as_json=as_json, update=update, **options), as_json=as_json)


@click.command()
@click.argument("run_id", metavar="RUN")
@url
@as_json
@example("wtb pause first")
def pause(run_id: str, url: str | None, as_json: bool) -> None:
    """Ask a running run, in whichever process, to pause at its next step boundary.

    A run whose process is gone is paused at once.
    """
    _request(url, run_id, "pause", as_json=as_json)


@click.command()
@click.argument("run_id", metavar="RUN")
@url
@as_json
@example("wtb stop first")
def stop(run_id: str, url: str | None, as_json: bool) -> None:
    """Ask a running run to stop for good at its next step boundary.

    A run that nobody runs (paused, failed, or its process is gone) is stopped at once.
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
    text = f"{run.id} will {request} at the end of its step." if waits else f"{run.id} is {status} now."
    show({"run": run.id, "requested": request, "status": status.value}, text, as_json=as_json)


def drive(bench: Bench, run: Run, *, as_json: bool, **how: Any) -> Run:
    """Go on with a run, shown live unless a program looks on; Ctrl-C reaches it."""
    if as_json:
        with Interrupts(requests_to(run), _say, lambda: None).handled():
            return run.resume(**how)
    display = LiveDisplay(run)
    with display.shown(bench), Interrupts(requests_to(run), display.say, display.stop).handled():
        return run.resume(watch=display.watch, **how)


def end(run: Run, *, as_json: bool, **more: Any) -> None:
    """Print how a run ended, for programs with more facts; exit with 3 when it failed."""
    report(run, as_json=as_json, **more)
    if run.status is ExecutionStatus.FAILED:
        sys.exit(FAILED)


def _say(text: str) -> None:
    echo(text, err=True)


def report(run: Run, *, as_json: bool, **more: Any) -> None:
    """Print how a run ended or why it waits, for people or as JSON."""
    view = run.view()
    if as_json:
        print_json({**outcome(view), **more})
        return
    echo(advice(view))
    if view.execution.status is ExecutionStatus.COMPLETED:
        echo_state(more.get("state", view.state))


def outcome(view: RunView) -> dict[str, Any]:
    """Return how a run stands, for programs."""
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
    """Return how a run stands and what to do about it, in a sentence or two."""
    if view.execution.workflow_name == THREAD:
        return f"A LangGraph thread: its graph goes on with it when it is invoked with thread_id {view.id!r}."
    return _advice(view, view.execution)


def _advice(view: RunView, execution: Execution) -> str:
    match execution.status:
        case ExecutionStatus.FAILED if execution.failure is not None:
            why = f"{execution.failure.type}: {execution.failure.message}"
            return f"Failed: {why}\nGo on from the last good step with `wtb resume {view.id}`."
        case ExecutionStatus.PAUSED if execution.pause is not None and execution.pause.question:
            question = execution.pause.question
            schema = question.get("schema")
            choices = "|".join(map(str, schema)) if schema and isinstance(schema, list) else "…"
            return f"{question['question']}\nAnswer with `wtb resume {view.id} --answer {choices}`."
        case ExecutionStatus.PAUSED if execution.pause is not None:
            return f"Paused: {execution.pause.reason}. Go on with `wtb resume {view.id}`."
        case ExecutionStatus.PENDING:
            return f"Not begun yet. Begin with `wtb resume {view.id}`."
        case ExecutionStatus.COMPLETED:
            return f"Completed: {'; '.join(view.notes)}." if view.notes else "Completed."
    is_half_done = execution.status is ExecutionStatus.ROLLING_BACK
    return ways_on(view) if is_half_done else f"{execution.status.value.capitalize()}."


def read_input(given: str | None) -> dict[str, Any]:
    """Return the input that was given as a JSON object or as @file.json."""
    if given is None:
        return {}
    try:
        text = Path(given[1:]).read_text() if given.startswith("@") else given
    except (OSError, ValueError) as error:
        raise InvalidInput(f"--input cannot be read: {error}") from error
    try:
        value = read_json(text, "--input")
    except InvalidInput as error:
        raise InvalidInput(f'{error}; give an object, as \'{{"question": "…"}}\', or @file.json') from error
    if not isinstance(value, dict):
        raise InvalidInput(f"--input must be a JSON object, not a {type(value).__name__}")
    return value


def read_setting(item: str) -> tuple[str, Any]:
    """Return the key and the value of KEY=VALUE."""
    key, equals, value = item.partition("=")
    if not equals or not key:
        raise InvalidInput(f"--set takes KEY=VALUE, not {item!r}")
    return key, _value(value, f"--set {key}")


def read_variants(items: Sequence[str]) -> dict[str, str]:
    """Return the variant of each node, of several NODE=NAME."""
    pairs = [item.partition("=") for item in items]
    wrong = [item for item, (node, equals, name) in zip(items, pairs, strict=True) if not (node and equals and name)]
    if wrong:
        raise InvalidInput(f"--variant takes NODE=NAME, not {wrong[0]!r}")
    return {node: name for node, _, name in pairs}


def _value(text: str, what: str) -> Any:
    """Return JSON where the text is JSON, else the text itself; JSON that is too large is refused."""
    try:
        return read_json(text, what)
    except InvalidInput as error:
        if isinstance(error.__cause__, json.JSONDecodeError):
            return text
        raise
