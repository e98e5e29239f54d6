"""A graph of LangGraph's, as a person works with it in a terminal: one real process a command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.shell import Shell, environment

BOT = """
import operator
from typing import Annotated, TypedDict

from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

import wtb.langgraph


class Log(TypedDict, total=False):
    log: Annotated[list, operator.add]
    topic: str


@tool
def book(room: str) -> str:
    "Book a room."
    with open("booked", "a") as file:
        file.write(room)
    return room


def unbook(call):
    open("booked", "w").close()


book = wtb.langgraph.reversible(book, reverse=unbook)


def books(state):
    (wtb.langgraph.workspace() / "note").write_text("booked")
    return {"log": [book.invoke({"room": "5"})]}


inner = StateGraph(Log)
inner.add_node("look", lambda state: {"topic": "rooms"})
inner.add_edge(START, "look")

graph = StateGraph(Log)
graph.add_node("find", inner.compile())
graph.add_node("book", books)
graph.add_node("ask", lambda state: {"log": [interrupt({"question": "all right?", "options": ["yes", "no"]})]})
graph.add_edge(START, "find")
graph.add_edge("find", "book")
graph.add_edge("book", "ask")
graph.add_edge("ask", END)
app = graph.compile(name="booking")
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, bot=BOT)


def test_a_graph_is_begun_in_one_process_and_finished_in_another(shell: Shell) -> None:
    asked = shell.json("run", "bot.py:app", "--input", "{}", "--run-id", "r1")
    assert (asked["status"], asked["question"]["question"]["options"]) == ("paused", ["yes", "no"])
    assert "all right?" in shell.wtb("show", "r1").stdout
    done = shell.json("resume", "r1", "--answer", "yes")
    assert (done["status"], done["state"]) == ("completed", {"log": ["5", "yes"], "topic": "rooms"})
    assert "find/look" in shell.wtb("show", "r1", "--events", "--type", "node.inside").stdout
    assert "gives the recorded results" in shell.wtb("show", "r1", "--replay").stdout
    assert [row["node"] for row in shell.json("history", "r1")[1:]] == ["find", "book", "ask"]


def test_a_rollback_in_another_process_takes_back_files_and_calls(shell: Shell) -> None:
    shell.wtb("run", "bot.py:app", "--input", "{}", "--run-id", "r1")
    assert (shell.folder / "booked").read_text() == "5"
    shell.wtb("rollback", "r1", "find", "--yes")
    assert (shell.folder / "booked").read_text() == ""
    assert shell.json("show", "r1", "--files") == []


def test_a_fork_takes_a_value_for_a_channel_and_refuses_others(shell: Shell) -> None:
    shell.wtb("run", "bot.py:app", "--input", "{}", "--run-id", "r1")
    forked = shell.json("fork", "r1", "find", "--set", "topic=other", "--run-id", "r2", "--resume")
    assert forked["state"]["topic"] == "other"
    refused = shell.wtb("fork", "r1", "find", "--set", "topics=other", code=2)
    assert "the graph has no channel topics; it has log, topic" in refused.stderr


SCRIPT = """
from dataclasses import dataclass
from typing import Any, TypedDict

from langgraph.graph import START, StateGraph

import wtb


@dataclass
class Plan:
    steps: list


class State(TypedDict, total=False):
    plan: Any
    done: str


graph = StateGraph(State)
graph.add_node("think", lambda state: {"plan": Plan(["go"])})
graph.add_node("act", lambda state: {"done": state["plan"].steps[0]})
graph.add_edge(START, "think")
graph.add_edge("think", "act")

if __name__ == "__main__":
    with wtb.Bench() as bench:
        bench.run(graph, {}, break_before=["act"], run_id="r1")
"""


def test_a_run_that_a_script_began_goes_on_with_the_classes_of_the_script(tmp_path: Path) -> None:
    shell = Shell(tmp_path, script=SCRIPT, other=SCRIPT.replace("Plan", "Other"))
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, env=environment(), check=True, timeout=120)
    refused = shell.wtb("resume", "r1", "--workflow", "other.py:graph", code=3)
    assert "move Plan to a module" in refused.stdout + refused.stderr
    assert shell.json("resume", "r1")["state"]["done"] == "go"


@pytest.mark.parametrize(
    ("annotation", "code", "said"), [("Plan", 0, '"done": "go"'), ("Any", 3, "annotate the channel")]
)
def test_a_graph_runs_where_langgraph_builds_only_what_the_schema_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, annotation: str, code: int, said: str
) -> None:
    monkeypatch.setenv("LANGGRAPH_STRICT_MSGPACK", "true")
    shell = Shell(tmp_path, script=SCRIPT.replace("plan: Any", f"plan: {annotation}"))
    done = shell.wtb("run", "script.py:graph", "--input", "{}", code=code)
    assert said in done.stdout + done.stderr
