"""A project whose server LangGraph's clients connect to: a graph that streams tokens, asks, and may be killed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
from langgraph_sdk import get_client, get_sync_client

from tests.api.running_server import running
from tests.shell import Shell
from wtb.api.parts import ServerParts
from wtb.bootstrap import Services
from wtb.domain.access import Role

WAIT_S = 60.0

AGENT = """
import os, time
from pathlib import Path
from typing import Annotated, Any

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt
from typing_extensions import TypedDict  # pydantic makes no schema of typing's own before Python 3.12

import wtb.langgraph

HERE = Path(__file__).parent
WORDS = "one two three four"


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    steps: Annotated[list[str], lambda old, new: old + new]
    topic: str


def plan(state):
    get_stream_writer()({"planning": state.get("topic")})
    with (HERE / "plans.txt").open("a") as file:
        file.write("plan\\n")
    return {"steps": ["plan"]}


async def talk(state):
    model = GenericFakeChatModel(messages=iter([AIMessage(WORDS, id=f"ai-{len(state['messages'])}")]))
    said = await model.ainvoke(state["messages"])
    return {"messages": [said], "steps": ["talk"]}


def review(state):
    gate = HERE / "gate"
    if gate.exists():
        (HERE / "worker.pid").write_text(str(os.getpid()))
    while gate.exists():
        time.sleep(0.02)
    if state.get("topic") == "broken":
        raise ValueError("no such topic")
    answer = interrupt({"question": "good?"}) if state.get("topic") == "asked" else "unasked"
    return {"steps": [f"review {answer}"]}


builder = StateGraph(State)
builder.add_node("plan", plan)
builder.add_node("talk", talk)
builder.add_node("review", review)
builder.add_edge(START, "plan")
builder.add_edge("plan", "talk")
builder.add_edge("talk", "review")
builder.add_edge("review", END)
agent = wtb.langgraph.workflow(builder, name="agent")


class Outer(TypedDict):
    steps: Annotated[list[str], lambda old, new: old + new]


def inner(state):
    return {"steps": [str(interrupt("inside?"))]}


nested = StateGraph(Outer).add_node("inner", inner).add_edge(START, "inner").compile()
outer = wtb.langgraph.workflow(StateGraph(Outer).add_node("sub", nested).add_edge(START, "sub"), name="outer")
plain_flow = wtb.Workflow("native")


@plain_flow.node(start=True)
def only(state):
    return {}
"""

REFERENCES = ("agent.py:agent", "agent.py:outer", "agent.py:plain_flow")
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}], "topic": "weather"}


class LangGraphProject:
    """A real server on a port, and clients of LangGraph's SDK."""

    def __init__(self, folder: Path, address: str, services: Services) -> None:
        self.folder = folder
        self.address = address
        self.url = f"{address}/langgraph"
        self.services = services
        self._tokens: dict[Role, str] = {}
        self.open = ExitStack()

    def token(self, role: Role = Role.OPERATOR) -> str:
        """Return the token of a role."""
        if role not in self._tokens:
            _, self._tokens[role] = self.services.tokens.create(f"the {role}", role, by="tester")
        return self._tokens[role]

    def sync(self, role: Role = Role.OPERATOR) -> Any:
        """Return a client that blocks."""
        return self.open.enter_context(get_sync_client(url=self.url, api_key=self.token(role)))

    def client(self, role: Role = Role.OPERATOR) -> Any:
        """Return a client to await, for `async with`."""
        return get_client(url=self.url, api_key=self.token(role))

    def api(self, role: Role = Role.OPERATOR) -> httpx.Client:
        """Return a client of WTB's own API."""
        headers = {"Authorization": f"Bearer {self.token(role)}"}
        return self.open.enter_context(httpx.Client(base_url=self.address, headers=headers, timeout=60))


@contextmanager
def serving_graphs(folder: Path, services: Services) -> Iterator[LangGraphProject]:
    """Serve the project in this process, with real workers."""
    (folder / "agent.py").write_text(AGENT)
    parts = ServerParts(services=services, workflows=REFERENCES)
    with running(parts, langgraph=True) as server:
        project = LangGraphProject(folder, server.url, services)
        with project.open:
            yield project


@contextmanager
def serving_by_command(shell: Shell, port: int) -> Iterator[subprocess.Popen[str]]:
    """Serve the project as a person does: with a command, which can be killed."""
    process = shell.start("serve", "--langgraph", "--port", str(port), "agent.py:agent", stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Serving")
        said = process.stdout.readline()
        assert said == (
            f"LangGraph clients connect to http://127.0.0.1:{port}/langgraph, with a token as their API key.\n"
        )
        yield process
    finally:
        process.kill()
        process.communicate()


def until(is_true: Callable[[], Any]) -> Any:
    """Return what a function returns as soon as it is true."""
    end = time.monotonic() + WAIT_S
    while not (found := is_true()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return found
