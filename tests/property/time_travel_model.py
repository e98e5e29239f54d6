"""Runs as a plain model sees them: every checkpoint is a full copy of state, files and the calls on the way to it.

What a run does is part of its state, as a list of steps with the actions of each node, so that the model can say
beforehand what will happen: which calls are made, which answer from the record, where the run stops.
"""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import wtb
from tests.workspaces import Description
from wtb.domain.tools import ToolCall
from wtb.testing.fakes import CrashPoints

NODES = ("work", "spread", "left", "right", "after")
MEMBERS = ("left", "right")

Action = list[Any]
"""["call", tool], ["bad"], ["file", verb, …], ["mark"], ["ask"] or ["fail"]."""

_numbers = itertools.count(1)


class Refused(Exception):
    """What a node and a tool fail with."""


class World:
    """The world outside: what tools have done and not undone. No call may ever be in effect twice."""

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()
        self.log: list[str] = []
        self.closed: set[str] = set()
        """Calls that cannot be taken back just now."""
        self.failing = False
        """Whether nodes fail that can."""
        self.points = CrashPoints(lambda: None)
        number = next(_numbers)
        self.tools = {
            "open": wtb.tool(name=f"machine-open-{number}", reverse=self.undo)(self.do),
            "book": wtb.tool(name=f"machine-book-{number}", reverse=self.undo, confirm=self.confirm)(self.do),
            "send": wtb.tool(name=f"machine-send-{number}")(self.do),
        }
        self.bad = wtb.tool(name=f"machine-bad-{number}")(self.refuse)

    def do(self, title: str) -> str:
        self.points.reach("before an effect")
        self.effects[title] += 1
        self.log.append(f"+{title}")
        self.points.reach("after an effect")
        return f"#{title}"

    def undo(self, call: ToolCall) -> None:
        title = call.arguments["title"]
        if title in self.closed:
            raise Refused(title)
        self.points.reach("before a reversal")
        self.effects[title] -= 1
        self.log.append(f"-{title}")
        self.points.reach("after a reversal")

    def confirm(self, call: ToolCall) -> str | None:
        title = call.arguments["title"]
        return f"#{title}" if self.effects[title] else None

    def refuse(self, title: str) -> None:
        raise Refused(title)


def make_flow(world: World) -> wtb.Workflow:
    """Return a workflow whose nodes do what the state says."""
    flow = wtb.Workflow("actions")

    def act(state: Any, ctx: Any) -> None:
        node = ctx.run.node
        folder = ctx.workspace
        for number, (verb, *rest) in enumerate(actions_of(state, node)):
            title = f"{ctx.run.id} {label(state, node, number)}"
            match verb:
                case "call":
                    ctx.tool(world.tools[rest[0]], title=title, key=str(number))
                case "bad":
                    with suppress(Refused):
                        ctx.tool(world.bad, title=title, key=str(number))
                case "file":
                    change_folder(folder, rest)
                case "mark":
                    ctx.checkpoint(f"mark {number}")
                case "ask":
                    ctx.ask(f"question {number}")
                case "fail" if world.failing:
                    raise Refused(title)

    def work(state: Any, ctx: Any) -> dict[str, Any]:
        act(state, ctx)
        return update_of(state, "work")

    def member(state: Any, ctx: Any) -> dict[str, Any]:
        act(state, ctx)
        return {"log": ctx.run.node}

    flow.reducer("log", wtb.append)
    flow.add_node("work", work, start=True)
    flow.add_node("spread", lambda state: None)
    for name in MEMBERS:
        flow.add_node(name, member)
        flow.edge("spread", name)
    flow.add_node("after", lambda state: None)
    flow.edge(list(MEMBERS), "after")
    flow.edge("work", "spread", when="spreads")
    for name in ("work", "after"):
        flow.edge(name, "work", when="n < size(plan)")
        flow.edge(name, wtb.END, otherwise=True)
    return flow


def actions_of(state: Any, node: str) -> list[Action]:
    """Return what a node does with this state."""
    number = state["n"] - (0 if node == "work" else 1)
    return list(state["plan"][number][node]) if node in ("work", *MEMBERS) else []


def label(state: Any, node: str, number: int) -> str:
    return f"{state['n']}/{node}/{number}"


def update_of(state: Any, node: str) -> dict[str, Any]:
    if node in MEMBERS:
        return {"log": node}
    if node != "work":
        return {}
    return {"n": state["n"] + 1, "log": "work", "spreads": bool(state["plan"][state["n"]]["left"])}


def content(text: str) -> bytes:
    """Return what is written; some of it is too large for the database."""
    return text.encode() * (10_000 if text == "large" else 1)


