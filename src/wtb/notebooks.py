"""Support for notebooks: finds the workflow of a run by the run's id, and shows the live progress of a batch."""

from __future__ import annotations

import builtins
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any

from wtb.application.batches.attempt import Progress
from wtb.domain.display import Display, Displayed
from wtb.flow import Workflow

_MOST_FLOWS = 1_000


class KnownFlows:
    """The workflows of the latest runs of a bench. Those of a notebook are in no file."""

    def __init__(self) -> None:
        self._flows: OrderedDict[str, Workflow] = OrderedDict()
        self._lock = Lock()

    def noted(self, run_id: str, flow: Workflow | None) -> Workflow | None:
        """Remember the workflow of a run; if none is given, return the remembered one."""
        with self._lock:
            if flow is None:
                return self._flows.get(run_id)
            self._flows[run_id] = flow
            self._flows.move_to_end(run_id)
            while len(self._flows) > _MOST_FLOWS:
                self._flows.popitem(last=False)
        return flow


class _Shown(Displayed):
    """The progress of a batch as a notebook shows it."""

    def __init__(self, name: str, progress: Progress) -> None:
        self._name = name
        self._progress = progress

    def _display(self) -> Display:
        now = self._progress
        done = now.kept + now.completed + now.failed
        failed = f", {now.failed:,} failed" if now.failed else ""
        cost = f", ${now.spent.usd:.4f}" if now.spent.usd else ""
        work = f"node runs: {now.executed:,} executed, {now.shared:,} shared"
        return Display(title=f"Batch {self._name}: {done:,} of {now.total:,} jobs{failed}{cost}", lines=(work,))


def notebook_progress(name: str) -> Callable[[Progress], None] | None:
    """Return a function that shows progress in the cell that runs; None outside a notebook."""
    shell = getattr(builtins, "get_ipython", lambda: None)()
    if not hasattr(shell, "kernel"):
        return None
    from IPython.display import display  # installed, since a kernel is running

    handles: list[Any] = []

    def show(progress: Progress) -> None:
        shown = _Shown(name, progress)
        if handles:
            handles[0].update(shown)
        else:
            handles.append(display(shown, display_id=True))

    return show
