"""BatchDisplay: the progress of a running batch."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import RenderableType
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from wtb.application.batches.attempt import Progress
from wtb.cli.output import Terminal, duration

_LINES = 10
"""Most lines of progress that are printed without a terminal."""

_ROWS = 8
"""Up to this many combinations each get a bar; with more, each gets one character."""

_LEVELS = " ▁▂▃▄▅▆▇█"


class _Bars(Bar):
    """The bars of the batch and of its combinations, with lines below them."""

    lines: Sequence[str] = ()

    def get_renderables(self) -> Iterator[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield from map(Text, self.lines)


class BatchDisplay:
    """Writes to stderr: bars on a terminal, otherwise a few lines; if quiet, only the texts given to `say`."""

    def __init__(self, name: str, *, quiet: bool) -> None:
        self.progress = Progress(total=0, kept=0)
        """The progress of the batch."""
        self._name = name
        self._quiet = quiet
        self._console = Terminal(stderr=True, highlight=False, soft_wrap=True)
        self._bar = _Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[figures]}", markup=False),
            console=self._console,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # output of nodes must reach a pipe unchanged
        )
        self._task = self._bar.add_task(name, total=None, figures="checking what is already done")
        self._rows: dict[str, TaskID] = {}
        self._since = time.monotonic()
        self._said = 0
        self._is_cancelled = False

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the display while the block runs."""
        if self._console.is_terminal and not self._quiet:
            self._bar.start()
        try:
            yield
        finally:
            self.stop()

    def stop(self) -> None:
        """Remove the display from the terminal."""
        self._bar.stop()

    def say(self, text: str) -> None:
        """Print a line unchanged."""
        self._console.print(Text(text))

    def on_progress(self, progress: Progress) -> None:
        """Show the new progress."""
        self.progress = progress
        if progress.is_cancelled and not self._is_cancelled:
            self._is_cancelled = True
            self.say("Cancelled by another process: jobs that have started will finish.")
        if self._quiet:
            return
        done = progress.kept + progress.completed + progress.failed
        jobs, work = jobs_done(progress), work_done(progress)
        left = time_left(progress, time.monotonic() - self._since)
        if self._console.is_terminal:
            self._bar.update(self._task, total=progress.total, completed=done, figures=jobs + left)
            self._bar.lines = [work, *self._combinations(progress)]
        elif self._is_worth_a_line(progress, done):
            self.say(f"{self._name}: {jobs}  {work}{left}")

    def _combinations(self, progress: Progress) -> Iterator[str]:
        """Give each combination a bar; if there are many, yield one line for all of them."""
        done = progress.by_combination
        total = progress.total // max(len(done), 1)
        if len(done) > _ROWS:
            yield f"{len(done):,} combinations: {cells(done.values(), total)}"
        elif len(done) > 1:
            for name, count in done.items():
                if name not in self._rows:
                    self._rows[name] = self._bar.add_task(f"  {name}", total=total, figures="")
                self._bar.update(self._rows[name], completed=count, figures=f"{count:,}/{total:,}")

    def _is_worth_a_line(self, progress: Progress, done: int) -> bool:
        tenth = done * _LINES // max(progress.total, 1)
        is_new, self._said = tenth > self._said, max(tenth, self._said)
        return is_new and progress.kept < progress.total


def jobs_done(progress: Progress) -> str:
    """Return the number of jobs done, and of those that failed."""
    done = progress.kept + progress.completed + progress.failed
    failed = f" ({progress.failed:,} failed)" if progress.failed else ""
    return f"{done:,}/{progress.total:,} jobs{failed}"


def work_done(progress: Progress) -> str:
    """Return the number of node runs and the cost, or the tokens if no price is known."""
    spent = progress.spent
    cost = f"  ${spent.usd:.4f}" if spent.usd else f"  {spent.tokens:,} tokens" if spent.tokens else ""
    return (
        f"node runs: {progress.executed:,} executed, {progress.shared:,} shared, {progress.failed_nodes:,} failed{cost}"
    )


def time_left(progress: Progress, elapsed_s: float) -> str:
    """Return an estimate of the time left; empty if there is none."""
    now = progress.completed + progress.failed
    left = progress.total - progress.kept - now
    return f"  about {duration(elapsed_s / now * left)} left" if now and left else ""


def cells(done: Iterable[int], total: int) -> str:
    """Return the progress of each combination, one character each."""
    return "".join(_LEVELS[count * (len(_LEVELS) - 1) // max(total, 1)] for count in done)
