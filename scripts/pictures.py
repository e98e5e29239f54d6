"""Takes the pictures of the page for README and documentation: `make pictures`.

It serves the demo's batch and a run of the agent below, and looks at both with Chromium, as a person would.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
WTB = ROOT / ".venv" / "bin" / "wtb"
IMAGES = ROOT / "docs" / "images"
BENCH = ROOT / "build" / "demo"
AGENT = """
import time

import wtb

flow = wtb.Workflow("support")


@wtb.tool(reverse=lambda call: None)
def open_ticket(title):
    return {"ticket": 4711, "title": title}


@flow.node(start=True)
def classify(state):
    return {"topic": "billing" if "invoice" in state["question"] else "other"}


@flow.node
def search(state, ctx):
    time.sleep(0.4)
    (ctx.workspace / "notes.txt").write_text(f"Looked for {state['topic']}\\n")
    return {"docs": ["Invoices are under Account"]}


@flow.node
def history(state):
    time.sleep(0.3)
    return {"earlier": ["Paid in May"]}


@flow.node
def answer(state, ctx):
    ticket = ctx.tool(open_ticket, title=state["question"])
    ctx.usage(model="gpt-4o-mini", input_tokens=812, output_tokens=96, cost_usd=0.00018)
    return {"answer": f"{state['docs'][0]}. Ticket {ticket['ticket']}"}


@flow.node
def review(state, ctx):
    return {"review": ctx.ask("Send this answer?", schema=["yes", "no"])}


flow.edge("classify", "search")
flow.edge("classify", "history")
flow.edge(["search", "history"], "answer")
flow.edge("answer", "review")


@flow.variant("answer", "short")
def short(state):
    return {"answer": state["docs"][0]}
"""


def main() -> None:
    """Take all pictures into docs/images."""
    _prepare()
    with _serving() as link, sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        assert chromium is not None, "scripts/services installs Chromium"
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 860}, color_scheme="light")
        page.goto(link)
        page.wait_for_url("**/runs")
        base = link.split("/sign-in/")[0]
        _take(page, f"{base}/batches/support_qa", "page-batch", "table, [role=grid], [role=table]")
        _take(page, f"{base}/runs/invoice", "page-run", ".react-flow__node")
        _take(page, f"{base}/runs/invoice?view=branches", "page-branches", "main svg")
        page.goto(f"{base}/runs/invoice/checkpoints/1")
        page.get_by_role("button", name=re.compile("Restore")).first.click()
        page.get_by_role("dialog").get_by_text("open_ticket").first.wait_for()
        page.screenshot(path=IMAGES / "page-restore.png")
        browser.close()


def _take(page: Page, address: str, name: str, content: str) -> None:
    page.goto(address)
    page.locator(content).first.wait_for()
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(500)
    page.screenshot(path=IMAGES / f"{name}.png", full_page=name != "page-batch")


def _prepare() -> None:
    """Make a run that was rolled back, forked and asks a question, beside the demo's batch."""
    (BENCH / "support.py").write_text(AGENT)
    _wtb("delete", "invoice-short", "--yes", check=False)
    _wtb("delete", "invoice", "--yes", check=False)
    _wtb("run", "support.py", "--set", "question=Where is my invoice?", "--run-id", "invoice", check=False)
    _wtb("rollback", "invoice", "classify", "--yes")
    _wtb("resume", "invoice", check=False)
    _wtb("fork", "invoice", "classify", "--variant", "answer=short", "--run-id", "invoice-short", check=False)


def _wtb(*words: str, check: bool = True) -> None:
    subprocess.run([WTB, *words], cwd=BENCH, check=check, stdout=subprocess.DEVNULL)


@contextmanager
def _serving() -> Iterator[str]:
    """Serve the bench, and give the link that signs in."""
    words = [str(WTB), "serve", "--port", "0", "support.py", "../../examples/support_qa/batch.py"]
    server = subprocess.Popen(words, cwd=BENCH, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield next(found[0] for line in server.stdout if (found := re.search(r"http://\S+/sign-in/\S+", line)))
    finally:
        server.terminate()
        server.wait(30)


if __name__ == "__main__":
    main()
