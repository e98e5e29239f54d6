"""`wtb run`, `resume`, `pause`, `stop`: begin runs, go on with them, and end them."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from wtb.bench import Bench, Run
from wtb.cli.output import as_json, show, url
from wtb.domain.errors import InvalidInput
from wtb.domain.events import EventType, RecordedEvent
from wtb.domain.execution import ExecutionStatus
from wtb.flow import load_workflow

FAILED = 3
"""Exit code of a run that finished with a failure."""

_SHOWN = (EventType.NODE_COMPLETED, EventType.NODE_FAILED, EventType.NODE_RETRIED)


@click.command()
@click.argument("workflow", metavar="WORKFLOW")
@click.option("--input", "given", metavar="JSON|@FILE", help="The input: a JSON object, or @file.json.")
@click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True, help="One key of the input; VALUE is JSON or text."
)
@click.option("--run-id", metavar="ID", help="The id of the new run; a reused one is refused.")
@click.option("--break-before", metavar="NODE", multiple=True, help="Pause before this node.")
@click.option("--break-after", metavar="NODE", multiple=True, help="Pause after this node.")
@click.option("--max-steps", type=int, default=1_000, show_default=True, help="Stop endless loops.")
@click.option("--timeout-s", type=float, help="Fail a run that takes longer.")
@url
@as_json
def run(
    *,
    workflow: str,
    given: str | None,
    settings: tuple[str, ...],
    run_id: str | None,
    break_before: tuple[str, ...],
    break_after: tuple[str, ...],
    max_steps: int,
    timeout_s: float | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Run WORKFLOW: file.py[:flow], module:flow or flow.json."""
    flow = load_workflow(workflow)
    state = {**_input(given), **dict(_setting(item) for item in settings)}
    with Bench(url) as bench:
        made = bench.create(
            flow,
            state,
            run_id=run_id,
            break_before=break_before,
            break_after=break_after,
            max_steps=max_steps,
            timeout_s=timeout_s,
        )
        _drive(bench, made, as_json=as_json)


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--workflow", metavar="WORKFLOW", help="Where the workflow is now, if not where it was.")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Overwrite a key of the state first.")
@click.option("--answer", metavar="JSON|TEXT", help="The answer to the question that the run waits for.")
@click.option("--rerun-node", is_flag=True, help="Undo what can be undone of the node that was begun; begin it afresh.")
@click.option("--break-before", metavar="NODE", multiple=True, help="Replace the breakpoints before nodes.")
@click.option("--break-after", metavar="NODE", multiple=True, help="Replace the breakpoints after nodes.")
@click.option("--max-steps", type=int, help="Replace the limit of steps.")
@url
@as_json
def resume(
    *,
    run_id: str,
    workflow: str | None,
    settings: tuple[str, ...],
    answer: str | None,
    rerun_node: bool,
    break_before: tuple[str, ...],
    break_after: tuple[str, ...],
    max_steps: int | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Go on with a run that is paused, has failed, or whose process is gone."""
    with Bench(url) as bench:
        found = Run(bench, bench.get(run_id).id, load_workflow(workflow) if workflow else None)
        options: dict[str, Any] = {"rerun_node": rerun_node}
        if break_before:
            options["break_before"] = break_before
        if break_after:
            options["break_after"] = break_after
        if max_steps is not None:
            options["max_steps"] = max_steps
        update = dict(_setting(item) for item in settings)
        _drive(
            bench, found, as_json=as_json, update=update, answer=None if answer is None else _value(answer), **options
        )


@click.command()
@click.argument("run_id", metavar="RUN")
@url
@as_json
def pause(run_id: str, url: str | None, as_json: bool) -> None:
    """Ask a running run, in whichever process, to pause at its next step boundary."""
    with Bench(url) as bench:
        bench.get(run_id).pause()
        show({"run": run_id, "requested": "pause"}, f"{run_id} will pause at its next step.", as_json=as_json)


@click.command()
@click.argument("run_id", metavar="RUN")
@url
@as_json
def stop(run_id: str, url: str | None, as_json: bool) -> None:
    """Ask a running run to stop for good at its next step boundary."""
    with Bench(url) as bench:
        bench.get(run_id).stop()
        show({"run": run_id, "requested": "stop"}, f"{run_id} will stop at its next step.", as_json=as_json)


def _drive(bench: Bench, run: Run, *, as_json: bool, **how: Any) -> None:
    console = Console(stderr=True)
    if not as_json:
        console.print(f"run {run.id}", highlight=False)
        bench.subscribe(_SHOWN, lambda event: console.print(_line(event), highlight=False))
    with _interruptible(run):
        run = run.resume(**how)
    bench.services.bus.flush(5)
    report(run, as_json=as_json)
    if run.status is ExecutionStatus.FAILED:
        sys.exit(FAILED)


@contextmanager
def _interruptible(run: Run) -> Iterator[None]:
    """Let the first Ctrl-C pause the run at the step boundary, and the second stop it."""

    def handle(number: int, frame: object) -> None:
        run.pause()
        click.echo("Pausing at the next step; Ctrl-C again stops.", err=True)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _line(event: RecordedEvent) -> str:
    mark = {EventType.NODE_COMPLETED: "✓", EventType.NODE_FAILED: "✗", EventType.NODE_RETRIED: "↻"}[event.type]
    visit = f"#{event.data['visit']}" if event.data["visit"] > 1 else ""
    error = f"  {event.data['error']}" if "error" in event.data else ""
    usage = event.data.get("usage")
    used = f"  {usage['input_tokens']}+{usage['output_tokens']} tokens, ${usage['cost_usd']:.4f}" if usage else ""
    return f"  {mark} {event.data['node']}{visit}{used}{error}"


def report(run: Run, *, as_json: bool) -> None:
    """Print how a run stands, for people or as JSON."""
    execution = run.execution
    result = {
        "run": run.id,
        "workflow": execution.workflow_name,
        "status": execution.status.value,
        "state": run.state,
        "error": None if execution.failure is None else f"{execution.failure.type}: {execution.failure.message}",
        "waiting": None if execution.pause is None else execution.pause.reason,
        "question": None if execution.pause is None else execution.pause.question,
    }
    if as_json:
        click.echo(json.dumps(result, default=str))
        return
    click.echo(_sentence(run.id, result))
    if execution.status is ExecutionStatus.COMPLETED:
        click.echo(json.dumps(result["state"], indent=2, default=str, ensure_ascii=False))


def _sentence(run_id: str, result: Mapping[str, Any]) -> str:
    match result["status"]:
        case "failed":
            return f"Failed: {result['error']}\nGo on from the last good step with `wtb resume {run_id}`."
        case "paused" if result["question"]:
            return f"{result['question']['question']}\nAnswer with `wtb resume {run_id} --answer …`."
        case "paused":
            return f"Paused: {result['waiting']}. Go on with `wtb resume {run_id}`."
    return f"{result['status'].capitalize()}."


def _input(given: str | None) -> dict[str, Any]:
    if given is None:
        return {}
    try:
        text = Path(given[1:]).read_text() if given.startswith("@") else given
        value = json.loads(text)
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f'--input is no JSON: {error}; give an object, as \'{{"question": "…"}}\', or @file.json'
        ) from error
    if not isinstance(value, dict):
        raise InvalidInput(f"--input must be a JSON object, not a {type(value).__name__}")
    return value


def _setting(item: str) -> tuple[str, Any]:
    key, equals, value = item.partition("=")
    if not equals or not key:
        raise InvalidInput(f"--set takes KEY=VALUE, not {item!r}")
    return key, _value(value)


def _value(text: str) -> Any:
    """Return JSON where the text is JSON, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
