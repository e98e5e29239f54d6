"""What large things cost in the browser: processor time of the first view, and the longest task while scrolling.

`python -m benchmarks.page` measures every part, `python -m benchmarks.page run` one of them. A part fills a bench and
names the views to look at; a server and Chromium are started for it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from benchmarks.report import Figure, measure
from tests.browser.long_run import store_long_run
from tests.browser.served import Served, Window, serving

STEPS = 10_000
FIRST_VIEW_S, LONGEST_TASK_MS = 1.0, 200.0
SCREENS = 40
"""How often a list is scrolled by one screen."""

_WATCH = """
    window.tasks = [];
    new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((entry) => entry.duration)))
        .observe({ type: "longtask", buffered: true });
"""
_SCROLL = """async ([selector, screens]) => {
    const frame = document.querySelector(selector);
    for (let at = 0; at < screens; at++) {
        frame.scrollBy(0, frame.clientHeight * (at % 8 === 7 ? 20 : 1));
        await new Promise((resolve) => setTimeout(resolve, 60));
    }
}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """An address, what is there once it is shown, and what is scrolled, if anything."""

    name: str
    address: str
    ready: str
    scrolled: str | None = ".vtable"


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePart:
    """Something large: how to store it in the bench of a folder, what to serve, and how to look at it."""

    store: Callable[[Path], None]
    views: Sequence[View]
    references: Sequence[str] = ()


def _store_run(folder: Path) -> None:
    store_long_run(folder, "long", steps=STEPS)


PARTS: dict[str, PagePart] = {
    "run": PagePart(
        store=_store_run,
        views=[
            View(name="checkpoints", address="/runs/long?view=checkpoints", ready=".vtable-row"),
            View(name="timeline", address="/runs/long?view=timeline", ready=".vtable-row"),
            View(name="graph", address="/runs/long", ready=".graph-node", scrolled=None),
            View(name="branches", address="/runs/long?view=branches", ready=".vtable-row", scrolled=None),
            View(name="events", address="/runs/long?view=events", ready=".vtable-row"),
        ],
    ),
}


def measured(name: str, part: PagePart) -> list[Figure]:
    """Store what a part needs, serve it, and measure its views."""
    with tempfile.TemporaryDirectory() as folder:
        part.store(Path(folder))
        with serving(Path(folder), *part.references) as served, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            figures = [figure for view in part.views for figure in _view(browser, served, name, view)]
            browser.close()
    return figures


def _view(browser: Browser, served: Served, part: str, view: View) -> list[Figure]:
    window = Window(browser, served)
    window.context.add_init_script(_WATCH)
    session = window.context.new_cdp_session(window.page)
    session.send("Performance.enable")
    before = _task_s(session)
    page = window.open(view.address)
    page.locator(view.ready).first.wait_for()
    page.wait_for_timeout(500)
    title = f"{part}, {view.name}"
    first = _task_s(session) - before
    figures = [Figure(name=f"{title}: processor time of the first view", value=first, unit="s", bar=FIRST_VIEW_S)]
    if view.scrolled is not None:
        figures.append(_scrolling(page, title, view.scrolled))
    window.close()
    return figures


def _scrolling(page: Page, title: str, selector: str) -> Figure:
    page.evaluate("window.tasks.length = 0")
    page.evaluate(_SCROLL, [selector, SCREENS])
    longest = page.evaluate("Math.max(0, ...window.tasks)")
    rows = page.locator(".vtable-row").count()
    detail = f"{SCREENS} screens; {rows} rows exist at the end; tasks below 50 ms count as 0"
    return Figure(
        name=f"{title}: longest task while scrolling", value=longest, unit="ms", bar=LONGEST_TASK_MS, detail=detail
    )


def _task_s(session: CDPSession) -> float:
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))


if __name__ == "__main__":
    chosen = sys.argv[1:] or list(PARTS)
    measure(
        "The page in the browser",
        Path("build/benchmarks/page.json"),
        [(name, lambda name=name: measured(name, PARTS[name])) for name in chosen],  # type: ignore[misc]
    )
