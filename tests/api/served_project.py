"""A project that a server of the tests serves: a workflow with a tool, a question and values of many types."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.api.client import ADDRESS, TestClient
from wtb.api.app import create_app
from wtb.api.parts import ServerParts
from wtb.bootstrap import Services, bootstrap
from wtb.domain.access import Role
from wtb.domain.errors import NotFound
from wtb.settings import Settings

FLOW = """
import os, signal, time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import wtb

WORLD = Path(__file__).with_name("world.txt")
flow = wtb.Workflow("agent")


@wtb.serialisable
@dataclass
class Place:
    street: str


def noted(line):
    with WORLD.open("a") as file:
        file.write(line + "\\n")


def unsend(call):
    time.sleep(float(os.environ.get("SLOW_REVERSE", "0")))
    noted("-" + call.arguments["text"])


@wtb.tool(reverse=unsend, confirm=lambda call: "sent")
def send(text):
    noted("+" + text)
    return "sent"


@flow.node(start=True)
def plan(state):
    return {"plan": f"about {state['topic']}", "place": Place("Main"), "at": datetime(2026, 1, 1, tzinfo=timezone.utc),
            "api_key": "sk-1234567890abcdefghijkl", "big": 1 << 70}


@flow.node
def deliver(state, ctx):
    text = ctx.tool(send, text=f"{ctx.run.execution_id} {state['plan']}")
    gate = Path(__file__).with_name(f"gate-{state['topic']}")
    while gate.exists():
        time.sleep(0.02)
    if state["topic"] == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"sent": text}


@flow.node
def review(state, ctx):
    return {"review": ctx.ask("good?", schema=["yes", "no"]) if state["topic"] == "asked" else "none"}


flow.edge("plan", "deliver")
flow.edge("deliver", "review")


@flow.variant("plan", "short")
def short(state):
    return {"plan": "short"}
"""


class ServedProject:
    """A running server over a project folder, and clients of each role."""

    def __init__(self, folder: Path, services: Services, client: TestClient) -> None:
        self.folder = folder
        self.services = services
        self.operator, self.viewer, self.admin = (
            self._signed(client, role) for role in (Role.OPERATOR, Role.VIEWER, Role.ADMIN)
        )

    def _signed(self, running: TestClient, role: Role) -> TestClient:
        made = TestClient(running.app, base_url=ADDRESS)
        made.portal = running.portal
        with suppress(NotFound):  # an earlier server of this project had one
            self.services.tokens.revoke(f"the {role}", by="tester")
        _, token = self.services.tokens.create(f"the {role}", role, by="tester")
        made.headers["Authorization"] = f"Bearer {token}"
        return made

    def post(self, path: str, body: Any = None, *, etag: str | None = None, key: str | None = None) -> Any:
        """Send a request of the operator, and wait for the command."""
        headers = {name: value for name, value in (("If-Match", etag), ("Idempotency-Key", key)) if value is not None}
        return self.operator.post(f"/api/v1{path}", json=body, params={"wait_s": 60}, headers=headers)

    def ask(self, path: str, body: Any = None) -> Any:
        """Send a request of the operator that is no command."""
        return self.operator.post(f"/api/v1{path}", json=body)

    def start(self, topic: str, **options: Any) -> Any:
        """Start a run and wait until it ends or pauses."""
        body = {"workflow": "agent", "input": {"topic": topic}, "options": options}
        answer = self.post("/executions", body)
        assert answer.status_code == 201, answer.text
        return answer

    def world(self, run_id: str) -> list[str]:
        """Return what the tool did and undid for a run."""
        file = self.folder / "world.txt"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line[0] for line in lines if run_id in line]


@contextmanager
def serving(
    folder: Path, settings: Settings, references: tuple[str, ...] = ("agent.py:flow",)
) -> Iterator[ServedProject]:
    """Serve a project in this process, with real workers."""
    (folder / "agent.py").write_text(FLOW)
    before = Path.cwd()
    os.chdir(folder)
    try:
        with bootstrap(settings) as services:
            app = create_app(ServerParts(services=services, workflows=references))
            with TestClient(app, base_url=ADDRESS) as client:
                yield ServedProject(folder, services, client)
    finally:
        os.chdir(before)
