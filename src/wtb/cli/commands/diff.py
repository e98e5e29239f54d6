"""`wtb diff`: the differences between two checkpoints in state, files and tool calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click
from rich.text import Text

from wtb.bench import Bench
from wtb.cli.commands.files import readable
from wtb.cli.output import Terminal, as_json, cut, example, moment, print_json, size, text_of, url
from wtb.domain.alignment import unified
from wtb.domain.checkpoint import Checkpoint
from wtb.domain.diff import CallDiff, CheckpointDiff, DiffKind, FileDiff, StateDiff
from wtb.domain.display import counted
from wtb.domain.errors import InvalidInput
from wtb.domain.files import EntryKind, FileEntry
from wtb.domain.printable import printable
from wtb.domain.state import MISSING
from wtb.domain.tools import CallKind, CallStatus
from wtb.domain.values import legible
from wtb.loading import load_workflow

_LONGEST = 160
"""Longest value, in characters, that people see."""
_LONGEST_PAIR = 80
"""Longest old and new value together, in characters, that fit into one line."""
_LONGEST_LINE = 1_000
_MOST_LINES = 400
"""How many lines of one file, or of one text in the state, people see."""

_STYLES = {DiffKind.ADDED: "green", DiffKind.REMOVED: "red"}
_MARKS = {DiffKind.ADDED: "+", DiffKind.REMOVED: "-"}
_LINES = {"+": "green", "-": "red", "@": "cyan"}
_NOUNS = {"state": "value", "files": "file", "calls": "call"}


@click.command()
@click.argument("run_id", metavar="RUN")
@click.argument("a", metavar="A")
@click.argument("b", metavar="[B]", required=False)
@click.option("--stat", is_flag=True, help="Show only how many values, files and calls differ.")
@click.option("--state-only", is_flag=True, help="Compare only the state.")
@click.option("--files-only", is_flag=True, help="Compare only the files.")
@click.option("--workflow", metavar="WORKFLOW", help="Load this workflow first, if the state holds your own classes.")
@url
@as_json
@example(
    "wtb diff first 3 7", "wtb diff first draft#1 draft#2 --files-only", "wtb diff first answer second@answer --stat"
)
def diff(
    *,
    run_id: str,
    a: str,
    b: str | None,
    stat: bool,
    state_only: bool,
    files_only: bool,
    workflow: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Show what changed between checkpoints A and B: state, files, and the tool calls in between.

    A and B are step numbers, nodes (the latest visit), node#2 (the second visit), names, or the start of an id. Without
    B, A is compared with the head. RUN@CHECKPOINT names a checkpoint of another run, and RUN@ its head.
    """
    if state_only and files_only:
        raise InvalidInput("give only one of --state-only and --files-only; together they leave nothing to compare")
    parts = {"state": not files_only, "files": not state_only, "calls": not (state_only or files_only)}
    if workflow:
        load_workflow(workflow)
    with Bench(url) as bench:
        found = bench.get(run_id).diff(a, b, texts=not stat, objects=False, **parts)
    shown = [name for name, wanted in parts.items() if wanted]
    if as_json:
        print_json(_data(found, shown, stat=stat))
        return
    console = Terminal.whole_lines(soft_wrap=True)
    for line in _lines(found, shown, stat=stat):
        console.print(line)


def _data(found: CheckpointDiff, shown: list[str], *, stat: bool) -> dict[str, Any]:
    """Return the diff for programs; with `stat`, only the counts."""
    data = found.to_dict()
    data["counts"] = {name: data["counts"][name] for name in shown}
    return {key: value for key, value in data.items() if key not in _NOUNS or (key in shown and not stat)}


def _lines(found: CheckpointDiff, shown: list[str], *, stat: bool) -> Iterator[Text]:
    yield Text.assemble(("--- ", "red"), _title(found.old, found.new))
    yield Text.assemble(("+++ ", "green"), _title(found.new, found.old))
    if not stat:
        yield from _part("State", (line for item in found.state for line in _state_lines(item)))
        yield from _part("Files", (line for item in found.files for line in _file_lines(item)))
        yield from _part("Calls", (_call_line(item) for item in found.calls))
        yield Text()
    for name in shown:
        yield Text(_count(_NOUNS[name], found.counts[name]))


