"""The page with 10,000 results: processor time of the first view, and long tasks while somebody scrolls.

.venv/bin/python -m benchmarks.page_batch
"""

from __future__ import annotations

import shutil
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from playwright.sync_api import CDPSession, sync_playwright

import wtb
from tests.browser.served import Served, serving
from wtb.domain.batch import Batch, BatchStatus, Job, JobStatus
from wtb.domain.batch_record import BatchRecord
from wtb.domain.evaluation import Direction, Metric
from wtb.domain.execution import Failure
from wtb.domain.ids import ExecutionId
from wtb.domain.job_record import JobRecord

COMBINATIONS, CASES = 40, 250
_WATCH = """
    window.longTasks = [];
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) window.longTasks.push(Math.round(entry.duration));
    }).observe({ type: "longtask", buffered: true });
"""


def main() -> None:
    """Store a batch, serve it, open it, scroll it, and print the figures."""
    with tempfile.TemporaryDirectory() as name, serving(Path(name)) as served:
        _store(served)
        _measure(served)


def _store(served: Served) -> None:
    names = ["baseline", *(f"answer=v{n}, retrieve=r{n % 5}" for n in range(1, COMBINATIONS))]
    cases = [f"case-{n:04}" for n in range(CASES)]
    metrics = (Metric(name="quality", worst=0.0, best=1.0), Metric(name="latency_s", direction=Direction.LOWER))
    now = datetime.now(UTC)
    record = BatchRecord(combinations=tuple(names), baseline="baseline", cases=tuple(cases), repeats=1, metrics=metrics)
    batch = Batch(
        id="large",
        name="large",
        workflow_name="w",
        status=BatchStatus.COMPLETED_WITH_ERRORS,
        record=record,
        created_at=now,
        updated_at=now,
    )
    jobs: list[Job] = []
    for at, combination in enumerate(names):
        for number, case in enumerate(cases):
            job = Job(
                batch_id="large", number=len(jobs), combination=combination, case_id=case, repeat=0, fingerprint=""
            )
            run = ExecutionId(f"01a1df66-9f65-7000-88f1-{len(jobs):012x}")
            if at == 1 + number % 97:
                ended = JobRecord(error=Failure(type="ValueError", message="broken"))
                jobs.append(job.ended(JobStatus.FAILED, run, ended))
            else:
                scores = {"quality": (number * at % 89) / 88, "latency_s": 1.0 + (number * 7 + at) % 13}
                jobs.append(job.ended(JobStatus.COMPLETED, run, JobRecord(scores=scores)))
    with wtb.Bench(f"sqlite:///{served.folder}/.wtb/wtb.db") as bench, bench.services.storage.unit_of_work() as uow:
        uow.batches.save(batch)
        uow.batches.save_jobs(jobs)
        uow.commit()


def _measure(served: Served) -> None:
    chromium = shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1400, "height": 900})
        context.add_init_script(_WATCH)
        page = context.new_page()
        page.goto(served.link())
        page.wait_for_url(f"{served.address}/runs")
        cdp = context.new_cdp_session(page)
        cdp.send("Performance.enable")
        for view, ready in (("matrix", ".matrix tbody tr"), ("cases", ".grid-cell")):
            page.goto("about:blank")
            before, since = _busy_s(cdp), time.perf_counter()
            page.goto(f"{served.address}/batches/large?view={view}")
            page.wait_for_selector(ready, timeout=120_000)
            page.wait_for_timeout(300)
            took, busy = time.perf_counter() - since - 0.3, _busy_s(cdp) - before
            tasks = page.evaluate("window.longTasks")
            print(
                f"{view:8} first view: {busy:.2f} s of processor time, {took:.1f} s by the clock, long tasks {tasks} ms"
            )
        sizes = page.evaluate(
            "performance.getEntriesByType('resource').filter((e) => e.name.includes('/batches/'))"
            ".map((e) => [e.name.split('/').pop(), e.decodedBodySize, Math.round(e.duration)])"
        )
        print("answers (bytes, ms):", sizes)
        page.evaluate("window.longTasks = []")
        page.locator(".grid-frame").hover()
        before = _busy_s(cdp)
        for _ in range(40):
            page.mouse.wheel(150, 400)
            page.wait_for_timeout(30)
        for _ in range(10):
            page.mouse.wheel(-2_000, -3_000)
            page.wait_for_timeout(30)
        longest = page.evaluate("window.longTasks")
        print(f"scrolling: {_busy_s(cdp) - before:.2f} s of processor time, long tasks {longest} ms")
        drawn = page.locator(".grid-cell").count()
        print(f"drawn cells: {drawn} of {COMBINATIONS * CASES}")
        browser.close()


def _busy_s(cdp: CDPSession) -> float:
    found = cdp.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in found if each["name"] == "TaskDuration"))


if __name__ == "__main__":
    main()