def change_folder(folder: Path, change: Sequence[Any]) -> None:
    """Make one change to real files."""
    verb, path, *rest = change
    place = folder / path
    if verb == "chmod":
        if place.exists() and not place.is_symlink() and not place.parent.is_symlink():
            place.chmod(rest[0] | 0o500 if place.is_dir() else rest[0])
        return
    if verb == "rename":
        if not place.exists() and not place.is_symlink():
            return
        make_way(folder, rest[0])
        place.rename(folder / rest[0])
        return
    make_way(folder, path)
    match verb:
        case "write":
            place.write_bytes(content(rest[0]))
            place.chmod(rest[1])
        case "link":
            place.symlink_to(rest[0])
        case "folder":
            place.mkdir()
            place.chmod(rest[0])


def make_way(folder: Path, path: str) -> None:
    parent, place = (folder / path).parent, folder / path
    if parent != folder:
        if parent.is_symlink() or not parent.is_dir():
            parent.unlink(missing_ok=True)
            parent.mkdir()
        parent.chmod(0o755)
    if place.is_symlink() or place.is_file():
        place.unlink()
    elif place.is_dir():
        shutil.rmtree(place)


def changed(files: Description, change: Sequence[Any]) -> Description:
    """Return the description of a folder after one change."""
    verb, path, *rest = change
    files = dict(files)
    if verb == "chmod":
        if files.get(path, ("->",))[0] != "->":
            files[path] = (rest[0] | (0o500 if len(files[path]) == 1 else 0), *files[path][1:])
        return files
    if verb == "rename":
        if path in files:
            moved = {place: files.pop(place) for place in list(files) if f"{place}/".startswith(f"{path}/")}
            files = way_made(files, rest[0])
            files |= {rest[0] + place[len(path) :]: entry for place, entry in moved.items()}
        return files
    files = way_made(files, path)
    match verb:
        case "write":
            files[path] = (rest[1], content(rest[0]))
        case "link":
            files[path] = ("->", rest[0])
        case "folder":
            files[path] = (rest[0],)
    return files


def way_made(files: Description, path: str) -> Description:
    parent = path.rpartition("/")[0]
    files = {place: entry for place, entry in files.items() if not f"{place}/".startswith(f"{path}/")}
    if parent:
        files[parent] = (0o755,)
    return files


@dataclass(eq=False)
class Call:
    """One call that was made; a run that begins in the middle of a node has those of the run before it."""

    label: str
    tool: str
    run: str
    title: str = ""
    active: bool = True


Records = dict[int, Call | str]
"""What a run of a node has on record, by the number of the action."""


@dataclass(frozen=True, kw_only=True)
class Copy:
    """A checkpoint: everything that belongs to it."""

    trigger: str
    state: dict[str, Any]
    files: Description
    calls: tuple[Call, ...] = ()
    path: tuple[tuple[str, int], ...] = ()
    next: tuple[str, ...] = ()
    base: Description = field(default_factory=dict)
    """The files that the node began with which it lies in."""
    began_with: tuple[Call, ...] = ()
    records: Records | None = None
    """What the node has on record which it lies in; None when it lies in none."""
    run: str = ""
    node: str | None = None

    def inherited(self) -> Records:
        """Return what a run of the node that begins here has on record."""
        found = (self.records or {}).items()
        return {number: entry for number, entry in found if not isinstance(entry, Call) or entry.active}


@dataclass(eq=False)
class OpenRun:
    """A run of a node that was begun and has not led on."""

    records: Records
    done: bool = False


@dataclass(eq=False)
class Undone:
    """What a rollback has left, and where it went."""

    head: str
    goal: str
    open: dict[str, OpenRun]
    calls: tuple[Call, ...]


@dataclass(eq=False)
class ModelRun:
    """One run."""

    id: str
    head: str
    fine: bool
    origin: str | None = None
    status: str = "pending"
    open: dict[str, OpenRun] = field(default_factory=dict)
    asked: tuple[str, int] | None = None
    undone: list[Undone] = field(default_factory=list)
    """What redo goes back to, the latest last."""

    def calls(self, copies: dict[str, Copy]) -> list[Call]:
        """Return the calls on the way to where it stands, those of open runs of nodes included."""
        found = list(copies[self.head].calls)
        for begun in self.open.values():
            found += [entry for entry in begun.records.values() if isinstance(entry, Call) and entry not in found]
        return found


@dataclass
class Forecast:
    """What one superstep will do."""

    copies: list[Copy] = field(default_factory=list)
    made: list[Call] = field(default_factory=list)
    status: str = "paused"
    open: dict[str, OpenRun] = field(default_factory=dict)
    asked: tuple[str, int] | None = None


