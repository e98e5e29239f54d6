"""LiveDisplay: the progress of a run; a line for each finished node, a spinner for each running one."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from wtb.bench import Bench
from wtb.cli.output import Terminal, dollars, duration, text_of
from wtb.domain.checkpoint import NodeRun
from wtb.domain.display import short
from wtb.domain.event_catalogue import NodeCompleted, NodeEmitted, NodeFailed, NodeLogged, NodeRetried
from wtb.domain.events import EventType, RecordedEvent
from wtb.runs import Run

_MARKS = {
    EventType.NODE_COMPLETED: ("✓", "green"),
    EventType.NODE_FAILED: ("✗", "red"),
    EventType.NODE_RETRIED: ("↻", "yellow"),
    EventType.NODE_EMITTED: ("·", "dim"),
    EventType.NODE_LOGGED: ("·", "dim"),
}

_displays = 0


def is_shown_live(record: logging.LogRecord) -> bool:
    """Whether a display shows this line of a node's log, so that it is not printed twice."""
    return _displays > 0 and record.name.startswith("wtb.run.")


class LiveDisplay:
    """Writes to stderr: one line per finished node; on a terminal also the running nodes and their time."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._console = Terminal(stderr=True, highlight=False, soft_wrap=True)
        self._used = run.usage
        self._running: dict[str, tuple[NodeRun, float]] = {}
        self._lock = threading.Lock()
        self._spinner = Spinner("dots", style="cyan")
        self._live = Live(
            console=self._console,
            get_renderable=self._now_running,
            refresh_per_second=10,
            transient=True,
            # Output of nodes goes above the spinner. In a pipe it must arrive unchanged.
            redirect_stdout=sys.stdout.isatty(),
        )

    @contextmanager
    def shown(self, bench: Bench) -> Iterator[None]:
        """Show the display while the block runs."""
        global _displays  # noqa: PLW0603  Python's logging belongs to the whole process
        self.say(f"run {self._run.id}")
        subscription = bench.subscribe(tuple(_MARKS), self._finished)
        if self._console.is_terminal:
            self._live.start()
        _displays += 1
        try:
            yield
        finally:
            _displays -= 1
            bench.services.bus.flush(5)
            subscription.cancel()
            self.stop()
            if subscription.dropped:
                self.say(f"  … {subscription.dropped} lines came too fast to show")

    def stop(self) -> None:
        """Remove the display from the terminal."""
        self._live.stop()

    def say(self, text: str) -> None:
        """Print a line unchanged."""
        self._console.print(Text(text))

    @contextmanager
    def watch(self, run: NodeRun) -> Iterator[None]:
        """Show a node as running while the block runs."""
        with self._lock:
            self._running[run.id] = (run, time.monotonic())
        try:
            yield
        finally:
            with self._lock:
                del self._running[run.id]

    def _now_running(self) -> RenderableType:
        with self._lock:
            running = list(self._running.values())
        table = Table.grid(padding=(0, 1))
        for run, since in running:
            attempt = f"  attempt {run.attempt}" if run.attempt > 1 else ""
            text = f"{_name(run.node, run.visit)}  {duration(time.monotonic() - since)}{attempt}"
            table.add_row(" ", self._spinner, Text(text))
        return table

    def _finished(self, event: RecordedEvent) -> None:
        if event.stream == self._run.id:
            mark, style = _MARKS[event.type]
            self._console.print(Text.assemble("  ", (mark, style), " ", self._line(event)))

    def _line(self, event: RecordedEvent) -> str:
        match event.body:
            case NodeCompleted() as done:
                parts = [_name(done.node, done.visit), duration(done.ms / 1000)]
                if done.usage is not None:
                    self._count(done.usage)
                    parts.append(f"{usage(done.usage)} (so far {usage(self._used)})")
            case NodeFailed() | NodeRetried() as failed:
                parts = [_name(failed.node, failed.visit), failed.error]
            case NodeEmitted() as emitted:
                parts = [_name(emitted.node, emitted.visit), short(_one_line(emitted.data))]
            case NodeLogged() as logged:
                level = "" if logged.level == "info" else f"{logged.level}: "
                parts = [_name(logged.node, logged.visit), level + short(logged.text.partition("\n")[0])]
            case _:
                raise AssertionError(event.type)
        return "  ".join(parts)

    def _count(self, used: Mapping[str, Any]) -> None:
        for key in ("input_tokens", "output_tokens", "cost_usd"):
            self._used[key] += used[key]
        if unpriced := used.get("unpriced"):
            self._used["unpriced"] = sorted({*self._used.get("unpriced", ()), *unpriced})


def usage(used: Mapping[str, Any]) -> str:
    """Return tokens and cost for people; a model without a price is never treated as free."""
    tokens, unpriced = f"{used['input_tokens']:,}+{used['output_tokens']:,} tokens", used.get("unpriced", ())
    if not unpriced:
        return f"{tokens}, {dollars(used['cost_usd'])}"
    known = f"{dollars(used['cost_usd'])} and " if used["cost_usd"] else ""
    return f"{tokens}, {known}no price known for {', '.join(unpriced)}"


def _one_line(data: Any) -> str:
    """Return what a node emitted in one line: `done=3 of=10` for a mapping."""
    if isinstance(data, dict):
        data = " ".join(f"{key}={text_of(item, str)}" for key, item in data.items())
    return " ".join(text_of(data, str).split())


def _name(node: str, visit: int) -> str:
    return f"{node}#{visit}" if visit > 1 else node
