"""A project whose runs show everything that the views of checkpoints and the actions of runs have to show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.browser.served import Served, Window, serving

HOSTILE = '<img src=x onerror="window.caught=1"><script>window.caught=1</script>'

FLOW = (
    f"HOSTILE = {HOSTILE!r}\n"
    + """
import base64
import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import wtb

HERE = Path(__file__).parent
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAYAAACNMs+9AAAAFUlEQVR42mNk+M9Qz0AEYBxVSF+FABJADveWkH6oAAAAAElFTkSuQmCC"
)
flow = wtb.Workflow("agent")


@wtb.serialisable
@dataclass
class Place:
    street: str
    number: int


def noted(line):
    with (HERE / "world.txt").open("a") as file:
        file.write(line + "\\n")


def unsend(call):
    if (HERE / "broken").exists():
        raise OSError("the mail server does not answer")
    noted("-" + call.arguments["text"])


@wtb.tool(reverse=unsend)
def send(text):
    noted("+" + text)
    return "sent"


@wtb.tool(effects="external")
def publish(text):
    return {"url": "https://example.org/" + text}


def large():
    docs = [{"title": f"Document {at}", "text": f"{at} " * 100} for at in range(10_000)]
    return {"docs": docs, "text": "long " * 200_000}


def typed(state):
    return {
        "plan": f"about {state['topic']}", "place": Place("Main", 7), "at": datetime(2026, 1, 1, tzinfo=timezone.utc),
        "wait": timedelta(minutes=5), "price": Decimal("1.10"), "tags": {"a", "b"}, "pair": (1, 2.5),
        "raw": b"\\x00\\xff",
        "api_key": "sk-1234567890abcdefghijkl", "big": 1 << 70, "done": False, HOSTILE: HOSTILE,
        "nested": {"a": {"b": ["one", {"c": "deep"}]}},
        "messages": [{"role": "user", "content": "Where is my invoice?"}, {"role": "assistant", "content": HOSTILE}],
    }


@flow.node(start=True)
def plan(state, ctx):
    (ctx.workspace / "notes.txt").write_text("line one\\nline two\\n")
    (ctx.workspace / "dot.png").write_bytes(PIXEL)
    (ctx.workspace / (HOSTILE.replace("/", "") + ".html")).write_text(HOSTILE)
    return large() if state["topic"] == "large" else typed(state)


@flow.node
def draft(state, ctx):
    ctx.tool(send, text=f"{ctx.run.execution_id} {state['topic']}")
    (ctx.workspace / "notes.txt").write_text(f"line one\\nline 2, {HOSTILE}\\n")
    while (HERE / f"gate-{state['topic']}").exists():
        time.sleep(0.02)
    return {"draft": f"A long draft about {state['topic']}", "round": state.get("round", 0) + 1}


@flow.variant("draft", "short")
def short(state, ctx):
    return {"draft": f"A short draft about {state['topic']}", "round": 2}


@flow.node
def review(state, ctx):
    if state["topic"] == "form":
        schema = {"type": "object", "required": ["verdict", "score"], "properties": {
            "verdict": {"enum": ["accept", "reject"]},
            "score": {"type": "integer", "minimum": 1, "maximum": 5, "title": "Score"},
            "urgent": {"type": "boolean"}, "remark": {"type": "string"}}}
        return {"review": ctx.ask("Judge the draft", schema=schema)}
    return {"review": "none"}


@flow.node
def deliver(state, ctx):
    if state["topic"] == "published":
        ctx.tool(publish, text="page")
    return {"delivered": state["draft"]}


flow.edge("plan", "draft")
flow.edge("draft", "draft", when="round < 2")
flow.edge("draft", "review", otherwise=True)
flow.edge("review", "deliver")
"""
)


@contextmanager
def served_project(folder: Path, runs: dict[str, str], *options: str) -> Iterator[Served]:
    """Serve the project after some runs of it, each with its topic."""
    (folder / "agent.py").write_text(FLOW)
    before = Served(folder)
    for name, topic in runs.items():
        said = before.wtb("run", "agent.py:flow", "--run-id", name, "--input", f'{{"topic": "{topic}"}}', *options)
        assert "Error" not in said, said
    with serving(folder, "agent.py:flow") as running:
        yield running


def expect_no_script(page: Page) -> None:
    """Fail if a text of a user was run instead of shown."""
    assert page.evaluate("window.caught") is None


def viewer_page(browser: Browser, served: Served) -> Page:
    """Return a page of somebody who may only look."""
    token = served.wtb("token", "create", "vera", "--role", "viewer").split()[0]
    page = browser.new_context().new_page()
    page.goto(f"{served.address}/runs")
    page.get_by_label("Or sign in with a token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".who")).to_contain_text("vera (viewer)")
    return page


def status(window: Window, text: str) -> None:
    """Wait until the run that is shown has a status."""
    expect(window.page.locator("main .badge", has_text=text).first).to_be_visible()