def _title(checkpoint: Checkpoint, other: Checkpoint) -> str:
    run = f"{checkpoint.execution_id} " if checkpoint.execution_id != other.execution_id else ""
    node = f" {checkpoint.node}#{checkpoint.visit}" if checkpoint.node else f" {checkpoint.trigger}"
    name = f" {printable(repr(checkpoint.name))}" if checkpoint.name else ""
    return f"{run}step {checkpoint.step}{node}{name}, {moment(checkpoint.created_at)}, {checkpoint.id[:18]}"


def _part(title: str, lines: Iterator[Text]) -> Iterator[Text]:
    for number, line in enumerate(lines):
        if not number:
            yield Text()
            yield Text(title, "bold")
        yield line


def _state_lines(item: StateDiff) -> Iterator[Text]:
    path = printable(item.path)
    if item.kind is DiffKind.CHANGED and _is_long_text(item.old) and _is_long_text(item.new):
        yield Text(f"~ {path}", "yellow")
        yield from _text_lines(unified(item.old, item.new))
        return
    values = [_short(value) for value in (item.old, item.new) if value is not MISSING]
    title = f"{_MARKS.get(item.kind, '~')} {path}"
    if item.kind is not DiffKind.CHANGED or sum(map(len, values)) <= _LONGEST_PAIR:
        yield Text(f"{title}  {' → '.join(values)}", _STYLES.get(item.kind, "yellow"))
        return
    yield Text(title, "yellow")
    yield Text(f"    -{values[0]}", "red")
    yield Text(f"    +{values[1]}", "green")


def _is_long_text(value: Any) -> bool:
    return isinstance(value, str) and "\n" in value


def _short(value: Any) -> str:
    return printable(cut(_message(legible(value)) or text_of(value), _LONGEST))


def _message(value: Any) -> str | None:
    """Return a message of a conversation by what it says and calls; None for any other value."""
    name = value.get("class") if isinstance(value, dict) else None
    if not isinstance(name, str) or not name.startswith("langchain_core.messages"):
        return None
    calls = [f"{call.get('name')}({call.get('args')})" for call in value.get("tool_calls") or ()]
    said = [text_of(value["content"])] if value.get("content") else []
    return f"{name.rpartition('.')[2]} {', '.join(said + calls) or repr('')}"


def _file_lines(item: FileDiff) -> Iterator[Text]:
    sides = " → ".join(_side(entry) for entry in (item.old, item.new) if entry is not None)
    mark = _MARKS.get(item.kind, "~")
    how = f"  {item.kind}" if item.kind in (DiffKind.MODE_CHANGED, DiffKind.KIND_CHANGED) else ""
    if item.files and item.text is None and not how:
        how = "  binary or large"
    yield Text(f"{mark} {printable(readable(item.path))}{how}  {sides}", _STYLES.get(item.kind, "yellow"))
    yield from _text_lines(item.text[2:] if item.text else [])


def _side(entry: FileEntry) -> str:
    match entry.kind:
        case EntryKind.FILE:
            return f"{size(entry.size)} {entry.mode:04o} {entry.digest.hex()[:8]}"
        case EntryKind.LINK:
            return f"link to {printable(readable(entry.target))}"
    return f"folder {entry.mode:04o}"


def _text_lines(lines: list[str] | tuple[str, ...]) -> Iterator[Text]:
    for line in lines[:_MOST_LINES]:
        yield Text(f"    {printable(cut(line, _LONGEST_LINE))}", _LINES.get(line[:1], ""))
    if len(lines) > _MOST_LINES:
        yield Text(f"    … {len(lines) - _MOST_LINES:,} more lines; --json has all", "dim")


def _call_line(item: CallDiff) -> Text:
    call = item.call
    given = {"question": call.arguments.get("question")} if call.kind is CallKind.ASK else call.arguments
    arguments = ", ".join(f"{name}={_short(value)}" for name, value in given.items())
    result = {CallStatus.SUCCEEDED: f" → {_short(call.result)}", CallStatus.FAILED: f" failed: {call.error}"}
    outcome = result.get(call.status, f" ({call.status})")
    line = f"{_MARKS[item.kind]} {item.node}#{item.visit}  {call.tool}({arguments}){outcome}"
    return Text(printable(line), _STYLES[item.kind])


def _count(noun: str, counts: Mapping[str, int]) -> str:
    if not counts:
        return f"No {noun}s differ."
    return f"{counted(sum(counts.values()), noun)}: {', '.join(f'{count:,} {kind}' for kind, count in counts.items())}"