def foreseen(run: ModelRun, head: Copy, *, failing: bool, answered: bool) -> Forecast:
    """Return what resuming a run does that is to pause after a superstep."""
    forecast = Forecast()
    if not head.next:
        forecast.status = "completed"
        return forecast
    ends = {node: _Node(run, head, node, forecast, failing, answered).end() for node in head.next}
    if forecast.status == "paused" and forecast.asked is None:
        forecast.open = {}
        forecast.copies.append(_after(run, head, ends))
        forecast.status = "paused" if forecast.copies[-1].next else "completed"
    return forecast


class _Node:
    """One attempt of a node."""

    def __init__(self, run: ModelRun, head: Copy, node: str, forecast: Forecast, failing: bool, answered: bool) -> None:
        self._run, self._head, self._node, self._forecast, self._failing = run, head, node, forecast, failing
        known = run.open.get(node)
        if known is None and head.records is not None:
            known = OpenRun(head.inherited())
        self._begun = OpenRun({}) if known is None else OpenRun({**known.records}, known.done)
        self._files = head.files if head.records is None else head.base
        self._base = self._files
        self._began_with = head.calls if head.records is None else head.began_with
        if answered and run.asked is not None and run.asked[0] == node:
            self._begun.records[run.asked[1]] = "answer"

    def end(self) -> tuple[Description, Description, list[Call]]:
        """Go through the actions; return the files before and after, and the calls."""
        was_done, self._begun.done = self._begun.done, True
        self._forecast.open[self._node] = self._begun
        for number, action in enumerate(actions_of(self._head.state, self._node)):
            if action[0] == "file":
                self._files = changed(self._files, action[1:])
            elif not was_done and not self._goes_on(number, action):
                self._begun.done = False
                break
        return self._base, self._files, self._calls()

    def _goes_on(self, number: int, action: Action) -> bool:
        records = self._begun.records
        match action[0]:
            case "call":
                known = records.get(number)
                if not isinstance(known, Call) or not known.active:
                    self._mark("tool_start")
                    made = Call(label(self._head.state, self._node, number), action[1], self._run.id)
                    records[number] = made
                    self._forecast.made.append(made)
                    self._mark("tool_end")
            case "bad":
                self._mark("tool_start")
                self._mark("tool_end")
            case "mark" if number not in records:
                records[number] = "mark"
                self._mark("user_request", always=True)
            case "ask" if number not in records:
                self._forecast.asked = (self._node, number)
                return False
            case "fail" if self._failing:
                self._forecast.status = "failed"
                return False
        return True

    def _calls(self) -> list[Call]:
        return [entry for entry in self._begun.records.values() if isinstance(entry, Call) and entry.active]

    def _mark(self, trigger: str, *, always: bool = False) -> None:
        if (self._run.fine or always) and self._node == "work":
            self._forecast.copies.append(
                replace(
                    self._head,
                    trigger=trigger,
                    files=self._files,
                    calls=(*self._began_with, *self._calls()),
                    base=self._base,
                    began_with=self._began_with,
                    records=dict(self._begun.records),
                    run=self._run.id,
                    node=self._node,
                )
            )


def _after(run: ModelRun, head: Copy, ends: dict[str, tuple[Description, Description, list[Call]]]) -> Copy:
    """Return the checkpoint at the end of a superstep."""
    state, files = dict(head.state), dict(head.files if head.records is None else head.base)
    calls = list(head.calls if head.records is None else head.began_with)
    path = list(head.path)
    visits = Counter(node for node, _ in path)
    for node, (before, after, made) in ends.items():
        for key, value in update_of(head.state, node).items():
            state[key] = [*state.get("log", []), value] if key == "log" else value
        files = {place: entry for place, entry in files.items() if place in after or place not in before}
        files |= {place: entry for place, entry in after.items() if before.get(place) != entry}
        calls += made
        path.append((node, visits[node] + 1))
    return Copy(
        trigger="node_end",
        state=state,
        files=files,
        calls=tuple(calls),
        path=tuple(path),
        next=_next(state, tuple(ends)),
        run=run.id,
        node=next(iter(ends)),
    )


def _next(state: dict[str, Any], nodes: tuple[str, ...]) -> tuple[str, ...]:
    match nodes:
        case ("spread",):
            return MEMBERS
        case ("left", "right"):
            return ("after",)
        case ("work",) if state["spreads"]:
            return ("spread",)
    return ("work",) if state["n"] < len(state["plan"]) else ()


def kept_for(others: Iterable[ModelRun], copies: dict[str, Copy]) -> Iterator[Call]:
    """Yield the calls that forks build on."""
    for other in others:
        if other.origin is not None:
            yield from copies[other.origin].calls
